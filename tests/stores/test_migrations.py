"""Migrations: a database of the release before is brought up to date while it is used, and loses nothing."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import psycopg
import pytest

from retrysafe import stores
from retrysafe._core.model import Found, Reserved
from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.admin import Place, Query
from retrysafe.stores.contract import Store
from retrysafe.stores.sql import keeper as keeper_module
from retrysafe.stores.sql import schema
from retrysafe.stores.sql.migrations import Migration, columns_of_table, migrations
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.stores.sql.statements import load
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import ended

DIALECTS = ("sqlite", "postgresql")

COLUMNS = (
    "id, version, token, fingerprint, state, mode, attempt, lease_until, checkpointed, door, scope, key, "
    "action, target, request_id, correlation_id, created_at, updated_at, completed_at, expires_at, "
    "held_until, status, headers, body, omitted"
)
"""Those that the release before names in all its statements."""

_NOW = "CAST(strftime('%s', 'now') AS REAL)"


class Before(Protocol):
    """A database as the release before left it, and a service of that release."""

    url: str

    def execute(self, sql: str, *values: object) -> list[Any]: ...
    def request(self, key: str) -> None:
        """Reserve a key and finish it, with the statements of that release."""
        ...


class BeforeSQLite:
    def __init__(self, path: Path, applied: int = 1) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        # As a service left it: with its clock, which counts from the boot.
        with closing(stores.open(self.url)) as store:
            store.look(b"nothing")
        clock = self.execute("SELECT name, value FROM retrysafe_meta WHERE name IN ('boot', 'offset')")
        for table in schema.TABLES:
            self.execute(f"DROP TABLE {table}")
        for statement in [each for one in migrations("sqlite")[:applied] for each in one.statements]:
            self.execute(statement)
        for name, value in clock:
            self.execute("INSERT INTO retrysafe_meta VALUES (?, ?)", name, value)

    def execute(self, sql: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=20.0)) as connection:
            return connection.execute(sql, values).fetchall()

    def request(self, key: str) -> None:
        claim = a_claim(key)
        self.execute(
            f"INSERT INTO retrysafe_records ({COLUMNS}) VALUES (?, 1, ?, ?, 'in_progress', 'lease', 1, "
            f"{_NOW} + 30.0, 0, 'request', '[[\"tenant\",\"7\"]]', ?, 'POST', '/orders', 'r', NULL, "
            f"{_NOW}, {_NOW}, NULL, {_NOW} + 3600.0, {_NOW}, NULL, NULL, NULL, 0)",
            claim.id,
            claim.token,
            claim.fingerprint,
            key,
        )
        self.execute(
            f"UPDATE retrysafe_records SET state = 'completed', completed_at = {_NOW}, status = 201, "
            "headers = '[]', body = ?, omitted = 0 WHERE id = ? AND token = ?",
            key.encode(),
            claim.id,
            claim.token,
        )


class BeforePostgres:
    def __init__(self, url: str, applied: int = 1) -> None:
        self.url = url
        for statement in [each for one in migrations("postgresql")[:applied] for each in one.statements]:
            self.execute(statement)

    def execute(self, sql: str, *values: object) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def request(self, key: str) -> None:
        claim = a_claim(key)
        self.execute(
            f"INSERT INTO retrysafe_records ({COLUMNS}) VALUES (%s, 1, %s, %s, 'in_progress', 'lease', 1, "
            "now() + interval '30 s', 0, 'request', '[[\"tenant\",\"7\"]]', %s, 'POST', '/orders', 'r', "
            "NULL, now(), now(), NULL, now() + interval '1 h', now(), NULL, NULL, NULL, 0)",
            claim.id,
            claim.token,
            claim.fingerprint,
            key,
        )
        self.execute(
            "UPDATE retrysafe_records SET state = 'completed', completed_at = now(), status = 201, "
            "headers = '[]', body = %s, omitted = 0 WHERE id = %s AND token = %s",
            key.encode(),
            claim.id,
            claim.token,
        )


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Before:
    if request.param == "sqlite":
        return BeforeSQLite(tmp_path / "keys.db")
    return BeforePostgres(request.getfixturevalue("database"))


@pytest.fixture
def store(before: Before) -> Iterator[Store]:
    store = stores.open(before.url, deadline=20.0)
    yield store
    store.close()


def replays(store: Store, key: str) -> bool:
    found = store.reserve(a_claim(key))
    return (
        isinstance(found, Found)
        and found.record.response is not None
        and found.record.response.body == key.encode()
    )


class Load:
    """A service of the release before, which goes on."""

    def __init__(self, before: Before) -> None:
        self.keys: list[str] = []
        self._before = before
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._error: BaseException | None = None

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            while not self._over.is_set():
                key = f"key-{len(self.keys)}"
                self._before.request(key)
                self.keys.append(key)
        except BaseException as error:  # noqa: BLE001 - raised at the end
            self._error = error

    def until(self, more: int) -> None:
        """Wait for so many more requests."""
        wanted = len(self.keys) + more
        while len(self.keys) < wanted and self._error is None:
            self._over.wait(0.001)


def test_under_load(before: Before, store: Store) -> None:
    """By an operator, while a service of the release before runs: it goes on without an error, before and
    after, and every record of its replays."""
    with Load(before) as load:
        load.until(20)
        with closing(store.open_admin()) as admin:
            done = admin.migrate()
            assert "applied migration 2 (details and deliveries)" in done
            assert "retrysafe_records_subject" in done
            load.until(20)
            assert admin.migrate().startswith("nothing to do")
            load.until(1)
    assert all(replays(store, key) for key in load.keys)
    record = store.look(a_claim("key-0").id)
    assert record is not None
    assert (record.record.details, record.record.deliveries) == ((), 1)


def test_by_a_service(before: Before, store: Store) -> None:
    """The first one of the new release that opens the store does it, all but the index, and goes on."""
    with Load(before) as load:
        load.until(5)
        assert store.reserve(a_claim("new")._replace(details=(("run", "9"),))) == Reserved(1)
        assert store.finish(a_claim("other"), an_outcome()) is False
        load.until(5)
    assert all(replays(store, key) for key in load.keys)
    with closing(store.open_admin()) as admin:
        assert admin.migrate() == "created retrysafe_records_subject, retrysafe_records_due_at"


def test_an_operator_does_not_change_tables_by_looking(before: Before, store: Store) -> None:
    """They are told what to run."""
    before.request("old")
    with closing(store.open_admin()) as admin:
        with pytest.raises(SchemaMismatch, match=r"earlier release \(migration 2.*retrysafe migrate"):
            admin.list(Query())
        found = {finding.check: finding for finding in admin.diagnose()}["schema"]
        assert found.level == "problem"
        assert "migration 2" in found.found
        admin.migrate()
        assert [sighting.record.key for sighting in admin.list(Query())] == ["old"]


def test_tables_that_appear_between_two_looks(before: Before, store: Store) -> None:
    """Another service has migrated since this one looked for tables: they were not removed."""
    dialect = "sqlite" if before.url.startswith("sqlite") else "postgresql"
    looks: list[str] = []

    def ask(name: str) -> list[Any]:
        rows = before.execute(load(dialect)[name])
        if not looks:
            with closing(store.open_admin()) as admin:
                admin.migrate()
        looks.append(name)
        return rows

    before.request("old")
    found = schema.plan(ask, dialect)
    assert looks[0] == "existing_tables"
    assert (found.is_new, found.tables, found.changes, found.statements) == (False, [], [], [])


def test_many_services_at_once(before: Before) -> None:
    """They start together: one does it, and none fails."""
    before.request("old")
    all = [stores.open(before.url, deadline=20.0) for _ in range(8)]
    results: list[bool] = []
    threads = [threading.Thread(target=lambda one=one: results.append(replays(one, "old"))) for one in all]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in all:
        one.close()
    assert results == [True] * 8


def test_tables_of_a_later_release_are_used(before: Before, store: Store) -> None:
    """Migrations only add, so this release works with tables that have more of them, and does not set their
    number back."""
    with closing(store.open_admin()) as admin:
        admin.migrate()
    before.execute("UPDATE retrysafe_meta SET value = '9' WHERE name = 'migration'")
    before.execute("ALTER TABLE retrysafe_records ADD COLUMN later integer DEFAULT 1")
    with closing(stores.open(before.url, deadline=20.0)) as again, closing(again.open_admin()) as admin:
        assert again.reserve(a_claim("new")) == Reserved(1)
        assert admin.migrate().startswith("nothing to do")
    assert str(before.execute("SELECT value FROM retrysafe_meta WHERE name = 'migration'")[0][0]) == "9"


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE retrysafe_meta SET value = 'x' WHERE name = 'migration'", "migration 'x'"),
        ("ALTER TABLE retrysafe_records DROP COLUMN details", r"retrysafe_records\.details is missing"),
    ],
)
def test_damage(before: Before, store: Store, damage: str, found: str) -> None:
    """A number that is none, a column that the number says is there: refused, and nothing is changed."""
    with closing(store.open_admin()) as admin:
        admin.migrate()
    before.execute(damage)
    with closing(stores.open(before.url, deadline=20.0)) as again:
        with pytest.raises(SchemaMismatch, match=found):
            again.reserve(a_claim())
        with closing(again.open_admin()) as admin, pytest.raises(SchemaMismatch, match=found):
            admin.migrate()


def test_a_table_in_use_is_waited_for(database: str) -> None:
    """A transaction that has used the table delays the change, and requests wait behind it for a moment only;
    an operator tries again until it is over."""
    before = BeforePostgres(database)
    before.request("old")
    with psycopg.connect(database) as reader:
        reader.execute("SELECT 1 FROM retrysafe_records")
        with closing(stores.open(database, deadline=5.0)) as service:
            with pytest.raises(StoreUnavailable, match="lock timeout"):
                service.reserve(a_claim("new"))
            before.request("meanwhile")  # nothing is left that would block it
            with closing(service.open_admin()) as admin:
                made: list[str] = []
                operator = threading.Thread(target=lambda: made.append(admin.migrate()))
                operator.start()
                before.request("later")
                reader.rollback()
                operator.join()
                assert "applied migration 2" in made[0]
            assert replays(service, "old")
            assert replays(service, "meanwhile")


def test_a_role_that_may_not_alter_tables(database: str) -> None:
    """Is told what is missing and what to run."""
    before = BeforePostgres(database)
    role = f"service_{database.rpartition('_')[2]}"
    before.execute(f"CREATE ROLE {role} LOGIN")
    before.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    theirs = database.replace("postgres@", f"{role}@")
    try:
        with closing(stores.open(theirs, deadline=20.0)) as store:
            with pytest.raises(SchemaMismatch, match=r"lack migration 2.*retrysafe migrate"):
                store.reserve(a_claim())
            with closing(stores.open(database)) as owner, closing(owner.open_admin()) as admin:
                admin.migrate()
            assert store.reserve(a_claim()) == Reserved(1)
    finally:
        before.execute(f"DROP OWNED BY {role}")
        before.execute(f"DROP ROLE {role}")


def test_an_index_that_broke_off_is_built_again(database: str) -> None:
    """A concurrent build that was interrupted leaves an index behind which is not valid."""
    with closing(stores.open(database)) as store, closing(store.open_admin()) as admin:
        admin.migrate()
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "UPDATE pg_index SET indisvalid = false "
                "WHERE indexrelid = 'retrysafe_records_subject'::regclass"
            )
        assert admin.migrate() == "created retrysafe_records_subject"
        assert admin.migrate().startswith("nothing to do")


# --- a table of which a service is in no need


ROUTES = {"sqlite": 4, "postgresql": 5}
"""The migration that creates it."""

ADD_VERDICT = (
    "INSERT INTO retrysafe_verdicts (verdict, count, since) VALUES ('completed', 7, {now}) "
    "ON CONFLICT (verdict) DO UPDATE SET count = retrysafe_verdicts.count + 7"
)
"""As services of the release before count."""


class WithoutRoutes:
    """A database that lacks `retrysafe_routes` alone."""

    def __init__(self, dialect: str, before: Before) -> None:
        self.dialect = dialect
        self.url = before.url
        self.execute = before.execute
        self.change = f"migration {ROUTES[dialect]} (routes)"

    def count_as_before(self) -> None:
        self.execute(ADD_VERDICT.format(now=_NOW if self.dialect == "sqlite" else "now()"))

    def has_table(self) -> bool:
        try:
            self.execute("SELECT * FROM retrysafe_routes")
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return False
        return True

    def open(self, migrated_by: str | None = None) -> Store:
        if self.dialect == "sqlite":
            return SQLiteStore(self.url.removeprefix("sqlite:///"), deadline=20.0, migrated_by=migrated_by)
        return PostgresStore(self.url, deadline=20.0, migrated_by=migrated_by)


@pytest.fixture(params=DIALECTS)
def without_routes(request: pytest.FixtureRequest, tmp_path: Path) -> WithoutRoutes:
    applied = ROUTES[request.param] - 1
    if request.param == "sqlite":
        return WithoutRoutes("sqlite", BeforeSQLite(tmp_path / "keys.db", applied))
    return WithoutRoutes("postgresql", BeforePostgres(request.getfixturevalue("database"), applied))


def count(store: Store, verdicts: dict[str, int]) -> None:
    """As a service does that has just begun to count."""
    with closing(store.open_keeper()) as keeper:
        keeper.count(ended(verdicts))


def test_calls_are_counted_by_route(without_routes: WithoutRoutes) -> None:
    """By the first service of the release that finds the tables; one of the release before goes on counting
    by verdict, and an operator sees the sum."""
    without_routes.count_as_before()
    with closing(without_routes.open()) as store, closing(store.open_admin()) as admin:
        count(store, {"completed": 1, "keyless": 2})
        without_routes.count_as_before()
        count(store, {"completed": 1})
        found = admin.statistics()
        assert found.verdicts == {"completed": 16, "keyless": 2}
        assert {place: calls.verdicts for place, calls in found.calls.items()} == {
            Place("request", "/orders", ""): {"completed": 2, "keyless": 2}
        }
        assert found.counted_since is not None
        assert found.counted_since < found.calls[Place("request", "/orders", "")].since + 1.0


def test_an_operator_works_without_it(without_routes: WithoutRoutes) -> None:
    """And does not create it by looking: that takes a service, or `migrate`, as the doctor says."""
    without_routes.count_as_before()
    with closing(without_routes.open()) as store, closing(store.open_admin()) as admin:
        assert admin.list(Query()) == []
        found = admin.statistics()
        assert (found.verdicts, found.calls) == ({"completed": 7}, {})
        finding = {finding.check: finding for finding in admin.diagnose()}["schema"]
        assert finding.level == "warning"
        assert f"{without_routes.change} is missing" in finding.found
        assert "calls are not counted by route" in finding.found
        assert not without_routes.has_table()
        assert admin.migrate() == f"applied {without_routes.change}"
        assert {finding.check: finding.level for finding in admin.diagnose()}["schema"] == "ok"
        assert admin.statistics().verdicts == {"completed": 7}


def test_one_that_was_removed_is_missed(without_routes: WithoutRoutes) -> None:
    """Once it was there, it is a table like any other."""
    with closing(without_routes.open()) as store, closing(store.open_admin()) as admin:
        admin.migrate()
    without_routes.execute("DROP TABLE retrysafe_routes")
    with closing(without_routes.open()) as store, closing(store.open_admin()) as admin:
        with pytest.raises(SchemaMismatch, match=r"retrysafe_routes is missing.*retrysafe migrate"):
            store.reserve(a_claim())
        with pytest.raises(SchemaMismatch, match="retrysafe_routes is missing"):
            admin.list(Query())
        assert {finding.check: finding.level for finding in admin.diagnose()}["schema"] == "problem"
        assert admin.migrate() == "created retrysafe_routes"
        assert store.reserve(a_claim()) == Reserved(1)


def test_it_is_left_to_a_framework(without_routes: WithoutRoutes, caplog: pytest.LogCaptureFixture) -> None:
    """A service whose framework applies the migrations does not create it: it says so once, works, and counts
    by verdict.  Tables that a framework has emptied, as Django's `flush` does, are marked again."""
    with closing(without_routes.open("manage.py migrate")) as store:
        assert store.reserve(a_claim()) == Reserved(1)
        count(store, {"completed": 1})
        count(store, {"completed": 1})
        with closing(store.open_admin()) as admin:
            assert admin.statistics().verdicts == {"completed": 2}
    assert not without_routes.has_table()
    said = [line for line in caplog.messages if without_routes.change in line]
    assert len(said) == 1
    assert "run `manage.py migrate`" in said[0]
    assert "calls are not counted by route" in said[0]
    caplog.clear()
    with closing(without_routes.open()) as store, closing(store.open_admin()) as admin:
        admin.migrate()
    without_routes.execute("DELETE FROM retrysafe_meta WHERE name IN ('schema', 'migration')")
    with closing(without_routes.open("manage.py migrate")) as store:
        assert store.reserve(a_claim("other")) == Reserved(1)
        count(store, {"completed": 1})
        with closing(store.open_admin()) as admin:
            assert [*admin.statistics().calls] == [Place("request", "/orders", "")]
    assert caplog.messages == []


class Clerk:
    """A role that has the rights to work, and none to create anything."""

    def __init__(self, owner: BeforePostgres) -> None:
        self.owner = owner
        self.name = f"clerk_{owner.url.rpartition('_')[2]}"
        self.url = owner.url.replace("postgres@", f"{self.name}@")
        owner.execute(f"CREATE ROLE {self.name} LOGIN")
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        self.grant("ALL ON ALL TABLES IN SCHEMA public")
        self.grant("ALL ON ALL SEQUENCES IN SCHEMA public")

    def grant(self, rights: str) -> None:
        self.owner.execute(f"GRANT {rights} TO {self.name}")

    def drop(self) -> None:
        self.owner.execute(f"DROP OWNED BY {self.name}")
        self.owner.execute(f"DROP ROLE {self.name}")


@pytest.fixture
def clerk(database: str) -> Iterator[Clerk]:
    clerk = Clerk(BeforePostgres(database, ROUTES["postgresql"] - 1))
    yield clerk
    clerk.drop()


def test_a_role_that_may_not_create_it(clerk: Clerk, caplog: pytest.LogCaptureFixture) -> None:
    """It works, counts by verdict and says once what is missing; then what it lacks, once the owner has
    migrated the tables; and counts by route as soon as it may, without being started again."""
    keeper_module._say_what_is_not_permitted.cache_clear()
    with (
        closing(stores.open(clerk.url, deadline=20.0)) as store,
        closing(store.open_keeper()) as keeper,
        closing(store.open_admin()) as admin,
        pytest.MonkeyPatch.context() as patch,
    ):
        assert store.reserve(a_claim()) == Reserved(1)
        keeper.count(ended({"completed": 1}))
        [said] = [line for line in caplog.messages if "retrysafe_routes" in line or "routes" in line]
        assert "lacks migration 5 (routes), and this role may not apply it" in said
        assert "calls are not counted by route" in said
        assert (admin.statistics().verdicts, admin.statistics().calls) == ({"completed": 1}, {})

        patch.setattr(keeper_module, "_ASK_AGAIN", 0.0)
        keeper.count(ended({"completed": 1}))
        caplog.clear()
        with closing(stores.open(clerk.owner.url)) as owner, closing(owner.open_admin()) as by_owner:
            assert by_owner.migrate() == "applied migration 5 (routes)"
        patch.setattr(keeper_module, "monotonic", lambda: monotonic() + 600.0)
        for _ in range(3):
            keeper.count(ended({"completed": 1}))
        assert [
            line for line in caplog.messages if "permission on retrysafe_routes" in line
        ] == caplog.messages
        assert len(caplog.messages) == 1
        assert (admin.statistics().verdicts, admin.statistics().calls) == ({"completed": 5}, {})
        finding = {finding.check: finding for finding in admin.diagnose()}["rights"]
        assert finding.level == "warning"
        assert "SELECT, INSERT, UPDATE on retrysafe_routes: everything works" in finding.found
        assert "do not count calls by route" in finding.found

        clerk.grant("SELECT, INSERT, UPDATE ON retrysafe_routes")
        keeper.count(ended({"completed": 1, "keyless": 1}))
        found = admin.statistics()
        assert found.verdicts == {"completed": 6, "keyless": 1}
        assert found.calls[Place("request", "/orders", "")].verdicts == {"completed": 1, "keyless": 1}
        assert {finding.check: finding.level for finding in admin.diagnose()}["rights"] == "ok"


def test_a_role_may_note_what_was_created_for_it(clerk: Clerk, caplog: pytest.LogCaptureFixture) -> None:
    """By Alembic's autogenerate, say, which creates the table and writes no number: nothing is created any
    more, so it takes no right to."""
    create, _ = migrations("postgresql")[ROUTES["postgresql"] - 1].statements
    clerk.owner.execute(create)
    clerk.grant("ALL ON retrysafe_routes")
    with closing(stores.open(clerk.url, deadline=20.0)) as store:
        count(store, {"completed": 1})
        with closing(store.open_admin()) as admin:
            assert [*admin.statistics().calls] == [Place("request", "/orders", "")]
            assert admin.migrate().startswith("nothing to do")
    assert caplog.messages == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_files(dialect: str) -> None:
    """Numbered without a gap, each with its number in it, and each statement one that the runner knows."""
    found = migrations(dialect)
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    for each in found[1:]:
        assert any(f"'migration', {mark}" in each.source for mark in (each.number, f"'{each.number}'"))
        for statement in each.statements:
            assert statement.startswith(
                (
                    "ALTER TABLE retrysafe_",
                    "CREATE TABLE IF NOT EXISTS retrysafe_",
                    "CREATE INDEX IF NOT EXISTS",
                    "CREATE OR REPLACE FUNCTION retrysafe_",
                    "INSERT INTO retrysafe_meta",
                )
            ), statement


def test_a_key_of_several_columns_is_no_column() -> None:
    """Nor are its columns named twice."""
    statement = "CREATE TABLE IF NOT EXISTS t (\n    a text,\n    b text,\n    PRIMARY KEY (a, b)\n)"
    assert columns_of_table(statement) == [("t", "a"), ("t", "b")]


def test_a_body_between_dollar_signs_is_one_statement() -> None:
    """And a semicolon in a comment ends none."""
    source = "-- a; b\nSELECT 1; -- c\nCREATE FUNCTION f() AS $body$ BEGIN x; y; END $body$ LANGUAGE sql;\n"
    assert Migration(1, "", source).statements == [
        "SELECT 1",
        "CREATE FUNCTION f() AS $body$ BEGIN x; y; END $body$ LANGUAGE sql",
    ]
