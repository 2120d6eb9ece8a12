"""A store on SQLAlchemy's own connections, for engines of PostgreSQL with any driver but psycopg."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.postgresql import schema
from retrysafe.stores.sql.sqlalchemy.admin import LoopSession, ThreadSession
from retrysafe.stores.sql.sqlalchemy.awaiting import Loops
from retrysafe.stores.sql.sqlalchemy.connection import AsyncLine, Execute, Line
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine, async_twin, twin
from retrysafe.stores.sql.sqlalchemy.loops import Open
from retrysafe.stores.sql.sqlalchemy.store import EngineStore
from retrysafe.stores.sql.sqlalchemy.timeouts import each
from retrysafe.stores.sql.sqlalchemy.workers import Crew
from retrysafe.stores.sql.statements import load

FOR_THREADS = 4
FOR_A_LOOP = 8
"""Connections at most, as many as the store by psycopg has: for all threads of a process if the driver
blocks; for each event loop, the one in the store's own thread included, if it does not."""


def from_driver(engine: AnyEngine, deadline: float) -> EngineStore:
    if isinstance(engine, AsyncEngine):
        return EngineStore(
            engine,
            partial(Loops, AsyncOpener(engine).here, deadline=deadline),
            lambda: LoopSession(async_twin(engine), deadline),
            FOR_A_LOOP,
            deadline,
        )
    own_blocking = twin(engine)
    return EngineStore(
        engine,
        partial(Crew, Opener(own_blocking), deadline=deadline),
        lambda: ThreadSession(own_blocking, deadline),
        FOR_THREADS,
        deadline,
    )


class Opener:
    """Opens connections that may be used: their server was looked at, and has our tables."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_prepared = False

    def __call__(self) -> Line:
        line = Line.open(self._engine)
        try:
            _make_sure(line.execute, prepared=self._is_prepared)
        except BaseException:
            line.close()
            raise
        self._is_prepared = True
        return line


class AsyncOpener:
    """The same for drivers that know coroutines only."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._is_prepared = False

    def here(self) -> Open:
        """How to open them in one event loop."""
        own = async_twin(self._engine)
        return lambda: self._open(own)

    async def _open(self, own: AsyncEngine) -> AsyncLine:
        line = await AsyncLine.open(own)
        try:
            await line.talk(partial(_make_sure, prepared=self._is_prepared))
        except BaseException:
            line.cut()
            raise
        self._is_prepared = True
        return line


def _make_sure(execute: Execute, *, prepared: bool) -> None:
    def ask(name: str) -> Sequence[Row]:
        return execute(load("postgresql")[name], {})

    def command(sql: str) -> None:
        for statement in each(sql):
            execute(statement, {})

    schema.inspect(ask)
    if not prepared:
        schema.prepare(ask, command)
