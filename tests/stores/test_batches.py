"""Batches on real databases: what is wrong with one record is no other caller's affair."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg
import pytest

from retrysafe import stores
from retrysafe.errors import StoreUnavailable, UnreadableRecord
from retrysafe.stores.contract import Claim, Final, Found, Reservation, Reserved, Store
from retrysafe.stores.sql.mysql import MySQLStore
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.engines import engine_for
from tests.stores.rows import PATIENT
from tests.stores.rows_mysql import connect

CROWD = 256
LARGEST = 1_000
"""Bytes of a body that the database still accepts, by a trigger of ours: to reach a limit of its own would
take a gigabyte."""

_LIMIT_IN_POSTGRESQL = f"""
    ALTER TABLE retrysafe_records ADD CONSTRAINT largest CHECK (octet_length(body) <= {LARGEST})
"""
_LIMIT_IN_MARIADB = f"ALTER TABLE retrysafe_records ADD CONSTRAINT largest CHECK (length(body) <= {LARGEST})"
_LIMIT_IN_SQLITE = f"""
    CREATE TRIGGER largest BEFORE UPDATE ON retrysafe_records WHEN length(NEW.body) > {LARGEST}
    BEGIN SELECT RAISE(ABORT, 'too large'); END
"""
_DAMAGE = "UPDATE retrysafe_records SET headers = 'not JSON' WHERE id = "


class Prepared(NamedTuple):
    """A store, and ways to its table behind its back."""

    store: Store
    execute: Callable[[str, Sequence[object]], object]
    limit: str
    """SQL that makes larger bodies impossible."""
    lock: Callable[[Sequence[Claim]], Callable[[], None]] | None
    """Lock these records in another transaction; returns what ends that.  `None`: SQLite locks files."""


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)


def in_postgresql(url: str, store: Store) -> Iterator[Prepared]:
    with psycopg.connect(url, autocommit=True) as side, psycopg.connect(url) as locking:

        def execute(sql: str, arguments: Sequence[object]) -> None:
            side.execute(sql.encode(), arguments)

        def lock(claims: Sequence[Claim]) -> Callable[[], None]:
            ids = [claim.id for claim in claims]
            locking.execute("SELECT FROM retrysafe_records WHERE id = ANY(%s) FOR UPDATE", [ids])
            return locking.rollback

        with closing(store.open_admin()) as admin:
            admin.migrate()
        side.execute("DELETE FROM retrysafe_records")
        side.execute("ALTER TABLE retrysafe_records DROP CONSTRAINT IF EXISTS largest")
        yield Prepared(store, execute, _LIMIT_IN_POSTGRESQL, lock)


def in_mariadb(server: MariaDBServer, store: Store, url: str) -> Iterator[Prepared]:
    with closing(store.open_admin()) as admin:
        admin.migrate()
    with closing(connect(url)) as side, closing(connect(url)) as locking:

        def execute(sql: str, arguments: Sequence[object]) -> None:
            with side.cursor() as cursor:
                cursor.execute(sql, arguments)

        def lock(claims: Sequence[Claim]) -> Callable[[], None]:
            locking.begin()
            with locking.cursor() as cursor:
                ids = [claim.id for claim in claims]
                cursor.execute("SELECT 1 FROM retrysafe_records WHERE id IN %s FOR UPDATE", [ids])
            return locking.rollback

        yield Prepared(store, execute, _LIMIT_IN_MARIADB, lock)
    server.drop_database(url)


def in_sqlite(path: Path, store: Store) -> Iterator[Prepared]:
    with closing(store.open_admin()) as admin:
        admin.migrate()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENT)) as side:
        yield Prepared(
            store,
            lambda sql, arguments: side.execute(sql.replace("%s", "?"), arguments),
            _LIMIT_IN_SQLITE,
            None,
        )


@pytest.fixture
def deadline() -> float:
    return PATIENT


@pytest.fixture(params=["psycopg", "asyncpg", "pg8000", "sqlite", "mariadb"])
def prepared(request: pytest.FixtureRequest, tmp_path: Path, deadline: float) -> Iterator[Prepared]:
    if request.param == "sqlite":
        path = tmp_path / "keys.db"
        store: Store = SQLiteStore(path, deadline=deadline)
        yield from in_sqlite(path, store)
    elif request.param == "mariadb":
        server: MariaDBServer = request.getfixturevalue("mariadb")
        address = server.new_database()
        store = MySQLStore(address, deadline=deadline)
        yield from in_mariadb(server, store, address)
    else:
        url: str = request.getfixturevalue("url")
        if request.param == "psycopg":
            store = PostgresStore(url, deadline=deadline)
        else:
            store = stores.from_engine(engine_for(url, request.param), deadline=deadline)
        yield from in_postgresql(url, store)
    store.close()


class Callers(Protocol):
    """A way to make many calls at once."""

    def start(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list["Future[Any]"]:
        """Begin calls of the store's methods, all at the same moment."""
        ...


class Threads:
    def __init__(self, store: Store, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool

    def start(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list["Future[Any]"]:
        barrier = threading.Barrier(len(calls))

        def call(name: str, arguments: tuple[Any, ...]) -> object:
            barrier.wait(PATIENT)
            return getattr(self._store, name)(*arguments)

        return [self._pool.submit(call, name, arguments) for name, arguments in calls]


class Coroutines:
    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store.aio
        self._loop = loop

    def start(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list["Future[Any]"]:
        results: list[Future[Any]] = [Future() for _ in calls]

        async def call(work: Awaitable[Any], result: "Future[Any]") -> None:
            try:
                result.set_result(await work)
            except Exception as error:  # noqa: BLE001 - for the test to look at
                result.set_exception(error)

        def begin() -> None:
            for (name, arguments), result in zip(calls, results, strict=True):
                task = self._loop.create_task(call(getattr(self._store, name)(*arguments), result))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        tasks: set[asyncio.Task[None]] = set()
        self._loop.call_soon_threadsafe(begin)
        return results


@pytest.fixture(params=["threads", "coroutines"])
def callers(request: pytest.FixtureRequest, prepared: Prepared) -> Iterator[Callers]:
    if request.param == "threads":
        with ThreadPoolExecutor(CROWD) as pool:
            yield Threads(prepared.store, pool)
        return
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        ready.set_result((asyncio.get_running_loop(), over))
        await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop, over = ready.result(PATIENT)
    yield Coroutines(prepared.store, loop)
    loop.call_soon_threadsafe(over.set)
    thread.join()


def test_a_damaged_a_locked_and_an_oversized_record_are_alone(prepared: Prepared, callers: Callers) -> None:
    """All other calls of their batch are served, before the lock is released."""
    store, execute, limit, lock = prepared
    damaged, locked, oversized = a_claim("damaged"), a_claim("locked"), a_claim("oversized")
    running = [a_claim(f"running {number}") for number in range(10)]
    new = [a_claim(f"new {number}") for number in range(10)]
    for claim in (damaged, locked, oversized, *running):
        assert store.reserve(claim) == Reserved(1)
    store.finish(damaged, an_outcome())
    execute(_DAMAGE + "%s", [damaged.id])
    execute(limit, [])
    unlock = None if lock is None else lock([locked])

    too_large = an_outcome(bytes(LARGEST + 1))
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("reserve", (a_claim("damaged"),)),
        ("finish", (oversized, too_large)),
        ("finish", (locked, an_outcome())),
        *(("finish", (claim, an_outcome(str(claim.key).encode()))) for claim in running),
        *(("reserve", (claim,)) for claim in new),
    ]
    damage, refusal, waiting, *others = callers.start(calls)
    assert [one.result(PATIENT) for one in others] == [True] * 10 + [Reserved(1)] * 10
    assert isinstance(damage.exception(PATIENT), UnreadableRecord)
    assert type(refusal.exception(PATIENT)) is StoreUnavailable
    if unlock is not None:
        assert not waiting.done()
        unlock()
    assert waiting.result(PATIENT) is True

    for claim in running:
        assert _body(store, claim) == str(claim.key).encode(), "each has its own outcome"
    assert _body(store, oversized) is None, "it is still running"
    assert store.finish(oversized, an_outcome()) is True


@pytest.mark.parametrize("deadline", [4.0])
@pytest.mark.parametrize("prepared", ["psycopg", "mariadb"], indirect=True)
def test_locked_records_do_not_hold_up_the_others(prepared: Prepared, callers: Callers) -> None:
    """However many of a batch have to wait: the others are run first, and well within their deadline."""
    store, _, _, lock = prepared
    locked = [a_claim(f"locked {number}") for number in range(4)]
    running = [a_claim(f"running {number}") for number in range(20)]
    for claim in (*locked, *running):
        assert store.reserve(claim) == Reserved(1)
    assert lock is not None
    unlock = lock(locked)
    results = callers.start([("finish", (claim, an_outcome())) for claim in (*locked, *running)])
    assert [one.result(PATIENT) for one in results[4:]] == [True] * 20
    assert not any(one.done() for one in results[:4])
    unlock()
    assert [one.result(PATIENT) for one in results[:4]] == [True] * 4


def _body(store: Store, claim: Claim) -> bytes | None:
    found = store.look(claim.id)
    assert found is not None
    return None if found.record.response is None else found.record.response.body


def test_256_callers_with_different_keys(prepared: Prepared, callers: Callers) -> None:
    """None has an error, and each finds its own outcome."""
    claims = [a_claim(f"key {number}") for number in range(CROWD)]

    def all_of(calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        return [one.result(2 * PATIENT) for one in callers.start(calls)]

    def own(claim: Claim) -> Final:
        return an_outcome(str(claim.key).encode())

    assert all_of([("reserve", (claim,)) for claim in claims]) == [Reserved(1)] * CROWD
    assert all_of([("finish", (claim, own(claim))) for claim in reversed(claims)]) == [True] * CROWD
    found: list[Reservation] = all_of([("reserve", (a_claim(str(claim.key)),)) for claim in claims])
    for claim, one in zip(claims, found, strict=True):
        assert isinstance(one, Found)
        assert (one.record.token, one.record.response) == (claim.token, own(claim).response)
