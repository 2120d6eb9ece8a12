"""Damaged rows and foreign tables: typed errors, and never a fresh key."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrysafe._core.model import Claim, Found, Reservation, Reserved
from retrysafe.errors import SchemaMismatch, StoreUnavailable, UnreadableRecord
from retrysafe.stores.sql import codec, operations
from retrysafe.stores.sql.migrations import migrations, table_of
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.stores.sql.statements import load
from retrysafe.testing import ManualClock
from retrysafe.testing.stores import a_claim, an_outcome

RESPONSE = ["status", "headers", "body", "omitted"]
DELIVERED = ["payload", "due_at"]
COLUMNS = [name.strip() for name in load("sqlite")["columns"].split(",")] + RESPONSE + DELIVERED

YEAR = 365 * 86400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file whose table accepts anything: no types, nothing mandatory."""
    path = tmp_path / "keys.db"
    lax = ", ".join(f"{name} PRIMARY KEY" if name == "id" else name for name in COLUMNS)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE retrysafe_records ({lax})")
        connection.execute("CREATE TABLE retrysafe_meta (name PRIMARY KEY, value)")
        connection.execute("INSERT INTO retrysafe_meta VALUES ('schema', 1)")
        connection.execute("CREATE TABLE retrysafe_verdicts (verdict PRIMARY KEY, count, since)")
        connection.execute(
            "CREATE TABLE retrysafe_audit (entry INTEGER PRIMARY KEY, at, by, reason, act, outcome, "
            "id, key, scope, action, target, request_id)"
        )
    return path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path, deadline=20.0, clock=clock)
    yield store
    store.close()


def test_nothing_of_an_expired_record_remains(path: Path) -> None:
    """Not even its version, where a later release replaces records of an earlier one."""
    reserve = load("sqlite")["reserve"].replace("version = 1", "version <= 1")
    claim = {**codec.bid(a_claim()), "now": 100.0}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(reserve, claim)
        fresh = connection.execute("SELECT * FROM retrysafe_records").fetchall()
        old = ", ".join(f"{name} = 0" for name in COLUMNS if name not in ("id", "state", "due_at"))
        connection.execute(f"UPDATE retrysafe_records SET {old}, state = 'completed'")
        connection.execute(reserve, claim)
        assert connection.execute("SELECT * FROM retrysafe_records").fetchall() == fresh


def past_the_reader(store: SQLiteStore, claim: Claim) -> Reservation:
    return store._sqlite.queue.perform(operations.reserve(claim), claim.id)


def damage(path: Path, column: str, value: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE retrysafe_records SET {column} = ?", (value,))


def running(store: SQLiteStore) -> None:
    store.reserve(a_claim())


def completed(store: SQLiteStore) -> None:
    claim = a_claim()
    store.reserve(claim)
    store.finish(claim, an_outcome())


def checkpointed(store: SQLiteStore) -> None:
    claim = a_claim()
    store.reserve(claim)
    store.checkpoint(claim, an_outcome().response)


NONSENSE: list[tuple[str, object]] = [
    ("version", 2),
    ("version", None),
    ("version", "one"),
    ("token", None),
    ("token", "text"),
    ("fingerprint", 7),
    ("state", "finished"),
    ("state", None),
    ("state", 3),
    ("mode", "eventual"),
    ("attempt", 0),
    ("attempt", "second"),
    ("attempt", None),
    ("lease_until", "tomorrow"),
    ("lease_until", b"\0"),
    ("checkpointed", 2),
    ("checkpointed", None),
    ("door", "window"),
    ("scope", None),
    ("scope", "tenant 7"),
    ("scope", '{"tenant": "7"}'),
    ("scope", '[["tenant"]]'),
    ("scope", '[["tenant", 7]]'),
    ("scope", "[" * 100_000),
    ("key", 5),
    ("action", None),
    ("target", b"/orders"),
    ("request_id", None),
    ("correlation_id", 1.5),
    ("created_at", "yesterday"),
    ("updated_at", None),
    ("completed_at", "soon"),
    ("expires_at", None),
    ("expires_at", "never"),
    ("expires_at", b""),
    ("held_until", None),
    ("omitted", "no"),
]

NONSENSE_ANSWERS: list[tuple[str, object]] = [
    ("status", None),
    ("status", 99),
    ("status", 600),
    ("status", "200"),
    ("status", 200.5),
    ("headers", None),
    ("headers", b"[]"),
    ("headers", "["),
    ("headers", '[["a", "b", "c"]]'),
    ("headers", '[["a", null]]'),
    ("headers", '[["", "b"]]'),
    ("headers", '[["a b", "c"]]'),
    ("headers", '[["a:", "c"]]'),
    ("headers", '[["a", "b\\r\\nset-cookie: c"]]'),
    ("headers", '[["a", "b\\u0000"]]'),
    ("headers", '[["a", "\\u20ac"]]'),
    ("headers", '[["\\u00e4", "b"]]'),
    ("body", "text"),
    ("body", 5),
]


@pytest.mark.parametrize(("column", "value"), NONSENSE)
@pytest.mark.parametrize("made", [running, completed, checkpointed])
def test_nonsense_is_reported_and_never_fresh(
    store: SQLiteStore, path: Path, made: object, column: str, value: object
) -> None:
    """Whatever a column holds, the key is neither free nor replayed, and the row stays as it is."""
    made(store)  # type: ignore[operator]
    damage(path, column, value)
    for attempt in (
        store.reserve,
        lambda claim: store.take_over(claim, b"somebody's", "in_progress"),
        lambda claim: past_the_reader(store, claim),
    ):
        with pytest.raises(UnreadableRecord) as error:
            attempt(a_claim())
        assert column in str(error.value)
        assert a_claim().id.hex()[:8] in str(error.value)
    with pytest.raises(UnreadableRecord):
        store.look(a_claim().id)
    with pytest.raises(UnreadableRecord):
        asyncio.run(store.aio.reserve(a_claim()))
    assert store.purge().records == 0
    with closing(sqlite3.connect(path)) as connection:
        [(found,)] = connection.execute(f"SELECT {column} FROM retrysafe_records").fetchall()
    assert found == value
    assert store.reserve(a_claim("another")) == Reserved(1), "other keys do not suffer"


@pytest.mark.parametrize(("column", "value"), NONSENSE_ANSWERS)
@pytest.mark.parametrize("made", [completed, checkpointed])
def test_a_nonsensical_answer_is_not_replayed(
    store: SQLiteStore, path: Path, made: object, column: str, value: object
) -> None:
    """Nor is a header that could not be sent, or would split the response in two."""
    made(store)  # type: ignore[operator]
    damage(path, column, value)
    with pytest.raises(UnreadableRecord, match=column):
        store.reserve(a_claim())


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("version", 2),
        ("state", "finished"),
        ("state", None),
        ("expires_at", None),
        ("expires_at", "never"),
        ("lease_until", "tomorrow"),
        ("held_until", None),
        ("held_until", b"\0"),
    ],
)
def test_what_cannot_be_judged_does_not_expire(
    store: SQLiteStore, path: Path, clock: ManualClock, column: str, value: object
) -> None:
    """A year later it still blocks its key, and no purge removes it: nobody can say that it is over."""
    running(store)
    damage(path, column, value)
    clock.elapse(YEAR)
    with pytest.raises(UnreadableRecord):
        store.reserve(a_claim())
    with pytest.raises(UnreadableRecord):
        past_the_reader(store, a_claim())
    assert store.purge().records == 0


def test_an_expired_record_need_not_be_readable(
    store: SQLiteStore, path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Expired means absent.  A purge removes it and says so, if it was unresolved."""
    running(store)
    damage(path, "scope", "nonsense")
    clock.elapse(YEAR)
    assert store.look(a_claim().id) is None
    assert store.purge().records == 1
    assert "could not be read" in caplog.text
    running(store)
    damage(path, "scope", "nonsense")
    clock.elapse(YEAR)
    assert store.reserve(a_claim()) == Reserved(1)


def test_text_that_is_no_text(store: SQLiteStore, path: Path) -> None:
    """Bytes that are not UTF-8 in a text column damage that record, not the store, and are not quoted."""
    running(store)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE retrysafe_records SET target = CAST(x'736563726574ff' AS TEXT)")
    with pytest.raises(UnreadableRecord) as error:
        store.reserve(a_claim())
    assert "secret" not in str(error.value)
    assert store.reserve(a_claim("another")) == Reserved(1)


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20).filter(lambda text: text.isprintable()),
    st.binary(max_size=20),
    st.sampled_from(["completed", "failed", "tx", "callback", "[]", "[[]]", '[["a","b"]]', "{}", "null"]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(column=st.sampled_from([c for c in COLUMNS if c not in ("id", "expires_at")]), value=VALUES)
def test_no_value_makes_a_key_fresh(store: SQLiteStore, path: Path, column: str, value: object) -> None:
    """Any value in any column: the record is found or unreadable, and no other error leaves the store."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM retrysafe_records")
    completed(store)
    damage(path, column, value)
    try:
        found = store.reserve(a_claim())
    except UnreadableRecord:
        return
    assert isinstance(found, Found)


def test_surrogates_are_kept_readable(store: SQLiteStore) -> None:
    """A path that is no Unicode, as WSGI may hand it in, is stored escaped instead of failing the claim."""
    claim = a_claim()._replace(target="/caf\udce9", scope=(("user", "\udce9"),), key="é\udce9")
    assert store.reserve(claim) == Reserved(1)
    found = store.look(claim.id)
    assert found is not None
    assert found.record.target == "/caf\\udce9"
    assert found.record.scope == (("user", "\\udce9"),)


class TestSchema:
    """Tables that this release did not make."""

    @pytest.mark.parametrize("version", [2, 0, "x", None])
    def test_another_version_is_refused(self, store: SQLiteStore, path: Path, version: object) -> None:
        """The message says what was found, what is expected and what to do; nothing is touched."""
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE retrysafe_meta SET value = ?", (version,))
        for _ in range(2):
            with pytest.raises(SchemaMismatch, match=f"version '?{version}'? and .* works with 1.*another"):
                store.reserve(a_claim())

    @pytest.mark.parametrize("table", [*filter(None, map(table_of, migrations("sqlite")[0].statements))])
    def test_half_a_store_is_refused(self, store: SQLiteStore, path: Path, table: str) -> None:
        """A missing table is not made anew beside the others: something has gone wrong."""
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"DROP TABLE {table}")
        with pytest.raises(SchemaMismatch, match=f"{table} is missing"):
            store.look(b"anything")

    def test_a_dropped_table_fails_closed(self, store: SQLiteStore, path: Path) -> None:
        """If the records vanish under a running store, its keys are not fresh but unavailable."""
        completed(store)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TABLE retrysafe_records")
        for _ in range(2):
            with pytest.raises((StoreUnavailable, SchemaMismatch)):
                store.reserve(a_claim())

    def test_not_a_database(self, tmp_path: Path) -> None:
        """A file of another kind is trouble, and is left as it is."""
        file = tmp_path / "notes.txt"
        file.write_text("Dear diary, " * 1000)
        store = SQLiteStore(file)
        with pytest.raises(StoreUnavailable, match="not a database"):
            store.reserve(a_claim())
        store.close()
        assert file.read_text() == "Dear diary, " * 1000

    def test_no_such_directory(self, tmp_path: Path) -> None:
        """Nothing is created on the way."""
        store = SQLiteStore(tmp_path / "nowhere" / "keys.db")
        with pytest.raises(StoreUnavailable, match="unable to open"):
            asyncio.run(store.aio.reserve(a_claim()))
        store.close()
        assert not (tmp_path / "nowhere").exists()
