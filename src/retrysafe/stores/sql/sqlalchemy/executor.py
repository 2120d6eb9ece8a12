"""Runs batches on SQLAlchemy's connections: for drivers that block, and for those that know coroutines only.

A batch of several calls is one transaction; a single call commits by itself.  A batch that takes too long has
its connection cut.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

from retrysafe._runtime import fork
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Batch, Outcome
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.backend import Backend
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection

OpenAsync = Callable[[], Awaitable[AsyncStoreConnection]]

_inherited: list[object] = []
"""What children have of their parents, and must leave alone."""


class AsyncEngineExecutor:
    """For the coroutines of one event loop, by a driver that knows nothing else."""

    def __init__(self, open: OpenAsync, backend: Backend) -> None:
        self._open = open
        self._backend = backend
        self._connection: AsyncStoreConnection | None = None
        self._runner = backend.runner()
        fork.watch(self)

    def forked(self) -> None:
        """The connection is the parent's, and so is the event loop into which its end would reach."""
        _inherited.append(self._connection)
        self._connection = None

    async def run(self, calls: Batch, until: float, patience: float) -> Sequence[Outcome]:
        connection = await self._connected(until)
        has_worked = connection.has_worked
        timer = asyncio.get_running_loop().call_later(until - monotonic(), connection.cut)
        try:
            outcomes = await connection.run(lambda execute: self._runner.run(execute, calls, patience))
        except Trouble as trouble:
            if trouble.disconnected:
                trouble.stale = has_worked
                self._drop()
            if monotonic() >= until:
                raise StoreUnavailable(self._backend.timed_out) from trouble
            raise
        except BaseException:
            self._drop()
            raise
        finally:
            timer.cancel()
        connection.has_worked = True
        return outcomes

    async def _connected(self, until: float) -> AsyncStoreConnection:
        if self._connection is not None and not self._connection.usable:
            self._drop()
        if self._connection is not None:
            return self._connection
        opening = asyncio.ensure_future(self._open())
        try:
            await asyncio.wait([opening], timeout=until - monotonic())
        finally:
            if not opening.done():
                # Not waited for: drivers take their time even to be cancelled, if the server says nothing.
                opening.cancel()
                opening.add_done_callback(_cut_unwanted)
        if not opening.done():
            raise StoreUnavailable(self._backend.connect_timed_out)
        self._connection = opening.result()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cut()

    def close(self) -> None:
        self._drop()


def _cut_unwanted(opening: "asyncio.Future[AsyncStoreConnection]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().cut()
