"""PostgreSQL for operators: what the suite does not ask, because no other store has it."""

import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import psycopg
import pytest

from retrysafe._core.model import Final, Purged, Record, Response
from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.admin import Admin, Note, Query, Share
from retrysafe.stores.sql import admin_session as admin_module
from retrysafe.stores.sql.admin_session import AdminSession
from retrysafe.stores.sql.postgresql.admin import SNAPSHOT
from retrysafe.stores.sql.statements import load
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores import an_outcome
from tests.stores.admins import PATIENT, Books, admin_at, connection_at, warnings_of

NOTE = Note("ops@example.com", "the bank has the payment")
BY_HAND = Final("completed", Response(201, (), b"paid"))

Act = Callable[[Admin, Record], bool]


def release(admin: Admin, seen: Record) -> bool:
    return admin.release(seen, NOTE)


def resolve(admin: Admin, seen: Record) -> bool:
    return admin.resolve(seen, BY_HAND, NOTE)


either = pytest.mark.parametrize("act", [release, resolve])


class TestInterventions:
    """The change and its entry are one transaction, and wait for nobody for ever."""

    @either
    def test_there_is_no_change_without_its_entry(self, books: Books, act: Act) -> None:
        """The entry cannot be written, so the record stays as it was."""
        seen = books.abandoned()
        books.execute("ALTER TABLE retrysafe_audit ADD CHECK (by = 'nobody')")
        with pytest.raises(StoreUnavailable):
            act(books.admin, seen)
        assert books.keys(Query(standings=frozenset({"abandoned"}))) == ["key"]
        assert books.admin.audit() == []
        books.execute("ALTER TABLE retrysafe_audit DROP CONSTRAINT retrysafe_audit_by_check")
        assert act(books.admin, seen) is True, "and after the trouble it works again"

    @either
    def test_a_locked_record_is_not_waited_for(self, books: Books, act: Act) -> None:
        """Somebody holds the row: the operator is told, nothing is done, and it works afterwards."""
        seen = books.abandoned()
        hasty = admin_at(books.url, deadline=0.2)
        with psycopg.connect(books.url) as holder:
            holder.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")
            with pytest.raises(StoreUnavailable, match="nothing was done"):
                act(hasty, seen)
            holder.rollback()
            assert hasty.audit() == []
            assert act(hasty, seen) is True
        hasty.close()

    @either
    def test_what_the_other_one_did_is_respected(self, books: Books, act: Act) -> None:
        """Whoever had the row renewed it while the operator waited for it: the operator sees that."""
        seen = books.abandoned()
        with psycopg.connect(books.url) as owner:
            owner.execute("UPDATE retrysafe_records SET lease_until = now() + interval '1 hour'")
            with ThreadPoolExecutor() as pool:
                answer = pool.submit(act, books.admin, seen)
                _until(lambda: _waiting(books) == 1)
                owner.commit()
                assert answer.result(60) is False
        assert books.record(seen).token == seen.token
        assert books.admin.audit() == []


class TestSightings:
    """One moment, whatever is in the table."""

    def test_statistics_look_at_one_moment(self, books: Books) -> None:
        """What comes in between two statements of a snapshot is seen by neither."""
        books.reserve("first")
        admin = AdminSession(lambda: connection_at(books.url), PATIENT)
        with admin.transaction(SNAPSHOT, PATIENT) as transaction:
            [before] = transaction.query("totals")
            books.reserve("second")
            [after] = transaction.query("totals")
            routes = transaction.query("by_route", {"groups": 10})
        admin.close()
        assert before[2] == after[2] == 1
        assert [row[4] for row in routes] == [1]
        assert books.admin.statistics().total == Share({"in_progress": 2}, 0)

    def test_whoever_looks_cannot_write(self, books: Books) -> None:
        """A snapshot is read-only, by the server's word."""
        admin = AdminSession(lambda: connection_at(books.url), PATIENT)
        with (
            pytest.raises(StoreUnavailable, match="accepts no writes"),
            admin.transaction(SNAPSHOT, PATIENT) as transaction,
        ):
            transaction.command("DELETE FROM retrysafe_records")
        admin.close()

    @pytest.mark.parametrize(
        "damage",
        [
            "version = 2",
            "state = 'odd'",
            "created_at = 'infinity'",
            "headers = 'not JSON'",
            "headers = NULL",
            "body = NULL",
            'scope = \'[["tenant","7"\'',
            'scope = \'[["tenant","\\u0000"],[]]\'',
            "attempt = 0",
            "omitted = 2",
        ],
    )
    def test_damage_hides_nobody_else(
        self, books: Books, caplog: pytest.LogCaptureFixture, damage: str
    ) -> None:
        """The record that makes no sense is left out of the list and named; the others are shown."""
        damaged = books.finish("damaged", an_outcome())
        books.finish("sound", an_outcome())
        books.execute(f"UPDATE retrysafe_records SET {damage} WHERE key = 'damaged'")
        for query in (Query(), Query(scope=(("tenant", "7"),))):
            assert books.keys(query) == ["sound"]
        assert damaged.id.hex()[:8] in warnings_of(caplog.records)[0]
        assert books.admin.statistics().total.size > 0
        assert books.admin.purge(10) == Purged(0)

    def test_a_state_that_nobody_knows_is_told(self, books: Books, caplog: pytest.LogCaptureFixture) -> None:
        """Statistics do not count it, and say so."""
        books.reserve("odd")
        books.execute("UPDATE retrysafe_records SET state = 'odd'")
        assert books.admin.statistics().total == Share({}, 0)
        assert "1 records are in a state" in warnings_of(caplog.records)[0]

    @pytest.mark.parametrize(
        ("kept", "asked", "found"),
        [
            ((("x[", ","), ("]y", "1")), (",", "],["), False),  # its text is a part of the other's
            ((('a"],["b', "c"),), ("b", "c"), False),
            ((('a"],["b', "c"),), ('a"],["b', "c"), True),
            ((("a\\", "b"), ("c", "d")), ("c", "d"), True),
            ((("a", ""), ("", "b")), ("", "b"), True),
            ((("a", "\0"),), ("a", "\0"), True),
            ((("a", "é\n:x %s %(y)s $1"),), ("a", "é\n:x %s %(y)s $1"), True),
        ],
    )
    def test_parts_of_a_scope_are_not_mistaken(
        self, books: Books, kept: tuple[tuple[str, str], ...], asked: tuple[str, str], found: bool
    ) -> None:
        """A part is found where it is a part, and not where its text happens to stand."""
        books.reserve("key", scope=kept)
        assert books.keys(Query(scope=(asked,))) == (["key"] if found else [])

    def test_an_age_beyond_all_calendars(self, books: Books) -> None:
        """Matches nothing or everything, and is no error."""
        books.reserve("key")
        assert books.keys(Query(older=1e300)) == []
        assert books.keys(Query(younger=1e300)) == ["key"]


class TestPurging:
    """In steps, past whatever is locked."""

    def test_a_locked_record_is_passed_over(self, books: Books) -> None:
        """Whoever claims or removes it has it; the purge neither waits nor fails, and finds it the next
        time."""
        for n in range(5):
            books.finish(f"key {n}", an_outcome())
        books.elapse(3600.0)
        with psycopg.connect(books.url) as holder:
            holder.execute("SELECT 1 FROM retrysafe_records WHERE key = 'key 2' FOR UPDATE")
            assert books.admin.purge(10).records == 4
        assert books.admin.purge(10).records == 1

    def test_each_step_is_a_commit_of_its_own(
        self, books: Books, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One that breaks off has removed what it said, and the entry is true; between two steps it rests."""
        for n in range(7):
            books.reserve(f"key {n}", lease=1.0)
        books.elapse(3600.0)
        monkeypatch.setattr(admin_module.ServerAdmin, "step", 3)
        rests: list[float] = []

        def rest(seconds: float) -> None:
            rests.append(seconds)
            if len(rests) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", rest)
        with pytest.raises(KeyboardInterrupt):
            books.admin.purge(100, NOTE)
        assert [entry.outcome for entry in books.admin.audit()] == ["6 records removed"]
        assert books.admin.expired() == 1
        assert len(warnings_of(caplog.records)) == 6, "what was never settled is named"
        assert min(rests) > 0


class TestBounds:
    """An operator waits, but not for ever."""

    def test_a_table_that_is_locked(self, books: Books) -> None:
        """Somebody alters it: lists give up in time, and work afterwards."""
        hasty = admin_at(books.url, deadline=0.2)
        assert hasty.list(Query()) == []
        with psycopg.connect(books.url) as holder:
            holder.execute("LOCK TABLE retrysafe_records IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailable, match="locked by another transaction"):
                hasty.list(Query())
        assert hasty.list(Query()) == []
        hasty.close()

    def test_a_walk_that_takes_too_long(self, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
        """The server breaks it off."""
        monkeypatch.setattr(admin_module, "WALK", 0.2)
        assert books.keys() == []
        books.execute("ALTER TABLE retrysafe_records RENAME TO slow")
        books.execute("CREATE VIEW retrysafe_records AS SELECT slow.* FROM slow, pg_sleep(60)")
        with pytest.raises(StoreUnavailable, match="too long"):
            books.keys()

    def test_a_server_that_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Frozen, it is given up; thawed, it is used again; killed and started anew, too."""
        monkeypatch.setattr(admin_module, "WALK", 0.2)
        with PostgresServer() as server:
            books = Books(server.new_database())
            assert books.keys() == []
            server.freeze()
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                books.keys()
            assert time.monotonic() - began < 30
            server.thaw()
            monkeypatch.setattr(admin_module, "WALK", 60.0)
            assert books.keys() == []
            server.kill()
            with pytest.raises(StoreUnavailable):
                books.keys()
            server.start()
            assert books.keys() == []
            books.close()

    def test_a_replica_can_be_looked_at(self, postgres: PostgresServer) -> None:
        """And nothing else: an intervention is refused with the reason."""
        with PostgresServer() as primary:
            books = Books(primary.new_database())
            seen = books.abandoned()
            with primary.replica() as replica:
                admin = admin_at(replica.url(books.url.rpartition("/")[2]))
                _until(lambda: len(admin.list(Query())) == 1)
                with pytest.raises(StoreUnavailable, match="primary"):
                    admin.release(seen, NOTE)
                assert admin.migrate().startswith("nothing to do")
                admin.close()
            books.close()


def migrate_at(url: str, barrier: object) -> str:
    """In a process of its own."""
    cast(threading.Barrier, barrier).wait()
    admin = admin_at(url)
    try:
        return admin.migrate()
    finally:
        admin.close()


class TestMigration:
    """The tables come to be once, whoever asks and however often."""

    def test_many_at_once(self, database: str) -> None:
        """Eight processes begin at the same moment: one makes the tables, seven find nothing to do."""
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager, context.Pool(8) as pool:
            barrier = manager.Barrier(8)
            said = pool.starmap(migrate_at, [(database, barrier)] * 8)
        assert sorted(text.partition(" ")[0] for text in said) == ["created"] + ["nothing"] * 7

    def test_somebody_else_is_at_it(self, database: str) -> None:
        """The lock is waited for, and not for ever."""
        hasty = admin_at(database, deadline=0.2)
        lock = load("postgresql")["migration_lock"]
        with psycopg.connect(database) as holder:
            holder.execute(lock.encode())
            with pytest.raises(StoreUnavailable, match="locked by another transaction"):
                hasty.migrate()
        assert hasty.migrate().startswith("created")
        hasty.close()

    def test_what_is_missing_is_made(self, books: Books) -> None:
        """By name; what is there stays as it is."""
        books.reserve("key")
        books.execute("DROP TABLE retrysafe_audit")
        books.execute("DROP INDEX retrysafe_records_expires_at")
        books.admin.close()
        with pytest.raises(SchemaMismatch, match="retrysafe_audit is missing"):
            books.keys()
        assert books.admin.migrate() == "created retrysafe_audit, retrysafe_records_expires_at"
        assert books.admin.migrate() == "nothing to do: the tables have all migrations up to 5"
        assert books.keys() == ["key"]

    def test_tables_without_a_version(self, books: Books) -> None:
        """Made by a migration of somebody's own: ours, if they have all that ours have."""
        books.execute("DELETE FROM retrysafe_meta")
        books.admin.close()
        with pytest.raises(SchemaMismatch, match="migrate"):
            books.keys()
        assert books.admin.migrate() == "created version 1 in retrysafe_meta"
        books.execute("DELETE FROM retrysafe_meta")
        books.execute("ALTER TABLE retrysafe_records DROP COLUMN mode")
        with pytest.raises(SchemaMismatch, match=r"retrysafe_records\.mode"):
            books.admin.migrate()

    @pytest.mark.parametrize(
        ("version", "advice"),
        [("7", "upgrade retrysafe"), ("0", "use the release"), ("x", "use the release")],
    )
    def test_another_version(self, books: Books, version: str, advice: str) -> None:
        """Newer, older or nonsense: nothing is touched, and it is said what to do."""
        books.execute("UPDATE retrysafe_meta SET value = %s WHERE name = 'schema'", [version])
        books.admin.close()
        for act in (books.keys, books.admin.migrate, books.admin.statistics):
            with pytest.raises(SchemaMismatch, match=advice):
                act()
        assert books.execute("SELECT value FROM retrysafe_meta WHERE name = 'schema'") == [(version,)]

    def test_a_vital_table_is_gone(self, books: Books) -> None:
        """Nobody pretends that there never were any records."""
        books.execute("DROP TABLE retrysafe_records")
        with pytest.raises(SchemaMismatch, match="backup"):
            books.admin.migrate()

    def test_a_role_that_may_not_make_tables(self, books: Books, postgres: PostgresServer) -> None:
        """Is told who can; and finds nothing to do where somebody did."""
        role = f"clerk_{books.url.rpartition('_')[2]}"
        books.execute(f"CREATE ROLE {role} LOGIN")
        theirs = books.url.replace("postgres@", f"{role}@")
        try:
            admin = admin_at(theirs)
            with pytest.raises(StoreUnavailable, match="lists the permissions"):
                admin.list(Query())
            books.execute(f"GRANT SELECT ON retrysafe_meta, retrysafe_records TO {role}")
            assert admin.migrate().startswith("nothing to do")
            assert admin.list(Query()) == []
            admin.close()
            empty = postgres.new_database()
            admin = admin_at(empty.replace("postgres@", f"{role}@"))
            with pytest.raises(StoreUnavailable, match="retrysafe sql"):
                admin.migrate()
            admin.close()
            postgres.drop_database(empty)
        finally:
            books.execute(f"DROP OWNED BY {role}")
            books.execute(f"DROP ROLE {role}")


def _waiting(books: Books) -> int:
    [(number,)] = books.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
        "current_database()"
    )
    return cast(int, number)


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)
