"""The operator's end of an SQLite file: what it never makes, what it shows of damage, how it writes."""

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from retrysafe._core.model import Inbox, Record
from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.admin import Admin, Query
from retrysafe.stores.sql.schema import TABLES, index_statements
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.stores.sql.sqlite import admin as admin_module
from retrysafe.stores.sql.sqlite.connection import Connection
from retrysafe.testing import ManualClock
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import the_record
from retrysafe.testing.stores.interventions import NOTE, Act, release, resolve


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path, deadline=20.0, clock=clock)
    yield store
    store.close()


@pytest.fixture
def admin(store: SQLiteStore) -> Iterator[Admin]:
    """The operator's end."""
    admin = store.open_admin()
    admin.migrate()
    yield admin
    admin.close()


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def abandoned(store: SQLiteStore, clock: ManualClock, key: str = "key") -> Record:
    claim = a_claim(key)
    store.reserve(claim)
    clock.elapse(30.0)
    return the_record(store, claim)


class TestFiles:
    """Whoever looks makes nothing."""

    def test_a_mistyped_path_makes_no_file(self, store: SQLiteStore, path: Path) -> None:
        """Neither a look nor an intervention does, and the message says what would."""
        admin = store.open_admin()
        for attempt in (lambda: admin.list(Query()), admin.statistics, lambda: admin.purge(1), admin.audit):
            with pytest.raises(StoreUnavailable, match=r"keys\.db does not exist.*migrate"):
                attempt()
        admin.close()
        assert list(path.parent.iterdir()) == []

    def test_somebody_elses_database_is_left_alone(self, store: SQLiteStore, path: Path) -> None:
        """It gets no tables and no log."""
        execute(path, "CREATE TABLE theirs (a)")
        admin = store.open_admin()
        with pytest.raises(SchemaMismatch, match="has no tables of retrysafe"):
            admin.list(Query())
        admin.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
            assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]

    def test_migrate_makes_what_is_missing(self, store: SQLiteStore, path: Path) -> None:
        """All of it, or the one thing, and says so; again there is nothing to do."""
        admin = store.open_admin()
        assert admin.migrate() == f"created {', '.join((*TABLES, *index_statements('sqlite')))}"
        assert "nothing to do" in admin.migrate()
        store.reserve(a_claim())
        execute(path, "DROP TABLE retrysafe_audit", "DROP INDEX retrysafe_records_expires_at")
        with pytest.raises(SchemaMismatch, match=r"retrysafe_audit is missing.*migrate"):
            admin.list(Query())
        assert admin.migrate() == "created retrysafe_audit, retrysafe_records_expires_at"
        assert len(admin.list(Query())) == 1, "and what was there is there"
        admin.close()

    @pytest.mark.parametrize("table", ["retrysafe_records", "retrysafe_meta"])
    def test_migrate_does_not_hide_a_loss(self, store: SQLiteStore, path: Path, table: str) -> None:
        """Records that vanished are not replaced by an empty table."""
        admin = store.open_admin()
        admin.migrate()
        execute(path, f"DROP TABLE {table}")
        with pytest.raises(SchemaMismatch, match=f"{table} is missing"):
            admin.migrate()
        admin.close()

    def test_migrate_leaves_other_versions_alone(self, store: SQLiteStore, path: Path) -> None:
        """Nothing is added to what a newer release made."""
        admin = store.open_admin()
        admin.migrate()
        execute(path, "UPDATE retrysafe_meta SET value = 2", "DROP TABLE retrysafe_audit")
        with pytest.raises(SchemaMismatch, match="version 2"):
            admin.migrate()
        admin.close()
        with closing(sqlite3.connect(path)) as connection:
            assert (
                connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'retrysafe_audit'").fetchall()
                == []
            )

    def test_the_schema_can_be_applied_by_hand(self, store: SQLiteStore, path: Path) -> None:
        """What is printed makes a database that the store takes for its own."""
        admin = store.open_admin()
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(admin.schema())
        assert "nothing to do" in admin.migrate()
        claim = a_claim()
        store.reserve(claim)
        assert admin.list(Query())[0].record == the_record(store, claim)
        admin.close()

    def test_a_lock_stops_no_look(self, store: SQLiteStore, path: Path, clock: ManualClock) -> None:
        """While somebody sits on the write lock, whatever reads goes on; what writes is refused in time."""
        abandoned(store, clock)
        store.close()
        hasty = SQLiteStore(path, deadline=0.2, clock=clock).open_admin()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            [sighting] = hasty.list(Query())
            assert hasty.statistics().total.records == {"abandoned": 1}
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                hasty.release(sighting.record, NOTE)
        assert hasty.release(sighting.record, NOTE) is True
        hasty.close()


class TestDamage:
    """A damaged row hides neither itself nor the others."""

    @pytest.mark.parametrize(
        "damage",
        [
            "scope = 'nonsense'",
            "target = CAST(x'736563726574ff' AS TEXT)",
            "state = 'finished'",
            "version = 2",
            "created_at = 'yesterday'",
            "body = 'text'",
            "headers = '{}'",
        ],
    )
    def test_the_others_are_shown(
        self, store: SQLiteStore, admin: Admin, path: Path, caplog: pytest.LogCaptureFixture, damage: str
    ) -> None:
        """A warning names the record and what is wrong with it, and quotes nothing."""
        for key in ("bad", "good"):
            claim = a_claim(key)
            store.reserve(claim)
            store.finish(claim, an_outcome())
        bad = a_claim("bad").id.hex()
        execute(path, f"UPDATE retrysafe_records SET {damage} WHERE key = 'bad'")
        queries = (
            Query(),
            Query(standings=frozenset({"completed", "failed"})),
            Query(scope=(("tenant", "7"),)),
        )
        for query in queries:
            assert [sighting.record.key for sighting in admin.list(query)] == ["good"]
        assert [sighting.record.key for sighting in admin.find(Query())] == ["good"]
        assert bad[:8] in caplog.text
        assert damage.split(" ")[0] in caplog.text
        assert "secret" not in caplog.text
        admin.statistics()

    def test_the_others_are_handled(
        self, store: SQLiteStore, admin: Admin, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """However many damaged ones have been due for longer."""
        for key in (*(f"bad {number}" for number in range(20)), "good", "another"):
            store.reserve(a_claim(key)._replace(door="callback", lease=0.0, inbox=Inbox(b"{}", 0.0)))
        execute(path, "UPDATE retrysafe_records SET scope = 'nonsense' WHERE key LIKE 'bad%'")
        assert [due.record.key for due in admin.due(a_claim().action, 1)] == ["good"]
        assert [due.record.key for due in admin.due(a_claim().action, 10)] == ["good", "another"]
        assert "20 records are not handled, because they cannot be read" in caplog.text

    def test_statistics_say_what_they_leave_out(
        self, store: SQLiteStore, admin: Admin, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A state that nobody knows is in no number, and not passed over in silence."""
        for key in ("state", "scope", "good"):
            store.reserve(a_claim(key))
        execute(
            path,
            "UPDATE retrysafe_records SET state = 'finished' WHERE key = 'state'",
            "UPDATE retrysafe_records SET scope = 'nonsense' WHERE key = 'scope'",
        )
        found = admin.statistics()
        assert found.total.records == {"in_progress": 2}
        assert list(found.by_scope) == [a_claim().scope]
        assert "1 records are in a state that this release does not know" in caplog.text
        assert "1 records are not counted by scope" in caplog.text

    def test_a_damaged_entry_is_shown(
        self,
        store: SQLiteStore,
        admin: Admin,
        path: Path,
        clock: ManualClock,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Who did it and why is more important than the scope."""
        admin.release(abandoned(store, clock), NOTE)
        execute(path, "UPDATE retrysafe_audit SET scope = 'nonsense'")
        [entry] = admin.audit()
        assert (entry.by, entry.scope) == (NOTE.by, ())
        assert "without its scope" in caplog.text

    def test_an_odd_scope_is_not_mistaken(self, store: SQLiteStore, admin: Admin) -> None:
        """Text that looks like a part, across the borders of two others, is none."""
        store.reserve(a_claim()._replace(scope=(("x,[", ","), ("]", "z"))))
        assert admin.list(Query(scope=((",", "],["),))) == []
        assert len(admin.list(Query(scope=(("]", "z"),)))) == 1


class TestInterventions:
    """The change and its entry: both or neither."""

    @pytest.mark.parametrize("table", ["retrysafe_audit", "retrysafe_records"])
    @pytest.mark.parametrize("act", [release, resolve])
    def test_neither_without_the_other(
        self, store: SQLiteStore, admin: Admin, path: Path, clock: ManualClock, table: str, act: Act
    ) -> None:
        """Whichever of both fails, the record is as it was and nothing is written down."""
        seen = abandoned(store, clock)
        events = ("INSERT",) if table == "retrysafe_audit" else ("UPDATE", "DELETE")
        for event in events:
            refuse = "BEGIN SELECT RAISE(ABORT, 'not now'); END"
            execute(path, f"CREATE TRIGGER no_{event} AFTER {event} ON {table} {refuse}")
        with pytest.raises(StoreUnavailable, match="not now"):
            act(admin, seen)
        assert the_record(store, a_claim()) == seen
        assert admin.audit() == []
        execute(path, *(f"DROP TRIGGER no_{event}" for event in events))
        assert admin.release(seen, NOTE) is True, "the connection is none the worse for it"
        assert len(admin.audit()) == 1

    def test_statistics_are_of_one_moment(self, store: SQLiteStore, path: Path, clock: ManualClock) -> None:
        """What is written while they are taken is in none of their numbers, and does not wait for them."""
        store.reserve(a_claim("before"))
        with closing(Connection(str(path), "admin", clock, 20.0)) as connection:
            with connection.snapshot():
                [first] = connection.query("totals", now=clock())
                store.reserve(a_claim("meanwhile"))
                [second] = connection.query("totals", now=clock())
            assert first == second
            with connection.snapshot():
                assert connection.query("totals", now=clock()) != [first]


class TestPurge:
    """It takes turns, and its entry is true whenever it breaks off."""

    @pytest.fixture
    def expired(self, store: SQLiteStore, path: Path, clock: ManualClock) -> None:
        """Five steps of a purge."""
        store.reserve(a_claim("0"))
        with closing(sqlite3.connect(path)) as connection, connection:
            columns = [row[1] for row in connection.execute("PRAGMA table_info(retrysafe_records)")]
            others = ", ".join(columns[1:])
            connection.executemany(
                f"INSERT INTO retrysafe_records (id, {others}) "
                f"SELECT ?, {others} FROM retrysafe_records LIMIT 1",
                [(os.urandom(32),) for _ in range(999)],
            )
        clock.elapse(3600.0)

    @pytest.mark.usefixtures("expired")
    def test_it_rests_while_others_write(
        self, store: SQLiteStore, admin: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In proportion to what it took of their time; else just long enough for them to be noticed."""
        naps: list[float] = []
        busy = False

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            if busy and seconds == admin_module._TURN:
                store.reserve(a_claim(str(len(naps))))

        monkeypatch.setattr(admin_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        assert admin.purge(400).records == 400
        assert naps == [admin_module._TURN, admin_module._TURN]
        naps.clear()
        busy = True
        began = time.monotonic()
        assert admin.purge(400).records == 400
        took = time.monotonic() - began
        assert naps[0::2] == [admin_module._TURN, admin_module._TURN]
        assert len(naps) == 4
        assert all(0 < nap <= admin_module._REST * took for nap in naps[1::2])

    @pytest.mark.usefixtures("expired")
    def test_an_interrupted_purge_is_written_down(
        self, store: SQLiteStore, admin: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With what it had removed by then."""

        def interrupt(_seconds: float) -> None:
            if admin.expired() <= 600:
                raise KeyboardInterrupt

        monkeypatch.setattr(admin_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))
        with pytest.raises(KeyboardInterrupt):
            admin.purge(10_000, NOTE)
        monkeypatch.undo()
        assert [entry.outcome for entry in admin.audit()] == ["400 records removed"]
        assert admin.expired() == 600
        assert admin.purge(10_000, NOTE).records == 600
        assert [entry.outcome for entry in admin.audit()] == ["600 records removed", "400 records removed"]

    @pytest.mark.usefixtures("expired")
    def test_the_unresolved_are_named(self, admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
        """Each of them, by eight digits of its id."""
        with caplog.at_level(logging.WARNING, "retrysafe.store"):
            purged = admin.purge(3)
        named = [record.getMessage().rpartition(" ")[2] for record in caplog.records]
        assert named == [record.id.hex()[:8] for record in purged.unresolved]
        assert len(named) == 3


@pytest.mark.skipif("RETRYSAFE_LONG" not in os.environ, reason="takes a minute: RETRYSAFE_LONG=1 runs it")
def test_a_million_records(path: Path) -> None:
    """Statistics and lists load no million of anything, and a purge of the idle store ends."""
    import resource

    store = SQLiteStore(path, deadline=20.0)
    store.reserve(a_claim())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(MILLION)
    admin = store.open_admin()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    found = admin.statistics()
    assert (sum(found.total.records.values()), found.expired) == (500_001, 500_000)
    assert len(admin.list(Query(scope=(("user", "7"),)), limit=1000)) == 500
    assert time.monotonic() - began < 60.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kilobytes"
    assert admin.purge(2_000_000).records == 500_000
    assert admin.expired() == 0
    admin.close()
    store.close()


MILLION = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999999)
INSERT INTO retrysafe_records
SELECT
    randomblob(32), version, token, fingerprint, 'completed', mode, attempt, lease_until, checkpointed, door,
    '[["user","' || (i / 2 % 1000) || '"]]', key, action, '/orders/' || i, request_id, correlation_id,
    created_at, updated_at, created_at, CASE i % 2 WHEN 0 THEN expires_at ELSE created_at END, held_until,
    200, '[]', randomblob(200), 0
FROM n JOIN retrysafe_records
"""
