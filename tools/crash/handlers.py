"""How an order has its effect: rows in the caller's transaction, by each library that can join it, or a line
in the journal, which nothing takes back.  In threads, or in the event loop.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from sqlalchemy import text

from retrysafe import Guard
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker
from tools.crash.audit import TABLES
from tools.crash.journal import Journal
from tools.crash.traps import reach, serial

_ROW = "INSERT INTO {} (number, id) VALUES (:key, :id)"

LASTS = 0.005
"""Seconds, at most, that a handler takes whose effects are outside: time to be interrupted in."""


class Order(NamedTuple):
    key: str
    id: str
    ending: str = ""
    """How its handler will end."""
    derived: str = ""
    """The key that is passed on to another service, if one is."""


class _Handlers:
    def lifespan(self) -> AbstractAsyncContextManager[object]:
        """Around the life of a worker: where pools are opened.  Most have nothing to open."""
        return nullcontext()


class BlockingHandlers(_Handlers, ABC):
    """In threads."""

    @abstractmethod
    def write(self, order: Order, tables: Sequence[str] = TABLES) -> None:
        """Have the effect; in transactional mode it is a row in each of these tables."""


class AsyncHandlers(_Handlers, ABC):
    """In the event loop."""

    @abstractmethod
    async def write(self, order: Order, tables: Sequence[str] = TABLES) -> None: ...


Handlers = BlockingHandlers | AsyncHandlers


def insert(table: str, mark: str) -> str:
    return f"INSERT INTO {table} (number, id) VALUES ({mark}, {mark})"


class Blocking(BlockingHandlers):
    """Joined connections, in threads."""

    def __init__(self, connection: Callable[[], AbstractContextManager[Any]], mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def write(self, order: Order, tables: Sequence[str] = TABLES) -> None:
        for table in tables:
            with self._connection() as connection:
                connection.execute(insert(table, self._mark), (order.key, order.id))
            reach("after", f"Write {table}")


class Sessions(BlockingHandlers):
    """In threads, with a session of SQLAlchemy's that is committed after each write."""

    def __init__(self, guard: Guard) -> None:
        self._sessions = sessionmaker(guard)

    def write(self, order: Order, tables: Sequence[str] = TABLES) -> None:
        with self._sessions() as session:
            for table in tables:
                session.execute(text(_ROW.format(table)), {"key": order.key, "id": order.id})
                session.commit()
                reach("after", f"Write {table}")


class SessionsAsync(AsyncHandlers):
    """The same in the event loop."""

    def __init__(self, guard: Guard) -> None:
        self._sessions = async_sessionmaker(guard)

    async def write(self, order: Order, tables: Sequence[str] = TABLES) -> None:
        async with self._sessions() as session:
            for table in tables:
                await session.execute(text(_ROW.format(table)), {"key": order.key, "id": order.id})
                await session.commit()
                reach("after", f"Write {table}")


def _execute(order: Order, journal: Journal) -> None:
    reach("before", "Effect")
    journal.write("executed", serial(), order.key, order.id, order.ending, order.derived)
    reach("after", "Effect")


class Outside(BlockingHandlers):
    """Effects that no transaction takes back: a line in the journal, whatever becomes of the request."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def write(self, order: Order, tables: Sequence[str] = ()) -> None:
        _execute(order, self._journal)
        time.sleep(random.uniform(0, LASTS))


class OutsideAsync(AsyncHandlers):
    """The same in the event loop."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def write(self, order: Order, tables: Sequence[str] = ()) -> None:
        _execute(order, self._journal)
        await asyncio.sleep(random.uniform(0, LASTS))
