"""Handlers that are cut off, outlived by their own threads, or do two things at once: nothing is committed
beside the transaction, nothing is lost from it, and no connection hangs in one."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from psycopg_pool import ConnectionPool

from retrysafe import Guard
from retrysafe.errors import NotJoined
from retrysafe.psycopg import connection, connection_async
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.proxy import Proxy
from tests.faults.books import PostgresBooks, create, opened
from tests.faults.wire import PATIENCE, fresh, until


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = postgres.new_database()
    create(url)
    return url


def test_two_tasks_of_one_handler(url: str) -> None:
    """I14: each would open a connection of its own, and only one of them would be committed."""

    async def both(books: PostgresBooks, key: str) -> None:
        await asyncio.gather(books.write(key), books.write(key))

    async def play() -> None:
        async with opened(url, url, url) as books:
            books.handle = both
            heard = await books.post(key := fresh())
            assert (heard.status, heard.code) == (500, "handler-failed")
            assert books.orders(key) == []
            books.handle = PostgresBooks.write
            assert (await books.post(key)).status == 201
            books.assert_balanced()
            books.assert_none_in_transaction()
            await books.assert_pool_is_full()

    asyncio.run(play())


def test_blocks_side_by_side(url: str) -> None:
    """I14: a block that ends before one that was opened later would take it along, or be taken along."""

    async def crossed(books: PostgresBooks, key: str) -> None:
        first, second = (connection_async(books.guard, books.pool) for _ in range(2))
        db = await first.__aenter__()
        await second.__aenter__()
        await books.insert(db, key)
        await first.__aexit__(None, None, None)
        await second.__aexit__(None, None, None)

    async def play() -> None:
        async with opened(url, url, url) as books:
            books.handle = crossed
            heard = await books.post(key := fresh())
            assert (heard.status, heard.code) == (500, "handler-failed")
            assert books.orders(key) == []
            books.assert_none_in_transaction()

    asyncio.run(play())


class Straggler:
    """A handler whose work is done by a thread, which can be held up."""

    def __init__(self, books: PostgresBooks, pool: "ConnectionPool[Any]") -> None:
        self._books = books
        self._pool = pool
        self.working, self.go, self.over = threading.Event(), threading.Event(), threading.Event()
        self.error: BaseException | None = None

    def work(self, guard: Guard, key: str, before: Callable[[], object]) -> None:
        try:
            self.working.set()
            before()
            with connection(guard, self._pool) as db:
                db.execute("INSERT INTO orders VALUES (%s, 'late')", [key])
        except BaseException as error:  # noqa: BLE001 - it is looked at
            self.error = error
        finally:
            self.over.set()


@asynccontextmanager
async def straggling(
    url: str,
) -> AsyncGenerator[tuple[PostgresBooks, Straggler, "ConnectionPool[Any]"]]:
    pool: ConnectionPool[Any]
    with ConnectionPool(url, min_size=1, max_size=1, timeout=PATIENCE) as pool:
        async with opened(url, url, url) as books:
            yield books, Straggler(books, pool), pool


async def _tear_down(spared: "set[asyncio.Task[object]]") -> None:
    """As a server does whose grace has ended: the tasks are cancelled, and threads go on."""
    for task in asyncio.all_tasks() - spared:
        task.cancel()
    await until(lambda: not asyncio.all_tasks() - spared)


@pytest.mark.parametrize("held_up", ["before it asks", "while it waits for a connection"])
def test_a_thread_goes_on_after_its_call_was_cut_off(url: str, held_up: str) -> None:
    """F29, I14: the key is free again, so nothing that the thread still does may be committed."""

    async def play() -> None:
        async with straggling(url) as (books, straggler, pool):
            before = straggler.go.wait if held_up == "before it asks" else lambda: None

            async def in_thread(books: PostgresBooks, key: str) -> None:
                await asyncio.to_thread(straggler.work, books.guard, key, before)

            books.handle = in_thread
            key, spared = fresh(), asyncio.all_tasks()
            only = pool.getconn()
            task = asyncio.ensure_future(books.post(key))
            await asyncio.to_thread(straggler.working.wait)
            await asyncio.sleep(0.05)
            await _tear_down(spared)
            assert task.cancelled()
            straggler.go.set()
            pool.putconn(only)
            await asyncio.to_thread(straggler.over.wait)
            assert isinstance(straggler.error, NotJoined)
            assert books.orders(key) == []
            books.assert_none_in_transaction()
            with pool.connection(PATIENCE) as db:  # it was given back, or replaced
                db.execute("SELECT 1")
            books.handle = PostgresBooks.write
            await books.settled(key)
            books.assert_balanced()

    asyncio.run(play())


@pytest.mark.parametrize("inside", [False, True], ids=["before it asks", "inside of its block"])
def test_a_thread_outlives_its_answer(url: str, inside: bool) -> None:
    """I14: a handler gives up waiting for its thread and answers 500; the thread goes on, with nothing."""

    async def play() -> None:
        async with straggling(url) as (books, straggler, pool):

            def hold_inside() -> None:
                with connection(books.guard, pool) as db:
                    straggler.working.set()
                    straggler.go.wait()
                    db.execute("INSERT INTO orders VALUES ('nobody', 'late')")

            async def impatient(books: PostgresBooks, key: str) -> None:
                straggler.working.clear()
                before = hold_inside if inside else straggler.go.wait
                work = asyncio.to_thread(straggler.work, books.guard, key, before)
                await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(work)), 0.2)

            books.handle = impatient
            heard = await books.post(key := fresh())
            assert (heard.status, heard.code) == (500, "handler-failed")
            with pool.connection(PATIENCE) as db:  # whoever gets one now must not get the thread's writes
                straggler.go.set()
                await asyncio.to_thread(straggler.over.wait)
                db.execute("SELECT 1")
            assert straggler.error is not None
            assert books.ask("SELECT * FROM orders") == []
            books.assert_none_in_transaction()
            books.handle = PostgresBooks.write
            await books.settled(key)
            books.assert_balanced()

    asyncio.run(play())


STATEMENTS = ["^BEGIN", "INSERT INTO orders", "UPDATE retrysafe_records AS record SET state", "^COMMIT"]


def test_cut_at_every_statement(postgres: PostgresServer, url: str) -> None:
    """F12: a connection that is cut at any statement of a transaction is not lost to the pool, and its client
    is answered: with what was committed, or with an error and then the retry runs."""

    async def play() -> None:
        with Proxy(postgres.port) as proxy:
            async with opened(proxy.through(url), proxy.through(url), url) as books:
                for statement in STATEMENTS:
                    for set_trap in (proxy.cut_before, proxy.cut_during, proxy.lose_response):
                        trap = set_trap(statement)
                        heard = await books.post(key := fresh())
                        assert trap.sprung, (statement, trap.action)
                        where = f"{trap.action} {statement}: {heard}"
                        if heard.status == 201:
                            # A connection that is found dead before its first use is replaced.  The COMMIT
                            # is on its way with the completion, unless that did not arrive itself.
                            after_all = trap.action != "cut before" or statement == "^BEGIN"
                            assert after_all and statement != "INSERT INTO orders", where  # noqa: PT018
                            assert books.orders(key) == [heard.body.decode()], where
                        else:
                            assert heard.code in ("store-unavailable", "handler-failed"), where
                        after = await books.settled(key)
                        assert heard.status != 201 or after.body == heard.body, where
                        await books.assert_pool_is_full()
                books.assert_balanced()
                books.assert_none_in_transaction()

    asyncio.run(play())
