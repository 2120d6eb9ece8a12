"""A store on SQLAlchemy's own connections, for engines of any driver that has no store of its own here.

A driver is of one kind.  One that blocks runs the batches of an event loop in threads; one that knows
coroutines only has an event loop in a thread of its own for callers that have none.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe._core.times import Duration
from retrysafe._runtime import fork
from retrysafe.stores.admin import Admin
from retrysafe.stores.queue import Batch, Executor, Operation, Outcome
from retrysafe.stores.queue_loop import LoopQueue, LoopQueues
from retrysafe.stores.sql.backend import AdminConnection, Backend
from retrysafe.stores.sql.blocking import BlockingAdminConnection, BlockingConnection, BlockingDatabase
from retrysafe.stores.sql.cleanup import Cleanup
from retrysafe.stores.sql.keeper import SQLRenewer
from retrysafe.stores.sql.sqlalchemy.admin import AsyncAdminConnection
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection, open_connection_of
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine, copy_async_engine, copy_engine
from retrysafe.stores.sql.sqlalchemy.executor import (
    AsyncEngineExecutor,
    OpenAsync,
)
from retrysafe.stores.sql.sqlalchemy.loopthread import LoopThread
from retrysafe.stores.sql.store import SQLStore

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that a thread waits beyond the deadline, which its loop keeps: only if that loop stands still."""


def from_driver(
    engine: AnyEngine, backend: Backend, deadline: float, cleanup_interval: Duration | None
) -> "EngineStore":
    cleanup = Cleanup(cleanup_interval)
    if isinstance(engine, AsyncEngine):
        return EngineStore(
            engine,
            backend,
            AwaitingDatabase(AsyncOpener(engine, backend), deadline, backend),
            lambda: AsyncAdminConnection(copy_async_engine(engine), deadline, backend),
            deadline,
            cleanup,
        )
    return EngineStore(
        engine,
        backend,
        BlockingDatabase(Opener(engine, backend), deadline, backend),
        lambda: BlockingAdminConnection(
            partial(open_connection_of, copy_engine(engine), backend), deadline, backend
        ),
        deadline,
        cleanup,
    )


class EngineStore(SQLStore):
    """Records in the database of an engine."""

    def __init__(
        self,
        engine: AnyEngine,
        backend: Backend,
        database: "BlockingDatabase | AwaitingDatabase",
        operator: Callable[[], AdminConnection],
        deadline: float,
        cleanup: Cleanup,
    ) -> None:
        super().__init__(database)
        self.engine = engine
        self.joint = backend.joint
        self._backend = backend
        self._own = database
        self._operator = operator
        self._deadline = deadline
        self._cleanup = cleanup

    def open_keeper(self) -> SQLRenewer:
        return SQLRenewer(self._own.executor(), self._deadline, self._cleanup)

    def open_admin(self) -> Admin:
        return self._backend.admin(self._operator, self._deadline)

    def close(self) -> None:
        self._own.close()


class AwaitingDatabase:
    """The same by a driver that knows coroutines only: threads have one event loop in common."""

    def __init__(self, open: "AsyncOpener", deadline: float, backend: Backend) -> None:
        self._open = open
        self._backend = backend
        self._deadline = deadline
        self._loops = LoopQueues(lambda _: partial(AsyncEngineExecutor, open.here(), backend), deadline)
        self._begin()
        fork.watch(self)

    def _begin(self) -> None:
        self._thread = LoopThread()
        # A store that is dropped without being closed must not leave its thread behind.
        self._dropped = weakref.finalize(self, _close, self._loops, self._thread)
        self._dropped.atexit = False

    def forked(self) -> None:
        """A child process, to which the thread did not come along."""
        self._dropped.detach()
        self._begin()

    @property
    def queue(self) -> "AwaitingDatabase":
        return self

    @property
    def async_queue(self) -> LoopQueue:
        return self._loops.here()

    def perform(self, operation: Operation[T], id: bytes, *, size: int = 0, urgent: bool = False) -> T:
        return self._thread.run(
            self._perform(operation, id, size, urgent), self._deadline + _GRACE, self._backend.timed_out
        )

    async def _perform(self, operation: Operation[T], id: bytes, size: int, urgent: bool) -> T:
        return await self._loops.here().perform(operation, id, size=size, urgent=urgent)

    def executor(self) -> Executor:
        return InLoopThread(self._open, self._backend)

    def close(self) -> None:
        self._loops.close()
        self._thread.close(2 * self._deadline)


class InLoopThread:
    """An executor for coroutines, used by a thread: it has a loop of its own."""

    def __init__(self, open: "AsyncOpener", backend: Backend) -> None:
        self._open = open
        self._backend = backend
        self._begin()
        fork.watch(self)

    def _begin(self) -> None:
        self._executor = AsyncEngineExecutor(self._open.here(), self._backend)
        self._thread = LoopThread()

    def forked(self) -> None:
        """A child process: the thread did not come along, and may have held locks of its engine."""
        self._begin()

    def run(self, calls: Batch, until: float, patience: float) -> Sequence[Outcome]:
        return self._thread.run(
            self._executor.run(calls, until, patience),
            until - monotonic() + _GRACE,
            self._backend.timed_out,
        )

    def close(self) -> None:
        self._thread.call(self._executor.close)
        self._thread.close(_GRACE)


class _Closable(Protocol):
    def close(self) -> None: ...


def _close(*all: _Closable) -> None:
    for one in all:
        one.close()


class Opener:
    """Opens connections that may be used: their server was looked at, and has our tables."""

    def __init__(self, engine: Engine, backend: Backend) -> None:
        self._engine = engine
        self._backend = backend
        self._own = copy_engine(engine)
        self._is_prepared = False
        fork.watch(self)

    def forked(self) -> None:
        """A child process: a thread that did not come along may have held locks of the engine."""
        self._own = copy_engine(self._engine)

    def __call__(self) -> BlockingConnection:
        connection = open_connection_of(self._own, self._backend)
        try:
            connection.run(partial(self._backend.check, prepared=self._is_prepared))
        except BaseException:
            connection.close()
            raise
        self._is_prepared = True
        return connection


class AsyncOpener:
    """The same for drivers that know coroutines only."""

    def __init__(self, engine: AsyncEngine, backend: Backend) -> None:
        self._engine = engine
        self._backend = backend
        self._is_prepared = False

    def here(self) -> OpenAsync:
        """How to open them in one event loop."""
        own = copy_async_engine(self._engine)
        return lambda: self._open(own)

    async def _open(self, own: AsyncEngine) -> AsyncStoreConnection:
        connection = await AsyncStoreConnection.open(own, self._backend)
        try:
            await connection.run(partial(self._backend.check, prepared=self._is_prepared))
        except BaseException:
            connection.cut()
            raise
        self._is_prepared = True
        return connection
