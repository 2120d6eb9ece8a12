"""A store on SQLAlchemy's own connections, for engines of PostgreSQL with any driver but psycopg."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.postgresql import schema
from retrysafe.stores.sql.sqlalchemy.admin import AsyncAdminConnection, BlockingAdminConnection
from retrysafe.stores.sql.sqlalchemy.awaiting import LoopExecutor
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection, Execute, StoreConnection, split
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine, copy_async_engine, copy_engine
from retrysafe.stores.sql.sqlalchemy.loops import Open
from retrysafe.stores.sql.sqlalchemy.store import EngineStore
from retrysafe.stores.sql.sqlalchemy.workers import WorkerExecutor
from retrysafe.stores.sql.statements import load

FOR_THREADS = 4
FOR_A_LOOP = 8
"""Connections at most, as many as the store by psycopg has: for all threads of a process if the driver
blocks; for each event loop, the one in the store's own thread included, if it does not."""


def from_driver(engine: AnyEngine, deadline: float) -> EngineStore:
    if isinstance(engine, AsyncEngine):
        return EngineStore(
            engine,
            partial(LoopExecutor, AsyncOpener(engine).here, deadline=deadline),
            lambda: AsyncAdminConnection(copy_async_engine(engine), deadline),
            FOR_A_LOOP,
            deadline,
        )
    own_blocking = copy_engine(engine)
    return EngineStore(
        engine,
        partial(WorkerExecutor, Opener(own_blocking), deadline=deadline),
        lambda: BlockingAdminConnection(own_blocking, deadline),
        FOR_THREADS,
        deadline,
    )


class Opener:
    """Opens connections that may be used: their server was looked at, and has our tables."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_prepared = False

    def __call__(self) -> StoreConnection:
        connection = StoreConnection.open(self._engine)
        try:
            _check(connection.execute, prepared=self._is_prepared)
        except BaseException:
            connection.close()
            raise
        self._is_prepared = True
        return connection


class AsyncOpener:
    """The same for drivers that know coroutines only."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._is_prepared = False

    def here(self) -> Open:
        """How to open them in one event loop."""
        own = copy_async_engine(self._engine)
        return lambda: self._open(own)

    async def _open(self, own: AsyncEngine) -> AsyncStoreConnection:
        connection = await AsyncStoreConnection.open(own)
        try:
            await connection.run(partial(_check, prepared=self._is_prepared))
        except BaseException:
            connection.cut()
            raise
        self._is_prepared = True
        return connection


def _check(execute: Execute, *, prepared: bool) -> None:
    def ask(name: str) -> Sequence[Row]:
        return execute(load("postgresql")[name], {})

    def command(sql: str) -> None:
        for statement in split(sql):
            execute(statement, {})

    schema.inspect(ask)
    if not prepared:
        schema.prepare(ask, command)
