"""What `doctor` finds in PostgreSQL: each trouble by itself, and nothing where there is none."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from retrysafe.stores.admin import Finding, Query
from retrysafe.stores.sql import doctor as generic
from retrysafe.stores.sql.postgresql import doctor
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.postgres_replication import PostgresReplication
from retrysafe.testing.stores import an_outcome
from tests.stores.admins import Books, admin_at
from tests.stores.pooler import Gives, Pooler


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """One that flushes to its disk: the doctor would say so if it did not."""
    with PostgresServer() as server:
        yield server


def examined(url: str) -> Sequence[Finding]:
    admin = admin_at(url)
    try:
        return admin.diagnose()
    finally:
        admin.close()


def amiss(url: str) -> dict[str, tuple[str, str]]:
    """By check: the level, and what was found and advised."""
    return {
        finding.check: (finding.level, f"{finding.found} | {finding.advice}")
        for finding in examined(url)
        if finding.level != "ok"
    }


def the(url: str, check: str) -> Finding:
    [finding] = [finding for finding in examined(url) if finding.check == check]
    return finding


def test_a_sound_store(books: Books) -> None:
    """Everything is looked at, and nothing is wrong; records that are well change nothing."""
    books.finish("done", an_outcome())
    books.reserve("running")
    findings = examined(books.url)
    assert [finding.check for finding in findings] == (
        "server durability isolation clock pooler connections schema rights records expired abandoned vacuum "
        "locks".split()
    )
    assert {finding.level for finding in findings} == {"ok"}
    assert books.keys() == ["running", "done"]


def test_no_tables(database: str) -> None:
    """A database that is new, or another one: a problem, and looking makes none."""
    found = amiss(database)
    assert list(found) == ["schema"]
    assert "retrysafe migrate" in found["schema"][1]
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert row == (0,)


DAMAGE = {
    "UPDATE retrysafe_meta SET value = '99'": ("schema", "problem", "version 99"),
    "DROP TABLE retrysafe_audit": ("schema", "problem", "retrysafe_audit is missing"),
    "DROP TABLE retrysafe_records": ("schema", "problem", "backup"),
    "ALTER TABLE retrysafe_records DROP COLUMN mode": ("schema", "problem", "retrysafe_records.mode"),
    "DROP INDEX retrysafe_records_expires_at": ("schema", "warning", "index"),
    "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'retrysafe_records_expires_at'::regclass": (
        "schema",
        "warning",
        "retrysafe migrate",
    ),
    "ALTER TABLE retrysafe_records SET UNLOGGED": ("schema", "problem", "unlogged"),
    "ALTER TABLE retrysafe_records SET (autovacuum_enabled = false)": ("vacuum", "warning", "for this table"),
    "UPDATE retrysafe_records SET version = 2": ("records", "problem", "cannot be read"),
    "UPDATE retrysafe_records SET state = 'odd'": ("records", "problem", "cannot be read"),
    "UPDATE retrysafe_records SET expires_at = 'infinity'": ("records", "problem", "cannot be read"),
    "UPDATE retrysafe_records SET expires_at = now() - interval '8 days'": ("expired", "warning", "8.0 days"),
    "UPDATE retrysafe_records SET state = 'in_progress', lease_until = now() - interval '2 hours',"
    " created_at = now() - interval '2 hours'": ("abandoned", "warning", "2.0 hours"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage(books: Books, damage: str) -> None:
    """Found, named, with what to do about it; and nothing else is blamed."""
    check, level, says = DAMAGE[damage]
    books.finish("done", an_outcome())
    books.execute(damage)
    found = amiss(books.url)
    assert list(found) == [check]
    assert found[check][0] == level
    assert says in found[check][1]


SETTINGS = {
    "synchronous_commit = off": ("durability", "warning", "those of handlers"),
    "default_transaction_read_only = on": ("server", "problem", "default_transaction_read_only"),
    "default_transaction_isolation = 'repeatable read'": ("isolation", "warning", "40001"),
    "default_transaction_isolation = 'serializable'": ("isolation", "warning", "40001"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings(books: Books, setting: str) -> None:
    """What the database, the role or the server has as its default."""
    check, level, says = SETTINGS[setting]
    books.execute(f"ALTER DATABASE {books.url.rpartition('/')[2]} SET {setting}")
    found = amiss(books.url)
    assert list(found) == [check]
    assert found[check][0] == level
    assert says in found[check][1]


def test_a_server_that_forgets(database: str) -> None:
    """Settings that only the server as a whole can have; few connections; a replica of it."""
    with PostgresServer(fsync="off", max_connections="12", full_page_writes="off") as server:
        books = Books(server.new_database())
        found = amiss(books.url)
        assert {name: level for name, (level, _) in found.items()} == {
            "durability": "problem",
            "connections": "warning",
        }
        assert "fsync" in found["durability"][1]
        books.close()


def test_a_replica(postgres: PostgresServer) -> None:
    """It can be looked at, and is found to be one."""
    with PostgresServer() as primary:
        books = Books(primary.new_database())
        with primary.replica() as replica:
            url = replica.url(books.url.rpartition("/")[2])
            until = time.monotonic() + 60
            while "schema" in amiss(url):
                assert time.monotonic() < until, "the tables do not arrive"
            found = amiss(url)
        books.close()
    assert list(found) == ["server"]
    assert found["server"][0] == "problem"
    assert "replica" in found["server"][1]


def test_standbys(postgres: PostgresServer) -> None:
    """Whether what was acknowledged survives a promotion: one that is waited for, not waited for, or away."""
    del postgres  # only where there is one
    with PostgresReplication(synchronous=True) as servers:
        books = Books(servers.primary.new_database())
        name = books.url.rpartition("/")[2]

        def found() -> tuple[str, str]:
            finding = the(books.url, "standbys")
            return finding.level, f"{finding.found} | {finding.advice}"

        assert found()[0] == "ok"
        for setting in ("local", "remote_write"):
            books.execute(f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
            level, says = found()
            assert level == "warning"
            assert "SET synchronous_commit = on" in says
        books.execute(f"ALTER DATABASE {name} RESET synchronous_commit")
        servers.cut()
        level, says = found()
        assert level == "warning"
        assert "none is connected" in says
        servers.repair()
        books.close()
    with PostgresReplication(synchronous=False) as servers:
        books = Books(servers.primary.new_database())
        level, says = found()
        assert level == "warning"
        assert "none of them synchronous" in says
        books.close()


def test_nobody_there() -> None:
    """A server that is gone is one finding, and no exception."""
    with PostgresServer() as server:
        url = server.new_database()
    [finding] = examined(url)
    assert (finding.check, finding.level) == ("server", "problem")


def test_rights(books: Books) -> None:
    """What this role lacks, by table; and row security that hides records from it."""
    role = f"clerk_{books.url.rpartition('_')[2]}"
    books.execute(f"CREATE ROLE {role} LOGIN")
    theirs = books.url.replace("postgres@", f"{role}@")
    try:
        books.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        books.execute(f"GRANT INSERT, UPDATE ON retrysafe_records, retrysafe_verdicts TO {role}")
        found = amiss(theirs)
        assert list(found) == ["rights"]
        level, said = found["rights"]
        assert level == "problem"
        assert "DELETE on retrysafe_records" in said
        assert "INSERT, UPDATE on retrysafe_audit" in said
        assert "USAGE on public.retrysafe_audit_entry_seq" in said
        assert "retrysafe_verdicts" not in said
        books.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        books.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
        assert amiss(theirs) == {}
        books.execute(f"REVOKE INSERT, UPDATE ON retrysafe_meta FROM {role}")
        level, said = amiss(theirs)["rights"]
        assert level == "warning", "cleanup works without them"
        assert "lacks INSERT, UPDATE on retrysafe_meta: everything works" in said
        books.execute(f"REVOKE SELECT ON retrysafe_meta FROM {role}")
        assert amiss(theirs)["schema"][0] == "problem"
        books.execute(f"GRANT ALL ON retrysafe_meta TO {role}")
        books.execute("ALTER TABLE retrysafe_records ENABLE ROW LEVEL SECURITY")
        found = amiss(theirs)
        assert list(found) == ["schema"]
        assert "row security" in found["schema"][1]
    finally:
        books.execute(f"DROP OWNED BY {role}")
        books.execute(f"DROP ROLE {role}")


def test_a_pooler(postgres: PostgresServer, books: Books) -> None:
    """One that gives every transaction another session is recognised, even if nobody else uses it; one that
    keeps sessions apart, too; and operators can work behind both."""

    def between(gives: Gives) -> Pooler:
        return Pooler(postgres.port, books.url.rpartition("/")[2], gives)

    books.reserve("key")
    assert the(books.url, "pooler").found.startswith("none")
    with between("last") as pooler:
        finding = the(pooler.url, "pooler")
        assert finding.found.startswith("a pooler in transaction mode")
        assert "LISTEN" in finding.advice
        assert amiss(pooler.url) == {}
        admin = admin_at(pooler.url)
        assert [sighting.record.key for sighting in admin.list(Query())] == ["key"]
        assert admin.migrate().startswith("nothing to do")
        assert admin.purge(10).records == 0
        admin.close()
    with between("own") as pooler:
        assert "kept its server process" in the(pooler.url, "pooler").found


def test_whoever_holds_records(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that changed records and does not end is named, with what it waits for."""
    monkeypatch.setattr(doctor, "_LONG", 0.0)
    books.reserve("key")
    with psycopg.connect(books.url, application_name="forgetful") as holder:
        holder.execute("UPDATE retrysafe_records SET attempt = 2")
        level, said = amiss(books.url)["locks"]
        assert level == "warning"
        assert "forgetful" in said
        assert "idle in transaction" in said
        assert f"pg_terminate_backend({holder.info.backend_pid})" in said
        holder.rollback()
        holder.execute("SELECT * FROM retrysafe_records")
        assert amiss(books.url) == {}, "whoever only reads holds nobody up"


def test_a_backlog(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expired records that are not removed, however young; and dead rows that are not vacuumed."""
    monkeypatch.setattr(generic, "_BACKLOG", 2)
    monkeypatch.setattr(doctor, "_LITTER", 2)
    books.execute("ALTER TABLE retrysafe_records SET (autovacuum_vacuum_threshold = 1000000)")
    for n in range(3):
        books.finish(f"key {n}", an_outcome())
    books.elapse(3600.0)
    assert "no service keeps up" in amiss(books.url)["expired"][1]
    admin = admin_at(books.url)
    assert admin.purge(10).records == 3
    admin.close()  # a session that only waits takes ten seconds to tell the server what it has done
    _until(lambda: "vacuum" in amiss(books.url))
    assert "keep up" in amiss(books.url)["vacuum"][1]


def test_a_clock_that_is_off(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an hour: said, and said to be harmless."""
    monkeypatch.setattr(doctor, "_APART", -1.0)
    finding = the(books.url, "clock")
    assert finding.level == "ok"
    assert "does no harm" in finding.advice


def test_a_walk_that_takes_too_long(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is skipped, and the other checks go on."""
    monkeypatch.setattr(generic, "PATIENCE", 0.5)
    books.execute("ALTER TABLE retrysafe_records RENAME TO slow")
    books.execute("CREATE VIEW retrysafe_records AS SELECT slow.* FROM slow, pg_sleep(30)")
    findings = {finding.check: finding for finding in examined(books.url)}
    assert findings["records"].found.startswith("skipped")
    assert findings["locks"].level == "ok"


def test_somebody_alters_the_table(books: Books) -> None:
    """Then the checks that need it say so, and none waits for longer than the deadline."""
    with psycopg.connect(books.url) as holder, ThreadPoolExecutor() as pool:
        holder.execute("LOCK TABLE retrysafe_records IN ACCESS EXCLUSIVE MODE")
        admin = admin_at(books.url, deadline=0.2)
        findings = pool.submit(admin.diagnose).result(60)
        admin.close()
    levels = {finding.check: finding.level for finding in findings}
    assert levels["records"] == levels["expired"] == levels["abandoned"] == "problem"
    assert levels["rights"] == "ok"


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)
