"""Cancelled at any await in transactional mode (F28, F29): no effect without its record and no record without
its effect, no session left in a transaction, no connection lost to the pool, and no key stuck.

As `test_cancellation.py` does it for lease mode: each scene is played over and over, and cut at its first
suspension, at its second, and so on, until it comes through uncut.
"""

import asyncio
import gc
import os
from typing import Any, Literal

import pytest
from psycopg_pool import ConnectionPool

from retrysafe.psycopg import connection, connection_async
from retrysafe.testing.postgres import PostgresServer
from tests.faults.books import Handle, PostgresBooks, create, opened
from tests.faults.scalpel import Moment, Scalpel
from tests.faults.wire import Deliberate, fresh, until

LONG = "RETRYSAFE_LONG" in os.environ

Knife = Literal["request", "everything", "everything twice"]

CUTS: list[tuple[Knife, Moment]] = [
    ("request", "pending"),
    ("request", "done"),
    ("everything", "pending"),
    ("everything", "done"),
    ("everything twice", "pending"),
    *((("everything twice", "done"),) if LONG else ()),
]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = postgres.new_database()
    create(url)
    return url


async def twice(books: PostgresBooks, key: str) -> None:
    """An order, and then a look at it, each in a block of its own."""
    await books.write(key)
    async with connection_async(books.guard, books.pool) as db:
        await db.execute("SELECT id FROM orders WHERE key = %s", [key])


async def refused(books: PostgresBooks, key: str) -> None:
    """An order that the database takes, and does not commit."""
    async with connection_async(books.guard, books.pool) as db:
        await books.insert(db, key)
        await db.execute("INSERT INTO lines VALUES (0)")


async def undone(books: PostgresBooks, key: str) -> None:
    await books.write(key)
    raise Deliberate


def in_thread(pool: "ConnectionPool[Any]") -> Handle:
    def work(books: PostgresBooks, key: str) -> None:
        with connection(books.guard, pool) as db:
            books.answers[key] = fresh("order")
            db.execute("INSERT INTO orders VALUES (%s, %s)", [key, books.answers[key]])

    async def handle(books: PostgresBooks, key: str) -> None:
        await asyncio.to_thread(work, books, key)

    return handle


class Play:
    """One request, with one cut."""

    def __init__(self, books: PostgresBooks, knife: Knife, at: int, moment: Moment) -> None:
        self._books = books
        self._knife = knife
        self.key = fresh()
        self.scalpel = Scalpel(at, moment, self._cut)
        self._task: asyncio.Task[Any] | None = None
        self._spared = set[asyncio.Task[Any]]()

    def _cut(self, times: int = 2) -> None:
        assert self._task is not None
        if self._knife == "request":
            self._task.cancel()
            return
        for task in asyncio.all_tasks() - self._spared:
            task.cancel()
        if self._knife == "everything twice" and times > 1:
            asyncio.get_running_loop().call_soon(self._cut, times - 1)

    async def run(self) -> bool:
        """False: it was over before it could be cut."""
        loop = asyncio.get_running_loop()
        self._spared = asyncio.all_tasks()
        with pytest.MonkeyPatch.context() as patch:
            self.scalpel.install(patch)
            self._task = loop.create_task(self._books.post(self.key))
            await asyncio.wait({self._task})
            loop.set_task_factory(None)
            runtime = self._books.guard.runtime
            await until(lambda: not (asyncio.all_tasks() - self._spared or runtime.running))
        return self.scalpel.used


@pytest.mark.parametrize(("knife", "moment"), CUTS, ids=[f"{knife}, {moment}" for knife, moment in CUTS])
@pytest.mark.parametrize("scene", ["committed", "refused", "undone", "in a thread"])
def test_cut_at_every_await(url: str, scene: str, knife: Knife, moment: Moment) -> None:
    """F28, F29, I14: wherever it is cut, the books balance, and the key is answered later."""

    async def play_all(pool: "ConnectionPool[Any]") -> None:
        troubles: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        scenes = {"committed": twice, "refused": refused, "undone": undone, "in a thread": in_thread(pool)}
        async with opened(url, url, url) as books:
            await books.settled(fresh())
            cuts = 0
            for at in range(1, 500):
                books.handle = scenes[scene]
                play = Play(books, knife, at, moment)
                used = await play.run()
                books.assert_balanced()
                books.assert_none_in_transaction()
                books.handle = PostgresBooks.write
                after = await books.settled(play.key)
                assert books.orders(play.key) == [after.body.decode()], f"cut {at}"
                gc.collect(0)
                assert not troubles, f"cut {at}: {troubles}"
                if not used:
                    break
                cuts += 1
            assert cuts >= 3, "nothing was cut"
            books.assert_balanced()
            await books.assert_pool_is_full()
            for _ in range(2):  # nobody has kept the threads' only connection
                with pool.connection(5) as db:
                    db.execute("SELECT 1")

    with ConnectionPool(url, min_size=1, max_size=1, timeout=5) as pool:
        asyncio.run(play_all(pool))
