"""What a disk, an operator or an attacker damaged: contained, and never taken for absent (F42)."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrysafe import Guard, scopes
from retrysafe.asgi import Middleware
from retrysafe.stores.sql.sqlite import SQLiteStore
from tests.faults.hostility import EXAMPLES, Counting, assert_clean, hostile
from tests.faults.wire import Heard, call, connection, fresh

COLUMNS = (
    "version token fingerprint state mode attempt lease_until checkpointed door scope key action target "
    "request_id correlation_id created_at updated_at completed_at held_until status headers body omitted"
).split()

INVALID_UTF8 = "CAST(x'ff00ff' AS TEXT)"

DAMAGES: list[object] = [
    None,
    b"",
    b"\xff\0",
    "",
    "a\r\nX-Injected: yes",
    '[["x-injected","a\\r\\nb"]]',
    '[["bad name","a"]]',
    '[["x","\u20ac"]]',
    '[["content-length","99999"],["transfer-encoding","chunked"]]',
    "[" * 100_000,
    -1,
    0,
    2,
    99,
    100,
    2**62,
    1e308,
    -1e308,
    float("inf"),
    float("-inf"),
    "in_progress",
    "completed",
    "failed",
    "tx",
]


class Disk:
    """A guarded application on an SQLite file that a test can damage."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.app = Counting()
        self.guard = Guard(SQLiteStore(path, deadline=20.0), scope=scopes.header("X-Tenant"))
        self.guarded = Middleware(self.app, self.guard)
        self._loop = asyncio.Runner()  # to make one takes longer than a request

    def ask(self, key: str) -> Heard:
        return self._loop.run(call(self.guarded, connection(key=key), b"{}"))

    def close(self) -> None:
        self._loop.close()
        self.guard.close()

    def damage(self, key: str, column: str, value: object, state: str) -> bool:
        """Overwrite a column of this key's record.  False: the table itself does not allow it."""
        where = f"{value}" if value == INVALID_UTF8 else "?"
        arguments = [key] if value == INVALID_UTF8 else [value, key]
        with closing(sqlite3.connect(self.path, timeout=20)) as connection_, connection_:
            try:
                connection_.execute("UPDATE retrysafe_records SET state = ? WHERE key = ?", (state, key))
                connection_.execute(
                    f"UPDATE retrysafe_records SET {column} = {where} WHERE key = ?", arguments
                )
            except sqlite3.IntegrityError:
                return False
            return True


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    disk = Disk(tmp_path_factory.mktemp("disk") / "keys.db")
    yield disk
    disk.close()


def assert_contained(disk: Disk, column: str, value: object, state: str) -> None:
    key = fresh()
    first = disk.ask(key)
    assert first.status == 201
    if not disk.damage(key, column, value, state):
        return
    before = disk.app.runs
    what = f"{column} = {value!r:.80} of a {state} record"
    for _ in range(2):
        heard = disk.ask(key)
        assert disk.app.runs == before, f"ran again with {what}"
        assert_clean(heard)
        assert heard.status >= 200, f"no final answer for {what}"
        framing = [name for name, _ in heard.headers if name in (b"content-length", b"transfer-encoding")]
        assert len(framing) <= 1, f"two ways to find the end of it: {what}"
        if heard.status == 201:
            assert heard.replayed, what
            if column != "body" or not isinstance(value, bytes):
                assert heard.body in (first.body, b"" if column == "omitted" else first.body), what
        else:
            assert heard.status in (409, 422, 503) or column == "status", f"{heard}: {what}"
            assert heard.code is not None or column in ("status", "headers"), f"{heard}: {what}"
    healthy = disk.ask(fresh())
    assert healthy.status == 201, f"another key suffers from {what}"


@pytest.mark.parametrize("state", ["completed", "in_progress"])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_damaged_column(disk: Disk, column: str, state: str) -> None:
    """F42, I20: a damaged record is 503 or what is left of it makes sense; it is never taken for absent.

    Nothing of it gets onto the wire that may not be there, and other keys are served.
    """
    for value in [*DAMAGES, INVALID_UTF8]:
        assert_contained(disk, column, value, state)


def test_a_damaged_time(disk: Disk) -> None:
    """F42: times that are no times make no `Retry-After` of themselves, and no 500."""
    key = fresh()
    assert disk.ask(key).status == 201
    assert disk.damage(key, "created_at", float("-inf"), "in_progress")
    assert disk.damage(key, "lease_until", float("inf"), "in_progress")
    heard = disk.ask(key)
    assert heard.status in (409, 503)
    assert len(heard.header(b"retry-after") or b"") < 10


@settings(hostile, max_examples=EXAMPLES // 2)
@given(
    st.sampled_from(COLUMNS),
    st.one_of(
        st.none(),
        st.binary(max_size=40),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
    ),
    st.sampled_from(["completed", "in_progress", "failed"]),
)
def test_any_damage(disk: Disk, column: str, value: object, state: str) -> None:
    """F42, I20: the same for values that nobody thought of."""
    assert_contained(disk, column, value, state)
