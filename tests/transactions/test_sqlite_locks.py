"""What a handler's connection to SQLite works with, and that all that writes through a guard holds the lock.

Before 3.51.3 SQLite can lose commits if one connection commits while another checkpoints.  The store's writer
checkpoints under its file lock; so every connection that the guard gives out has to hold this lock when it
commits, inside of a guarded call and outside of one.
"""

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, exc, orm, text
from sqlalchemy.ext.asyncio import create_async_engine

import retrysafe.sqlite3
from retrysafe import Guard, stores
from retrysafe.sqlalchemy import async_sessionmaker, begin, begin_async, sessionmaker
from retrysafe.stores.sql.sqlite.filelock import FileLock, may_write
from tests.stores.sqlite_spy import Settings, Watched, connections, lock_is_held, settings
from tests.transactions.calls import Ledger, guarded
from tests.transactions.ledgers import InFile, a_guard
from tests.transactions.test_semantics import ask

__all__ = ["connections"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no file lock")

INSERT = "INSERT INTO items VALUES ('a')"

Read = Callable[[str], Any]
Write = Callable[[Guard, Callable[[Read], None]], None]
"""Writes through a guard, and meanwhile gives a function that reads a pragma of the same connection."""


def by_sqlite3(guard: Guard, meanwhile: Callable[[Read], None]) -> None:
    def careless(db: sqlite3.Connection) -> None:
        db.executescript(
            "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 10; PRAGMA foreign_keys = ON"
        )

    with retrysafe.sqlite3.connection(guard, setup=careless) as db:
        db.execute(INSERT)
        meanwhile(lambda pragma: db.execute(f"PRAGMA {pragma}").fetchone()[0])


def by_cursor(guard: Guard, meanwhile: Callable[[Read], None]) -> None:
    with retrysafe.sqlite3.connection(guard) as db:
        db.cursor().execute(INSERT)
        meanwhile(lambda pragma: db.cursor().execute(f"PRAGMA {pragma}").fetchone()[0])


def by_session(guard: Guard, meanwhile: Callable[[Read], None]) -> None:
    with sessionmaker(guard)() as session:
        session.execute(text(INSERT))
        meanwhile(lambda pragma: session.execute(text(f"PRAGMA {pragma}")).scalar())
        session.commit()


def by_begin(guard: Guard, meanwhile: Callable[[Read], None]) -> None:
    with begin(guard) as db:
        db.execute(text(INSERT))
        meanwhile(lambda pragma: db.execute(text(f"PRAGMA {pragma}")).scalar())


BLOCKING = [by_sqlite3, by_cursor, by_session, by_begin]


async def by_async_session(guard: Guard, meanwhile: Callable[[], None]) -> None:
    async with async_sessionmaker(guard)() as session:
        await session.execute(text(INSERT))
        meanwhile()
        await session.commit()


async def by_begin_async(guard: Guard, meanwhile: Callable[[], None]) -> None:
    async with begin_async(guard) as db:
        await db.execute(text(INSERT))
        meanwhile()


AWAITED = [by_async_session, by_begin_async]


_engines: list[Engine] = []


@pytest.fixture(autouse=True)
def dispose() -> Iterator[None]:
    """A pool that is dropped with its connections open is a warning, from Python 3.13 on."""
    yield
    while _engines:
        _engines.pop().dispose()


def an_engine(path: Path, timeout: float = 2.0) -> Engine:
    _engines.append(create_engine(f"sqlite:///{path}", connect_args={"timeout": timeout}))
    return _engines[-1]


def a_blocking_guard(path: Path) -> Guard:
    return a_guard(stores.from_engine(an_engine(path)))


@pytest.fixture
def guard(path: Path, audit: InFile) -> Guard:
    return a_blocking_guard(path)


@pytest.mark.parametrize("write", BLOCKING)
def test_inside_a_guarded_call(
    path: Path, audit: InFile, guard: Guard, write: Write, connections: list[Watched]
) -> None:
    """It flushes its commit, whatever the application's own pragmas say, and does not checkpoint."""
    found: list[Settings] = []

    def meanwhile(read: Read) -> None:
        assert lock_is_held(path)
        found.append(settings(read))

    assert guarded(guard, lambda: write(guard, meanwhile)) == 201
    assert found == [Settings(wal_autocheckpoint=0)]
    [wrote] = [each for each in connections if any(one.sql == "INSERT" for one in each.writes)][-1:]
    assert [one for one in wrote.writes if one.sql == "COMMIT"]
    assert all(one.locked for one in wrote.writes)
    assert not lock_is_held(path)
    assert audit() == ["a"]


@pytest.mark.parametrize("write", BLOCKING)
def test_outside_a_guarded_call(
    path: Path, audit: InFile, guard: Guard, write: Write, connections: list[Watched]
) -> None:
    """An ordinary transaction holds the lock from its first write until it has committed, and no longer."""
    held: list[bool] = []
    write(guard, lambda _: held.append(lock_is_held(path)))
    assert held == [True]
    [wrote] = [each for each in connections if each.writes]
    assert [one.sql for one in wrote.writes if one.sql != "BEGIN"] == ["INSERT", "COMMIT"]
    assert all(one.locked for one in wrote.writes if one.sql != "BEGIN")
    assert not lock_is_held(path)
    assert audit() == ["a"]
    guard.close()


@pytest.mark.parametrize("write", AWAITED)
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_coroutines(path: Path, audit: InFile, where: str, write: Any, connections: list[Watched]) -> None:
    """The same by aiosqlite."""
    held: list[bool] = []

    async def scenario() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        guard = a_guard(stores.from_engine(engine))

        async def writes() -> None:
            await write(guard, lambda: held.append(lock_is_held(path)))

        if where == "inside":
            assert (await ask(Ledger(guard), writes)).status == 201  # type: ignore[arg-type]
        else:
            await writes()
        await engine.dispose()
        guard.close()

    asyncio.run(scenario())
    assert held == [True]
    [wrote] = [each for each in connections if any(one.sql == "INSERT" for one in each.writes)][-1:]
    assert all(one.locked for one in wrote.writes if one.sql in ("INSERT", "COMMIT"))
    assert not lock_is_held(path)
    assert audit() == ["a"]


def test_reads_do_not_wait(path: Path, audit: InFile, guard: Guard) -> None:
    """While another connection writes or checkpoints, those that only read go on."""
    lock = FileLock(str(path))
    assert lock.try_acquire()
    with retrysafe.sqlite3.connection(guard, setup=lambda db: db.execute("PRAGMA foreign_keys = ON")) as db:
        assert db.execute("SELECT * FROM items").fetchall() == []
    with begin(guard) as connection:
        assert connection.execute(text("SELECT * FROM items")).all() == []
    with sessionmaker(guard)() as session:
        assert session.execute(text("/* a comment */ SELECT * FROM items")).all() == []
    lock.close()
    guard.close()


def test_a_writer_that_waits_in_vain(path: Path, audit: InFile) -> None:
    """It gets SQLite's own error, and no lock is left behind."""
    engine = an_engine(path)
    guard = a_guard(stores.from_engine(engine, deadline=0.1))
    lock = FileLock(str(path))
    assert lock.try_acquire()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        by_sqlite3(guard, lambda _: None)
    with pytest.raises(exc.OperationalError, match="locked"):
        by_session(guard, lambda _: None)
    with pytest.raises(exc.OperationalError, match="locked"):
        by_begin(guard, lambda _: None)
    lock.close()
    assert not lock_is_held(path)
    by_sqlite3(guard, lambda _: None)
    by_session(guard, lambda _: None)
    by_begin(guard, lambda _: None)
    assert audit() == ["a"] * 3
    guard.close()


def test_a_transaction_that_fails(path: Path, audit: InFile, guard: Guard) -> None:
    """The lock is released with it."""

    def fail(_: object) -> None:
        raise ZeroDivisionError

    for write in BLOCKING:
        with pytest.raises(ZeroDivisionError):
            write(guard, fail)
        assert not lock_is_held(path)
    assert audit() == []
    guard.close()


def test_several_transactions_in_one_block(path: Path, audit: InFile, guard: Guard) -> None:
    """Each holds the lock for itself; between them others may write."""
    with retrysafe.sqlite3.connection(guard) as db:
        for _ in range(2):
            db.execute(INSERT)
            assert lock_is_held(path)
            db.commit()
            assert not lock_is_held(path)
        db.execute("CREATE TABLE more (name)")  # commits at once
        assert not lock_is_held(path)
        db.executescript("INSERT INTO more VALUES ('b'); DROP TABLE more")
        assert not lock_is_held(path)
    session = sessionmaker(guard)()
    for _ in range(2):
        session.execute(text(INSERT))
        assert lock_is_held(path)
        session.commit()
        assert not lock_is_held(path)
    session.close()
    assert audit() == ["a"] * 4
    guard.close()


def test_not_covered(path: Path, audit: InFile, guard: Guard) -> None:
    """As documented: a connection that the application opens by itself knows nothing of the lock."""
    with orm.Session(guard.store.engine) as session:  # type: ignore[attr-defined]
        session.execute(text(INSERT))
        assert not lock_is_held(path)
        session.commit()
    guard.close()


def test_writers_of_all_kinds_take_turns(path: Path, audit: InFile) -> None:
    """Threads that write through the guard in every way: nothing is lost, and none waits in vain."""
    guard = a_guard(stores.from_engine(an_engine(path, 20.0), deadline=20.0))
    failed: list[BaseException] = []

    def work(write: Write) -> None:
        try:
            for _ in range(10):
                write(guard, lambda _: None)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            failed.append(error)

    threads = [threading.Thread(target=work, args=(write,)) for write in BLOCKING]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert audit() == ["a"] * 40
    guard.close()


@pytest.mark.parametrize(
    ("sql", "writes"),
    [
        ("SELECT 1", False),
        ("  -- why\n/* and\nhow */ select 1", False),
        ("", False),
        ("VALUES (1)", False),
        ("EXPLAIN DELETE FROM items", False),
        ("PRAGMA foreign_keys = ON", False),
        ("PRAGMA wal_checkpoint(TRUNCATE)", True),
        ("pragma main.wal_checkpoint", True),
        ("INSERT INTO items VALUES (1)", True),
        ("WITH a AS (SELECT 1) DELETE FROM items", True),
        ("BEGIN IMMEDIATE", True),
        ("-- SELECT\nDELETE FROM items", True),
        ("REPLACE INTO items VALUES (1)", True),
        ("SELECTED", True),
    ],
)
def test_what_may_write(sql: str, writes: bool) -> None:
    assert may_write(sql) is writes
