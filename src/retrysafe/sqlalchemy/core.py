"""Connections without a session: `begin(guard)` where one would say `engine.begin()`."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from retrysafe._runtime.transactions import join
from retrysafe.guard import Guard
from retrysafe.sqlalchemy.engines import async_engine_of, capacity, engine_of
from retrysafe.sqlalchemy.transaction import AlchemyTransaction, AsyncAlchemyTransaction


@contextmanager
def begin(guard: Guard) -> Generator[Connection]:
    """A connection for as long as the block lasts, all of which takes effect, or nothing."""
    engine = engine_of(guard)
    guard.runtime.at_most(capacity(engine))
    joined = join(guard.store, AlchemyTransaction, lambda: AlchemyTransaction(guard.store, engine))
    if joined is None:
        with engine.begin() as ordinary:
            yield ordinary
    else:
        connection = joined.connection(object())
        with connection.begin_nested():
            yield connection


@asynccontextmanager
async def begin_async(guard: Guard) -> AsyncGenerator[AsyncConnection]:
    """The same for coroutines."""
    engine = async_engine_of(guard)
    joined = join(
        guard.store,
        AsyncAlchemyTransaction,
        lambda: AsyncAlchemyTransaction(guard.store, engine),
        awaited=True,
    )
    if joined is None:
        async with engine.begin() as ordinary:
            yield ordinary
    else:
        connection = await joined.connection_async()
        async with connection.begin_nested():
            yield connection
