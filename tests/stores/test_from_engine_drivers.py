"""Stores on SQLAlchemy's connections in rough weather: crowds, cancellation, frozen and killed servers,
several event loops."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
import pytest

from retrysafe import stores
from retrysafe._core.model import Found, Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.contract import Renewer
from retrysafe.stores.sql.sqlalchemy import StoreOfEngine
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.engines import engine_for
from tests.stores.rows import PATIENT

OURS = ("asyncpg", "pg8000")
"""Drivers whose connections are SQLAlchemy's."""

ALL = (*OURS, "psycopg", "psycopg_async") if "RETRYSAFE_LONG" in os.environ else OURS
"""The store by psycopg has tests of its own; what differs here is how its connections are opened."""

T = TypeVar("T")

SHORT = 1.0
LENIENT = 2.5
"""Seconds beyond a deadline that a busy machine may take to notice it."""


@pytest.fixture(scope="module")
def fragile() -> Iterator[PostgresServer]:
    """A server that is frozen, killed and started again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def brittle(fragile: PostgresServer) -> Iterator[str]:
    """A database of it."""
    url = fragile.new_database()
    yield url
    fragile.drop_database(url)


class Application:
    """Engine and store, closed at the end."""

    def __init__(self) -> None:
        self._stores: list[StoreOfEngine] = []

    def store(self, url: str, driver: str, deadline: float = PATIENT, **more: Any) -> StoreOfEngine:
        return self.adopt(stores.from_engine(engine_for(url, driver, **more), deadline=deadline))

    def adopt(self, store: StoreOfEngine) -> StoreOfEngine:
        self._stores.append(store)
        return store

    def close(self) -> None:
        for store in self._stores:
            store.close()


@pytest.fixture
def application() -> Iterator[Application]:
    application = Application()
    yield application
    application.close()


# --- many at once


@pytest.mark.parametrize("driver", OURS)
def test_no_answer_is_for_another_question(database: str, application: Application, driver: str) -> None:
    """Coroutines are cancelled at every moment, and whoever comes next gets his own record and no other."""
    store = application.store(database, driver)

    async def crowd() -> None:
        claims = [a_claim(f"key {n}") for n in range(60)]
        for claim in claims:
            await store.aio.reserve(claim)
            await store.aio.finish(claim, an_outcome(claim.id))
        for round in range(8):
            tasks = [asyncio.ensure_future(store.aio.look(claim.id)) for claim in claims]
            await asyncio.sleep(round * 0.002)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            for claim, answer in zip(claims, answers, strict=True):
                if isinstance(answer, asyncio.CancelledError):
                    continue
                assert isinstance(answer, Found)
                assert answer.record.id == claim.id
                assert answer.record.response is not None
                assert answer.record.response.body == claim.id

    asyncio.run(crowd())


@pytest.mark.parametrize("driver", OURS)
def test_connections_are_bounded(database: str, application: Application, driver: str) -> None:
    """However many ask at once: at most eight connections for an event loop, four for threads that block."""
    store = application.store(database, driver)

    async def crowd() -> None:
        await asyncio.gather(*(store.aio.look(a_claim(f"key {n}").id) for n in range(100)))
        assert 0 < connected(database) <= 8

    asyncio.run(crowd())
    threads = [threading.Thread(target=store.look, args=(a_claim().id,)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < connected(database) <= 8
    store.close()
    wait_until(lambda: connected(database) == 0)


def connected(url: str) -> int:
    """How many others are connected to this database."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
        assert row is not None
        count: int = row[0]
        return count


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENT
    while not condition():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.02)


@pytest.mark.parametrize("driver", OURS)
def test_event_loops_have_connections_of_their_own(
    database: str, application: Application, driver: str
) -> None:
    """Two loops in two threads at the same time, and one after the other: all of them work, none leaks."""
    store = application.store(database, driver)
    answers: list[object] = []

    async def work(name: str) -> None:
        for n in range(20):
            claim = a_claim(f"{name} {n}")
            assert await store.aio.reserve(claim) == Reserved(1)
            assert await store.aio.finish(claim, an_outcome())
        answers.append(name)

    threads = [threading.Thread(target=asyncio.run, args=(work(name),)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(work("c"))
    assert sorted(map(str, answers)) == ["a", "b", "c"]
    if driver == "asyncpg":
        wait_until(lambda: connected(database) == 0)  # each loop has closed its own when it ended


# --- servers in trouble


@pytest.mark.parametrize("driver", ALL)
def test_a_frozen_server_is_given_up_in_time(
    fragile: PostgresServer, brittle: str, application: Application, driver: str
) -> None:
    """Blocking or not, with an open connection or without: nobody waits beyond the deadline."""
    store = application.store(brittle, driver, deadline=SHORT)
    keeper = store.open_keeper()
    claim = a_claim()
    persistently(lambda: store.reserve(claim))
    persistently(lambda: keeper.renew([claim]))
    fragile.freeze()
    try:
        for _ in range(2):  # on a connection that was open, and when another is to be opened
            assert seconds_until_refused(lambda: store.look(claim.id)) < SHORT + LENIENT
            assert seconds_until_refused(lambda: asyncio.run(store.aio.look(claim.id))) < SHORT + LENIENT
        assert seconds_until_refused(lambda: keeper.renew([claim])) < SHORT + 2 * LENIENT
    finally:
        fragile.thaw()
    assert persistently(lambda: store.finish(claim, an_outcome())) is True
    assert persistently(lambda: asyncio.run(store.aio.look(claim.id))) is not None
    assert persistently(lambda: keeper.renew([claim])) == [True]
    keeper.close()


def seconds_until_refused(work: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        work()
    return time.monotonic() - began


def persistently(work: Callable[[], T]) -> T:
    """As a client does: again, until it works."""
    until = time.monotonic() + PATIENT
    while True:
        try:
            return work()
        except StoreUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize("driver", ALL)
def test_a_server_that_was_killed_is_used_again(
    fragile: PostgresServer, brittle: str, application: Application, driver: str
) -> None:
    """While it is away everybody is told at once; when it is back, the first to ask finds it."""
    store = application.store(brittle, driver)
    keeper = store.open_keeper()
    admin = store.open_admin()
    claim = a_claim()
    store.reserve(claim)
    keeper.renew([claim])
    admin.expired()
    with asyncio.Runner() as runner:
        runner.run(store.aio.look(claim.id))
        fragile.kill()
        with pytest.raises(StoreUnavailable, match="PostgreSQL"):
            store.look(claim.id)
        with pytest.raises(StoreUnavailable, match="PostgreSQL"):
            runner.run(store.aio.look(claim.id))
        fragile.start()
        assert runner.run(store.aio.look(claim.id)) is not None
    assert store.finish(claim, an_outcome()) is True
    assert keeper.renew([claim]) == [True]
    assert admin.expired() == 0  # it had a connection, and sees that it was closed
    keeper.close()
    admin.close()


@pytest.mark.parametrize("driver", ALL)
def test_a_restart_is_not_noticed(
    fragile: PostgresServer, brittle: str, application: Application, driver: str
) -> None:
    """Connections that died while nobody used them are replaced without a word."""
    store = application.store(brittle, driver)
    claim = a_claim()
    store.reserve(claim)
    with asyncio.Runner() as runner:
        runner.run(store.aio.look(claim.id))
        fragile.stop()
        fragile.start()
        assert store.look(claim.id) is not None
        assert runner.run(store.aio.look(claim.id)) is not None
        assert runner.run(store.aio.finish(claim, an_outcome())) is True


@pytest.mark.parametrize("driver", OURS)
def test_a_session_that_was_ended_is_replaced(database: str, application: Application, driver: str) -> None:
    """In the middle of a wait for a lock: the statement is made again on another connection."""
    store = application.store(database, driver)
    claim = a_claim()
    store.reserve(claim)
    with psycopg.connect(database, autocommit=True) as other, psycopg.connect(database) as locker:
        locker.execute("SELECT FROM retrysafe_records FOR UPDATE")
        finishing = threading.Thread(target=lambda: done.append(store.finish(claim, an_outcome())))
        done: list[bool] = []
        finishing.start()
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%retrysafe%'"
        )
        wait_until(lambda: other.execute(waiting).fetchall())
        other.execute(f"SELECT pg_terminate_backend(pid) FROM ({waiting}) AS waiting")
        wait_until(lambda: other.execute(waiting).fetchall())
        locker.rollback()
        finishing.join()
    assert done == [True]


@pytest.mark.parametrize("driver", OURS)
def test_a_lock_is_not_waited_for_beyond_the_deadline(
    database: str, application: Application, driver: str
) -> None:
    """Somebody else holds the row: the caller is told in time, and can say it again."""
    store = application.store(database, driver, deadline=SHORT)
    claim = a_claim()
    persistently(lambda: store.reserve(claim))
    with psycopg.connect(database) as locker:
        locker.execute("SELECT FROM retrysafe_records FOR UPDATE")
        assert seconds_until_refused(lambda: store.finish(claim, an_outcome())) < SHORT + LENIENT
    assert persistently(lambda: store.finish(claim, an_outcome())) is True


@pytest.mark.parametrize("driver", ALL)
def test_a_replica_is_refused(replica: str, application: Application, driver: str) -> None:
    """Nothing could be reserved there, so it is said at once, in the same words whichever driver it is."""
    store = application.store(replica, driver)
    with pytest.raises(
        StoreUnavailable, match="accepts no writes, it is a replica: use the address of the primary"
    ):
        store.reserve(a_claim())
    with pytest.raises(StoreUnavailable, match="it is a replica"):
        asyncio.run(store.aio.reserve(a_claim()))
    with pytest.raises(StoreUnavailable, match="it is a replica"):
        store.open_keeper().renew([a_claim()])


@pytest.fixture(scope="module")
def replica(postgres: PostgresServer) -> Iterator[str]:
    with postgres.replica() as replica:
        yield replica.url("postgres")


@pytest.mark.parametrize("driver", OURS)
def test_a_store_that_is_dropped_leaves_nothing_behind(database: str, driver: str) -> None:
    """Neither threads nor connections, though nobody closed it."""
    before = set(threading.enumerate())
    store: StoreOfEngine | None = stores.from_engine(engine_for(database, driver), deadline=PATIENT)
    assert store is not None
    keeper: Renewer | None = store.open_keeper()
    assert keeper is not None
    claim = a_claim()
    store.reserve(claim)
    keeper.renew([claim])
    del store, keeper
    gc.collect()
    wait_until(lambda: set(threading.enumerate()) <= before)
    wait_until(lambda: connected(database) == 0)
