"""How each connection of the store works on its file, and that a commit is flushed before it is acknowledged.

What a connection promises is read from the connection itself, while it is in use: another one's pragmas say
nothing about it.  The flushes are counted as the kernel sees them, in a process that knows nothing of it.
"""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrysafe.stores.admin import Note, Query
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.sqlite_spy import Settings, Watched, connections

__all__ = ["connections"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no file lock")


WRITING = Settings(busy_timeout=0)
"""SQLite does not wait for the lock: who writes does, within its deadline, and an event loop not at all."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path)
    yield store
    store.close()


def newest(connections: list[Watched]) -> Watched:
    """The last one that has written."""
    return [each for each in connections if each.writes][-1]


def all_locked(watched: Watched) -> bool:
    commits = [write for write in watched.writes if write.sql in ("COMMIT", "BEGIN")]
    return bool(commits) and all(write.locked for write in commits)


def test_the_writer(store: SQLiteStore, connections: list[Watched]) -> None:
    """It flushes, it checkpoints at a thousand pages, both under the lock and in the caller's thread."""
    claim = a_claim()
    store.reserve(claim)
    store.finish(claim, an_outcome())
    writer = newest(connections)
    assert writer.settings() == WRITING
    assert [write.sql for write in writer.writes].count("COMMIT") >= 2
    assert all_locked(writer)
    assert writer.writes[-1].thread == "MainThread"


def test_the_writer_of_an_event_loop(store: SQLiteStore, connections: list[Watched]) -> None:
    """The same, but every commit is made by a thread of its own: the first batch, and those after it."""

    async def calls() -> list[Watched]:
        for n in range(3):
            claim = a_claim(f"key {n}")
            await store.aio.reserve(claim)
            await store.aio.finish(claim, an_outcome())
        return [each for each in connections if each.writes]

    [writer] = asyncio.run(calls())
    commits = [write for write in writer.writes if write.sql == "COMMIT"]
    assert len(commits) >= 6
    assert {write.thread for write in commits} == {"retrysafe-sqlite"}
    assert all_locked(writer)


def test_the_settings_of_an_event_loops_writer(store: SQLiteStore, connections: list[Watched]) -> None:
    """Those of any writer."""

    async def calls() -> Settings:
        for n in range(2):
            await store.aio.reserve(a_claim(f"key {n}"))
        return newest(connections).settings()

    assert asyncio.run(calls()) == WRITING


def test_the_lease_keeper(store: SQLiteStore, connections: list[Watched]) -> None:
    """It flushes and does not checkpoint."""
    claim = a_claim()
    store.reserve(claim)
    keeper = store.open_keeper()
    connections.clear()
    assert keeper.renew([claim]) == [True]
    [watched] = connections
    assert watched.settings() == WRITING._replace(wal_autocheckpoint=0)
    assert all_locked(watched)
    keeper.close()


def test_a_reader(store: SQLiteStore, connections: list[Watched]) -> None:
    """It can neither write nor checkpoint, and waits a fraction of the deadline."""
    claim = a_claim()
    store.reserve(claim)
    store.finish(claim, an_outcome())
    store.look(claim.id)
    [reader] = [each for each in connections if not each.writes]
    found = reader.settings()
    assert found == Settings(
        synchronous=found.synchronous, wal_autocheckpoint=0, busy_timeout=20, query_only=1
    )


def test_the_operator(store: SQLiteStore, connections: list[Watched]) -> None:
    """It flushes what an operator did, under the lock."""
    store.reserve(a_claim()._replace(lease=0.0))
    admin = store.open_admin()
    connections.clear()
    [sighting] = admin.list(Query())
    [watched] = connections
    assert admin.release(sighting.record, Note("me", "because"))
    assert watched.settings() == WRITING
    assert all_locked(watched)
    admin.close()


# --- flushes

TIMES = 7

STRACE = shutil.which("strace")

CHILD = """
import asyncio, os, sys
from pathlib import Path
from sqlalchemy import create_engine, text
import retrysafe.sqlite3
from retrysafe import stores
from retrysafe.sqlalchemy import begin, sessionmaker
from retrysafe.stores.admin import Note, Query
from retrysafe.testing.stores import a_claim, an_outcome
from tests.transactions.calls import Ledger, in_thread
from tests.transactions.ledgers import a_guard
from tests.transactions.test_semantics import ask

path, role, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
engine = create_engine(f"sqlite:///{path}")
guard = a_guard(stores.from_engine(engine))
store = guard.store
with retrysafe.sqlite3.connection(guard) as db:
    db.execute("CREATE TABLE items (name text NOT NULL)")
claims = [a_claim(f"key {n}")._replace(lease=0.0) for n in range(times)]
for claim in claims:
    store.reserve(claim)
keeper, admin = store.open_keeper(), store.open_admin()
records = [sighting.record for sighting in admin.list(Query())]

def joined_sqlite3():
    with retrysafe.sqlite3.connection(guard) as db:
        db.execute("INSERT INTO items VALUES ('a')")

def joined_sqlalchemy():
    with sessionmaker(guard)() as session:
        session.execute(text("INSERT INTO items VALUES ('a')"))
        session.commit()

def request(handler, n):
    assert asyncio.run(ask(Ledger(guard), in_thread(handler), key=b"key-%d" % n)).status == 201

roles = {
    "writer": lambda n: store.finish(claims[n], an_outcome()),
    "keeper": lambda n: keeper.renew(claims),
    "operator": lambda n: admin.release(records[n], Note("me", "because")) or exit(1),
    "sqlite3": lambda n: joined_sqlite3(),
    "sqlalchemy": lambda n: joined_sqlalchemy(),
    "guarded sqlite3": lambda n: request(joined_sqlite3, n),
    "guarded sqlalchemy": lambda n: request(joined_sqlalchemy, n),
}
for n in range(times):
    os.write(2, b"begin\\n")
    roles[role](n)
    os.write(2, b"end\\n")
os._exit(0)  # a close would flush, too
"""


@pytest.mark.skipif(
    STRACE is None, reason="strace, which counts the flushes, cannot be had from a package index"
)
@pytest.mark.parametrize(
    ("role", "commits"),
    [
        ("writer", 1),
        ("keeper", 1),
        ("operator", 1),
        ("sqlite3", 1),
        ("sqlalchemy", 1),
        ("guarded sqlite3", 2),
        ("guarded sqlalchemy", 2),
    ],
)
def test_a_flush_per_commit(path: Path, tmp_path: Path, role: str, commits: int) -> None:
    """The log is flushed before the call returns, as the kernel sees it; a guarded call reserves first."""
    trace = tmp_path / "trace"
    done = subprocess.run(
        [
            *(str(STRACE), "-f", "-y", "-s", "8", "-e", "trace=fsync,fdatasync,write", "-o", str(trace)),
            *(sys.executable, "-c", CHILD, str(path), role, str(TIMES)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    flushes: list[int] = []
    inside = False
    for line in trace.read_text().splitlines():
        if re.search(r'write\(2<[^>]*>, "begin', line):
            inside = True
            flushes.append(0)
        elif re.search(r'write\(2<[^>]*>, "end', line):
            inside = False
        elif inside and re.search(r"f(data)?sync\(\d+<[^>]*keys\.db-wal>", line):
            flushes[-1] += 1
    assert len(flushes) == TIMES
    assert min(flushes) >= commits
