"""Runs batches on SQLAlchemy's connections, for drivers that know coroutines only.

A batch of several calls is one transaction; a single call commits by itself.  A batch that takes too long has
its connection cut.
"""

from collections.abc import Awaitable, Callable, Sequence

from retrysafe.stores.queue import Batch, Outcome
from retrysafe.stores.sql.backend import Backend
from retrysafe.stores.sql.connecting_loop import LoopConnecting
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection

OpenAsync = Callable[[], Awaitable[AsyncStoreConnection]]


class AsyncEngineExecutor:
    """For the coroutines of one event loop."""

    def __init__(self, open: OpenAsync, backend: Backend) -> None:
        self._connecting = LoopConnecting(open, backend.timed_out, backend.connect_timed_out)
        self._runner = backend.runner()

    async def run(self, calls: Batch, until: float, patience: float) -> Sequence[Outcome]:
        return await self._connecting.run(
            lambda connection: connection.run(lambda execute: self._runner.run(execute, calls, patience)),
            until,
        )

    def close(self) -> None:
        self._connecting.close()
