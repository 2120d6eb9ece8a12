"""An operator's connection by SQLAlchemy: see `AdminConnection` in `sql/backend.py`.

It has a thread of its own, so that an operator can stop waiting for a server that says nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe.stores.queue import Row
from retrysafe.stores.sql.backend import Backend, Execute
from retrysafe.stores.sql.blocking import AnyAdminConnection
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection
from retrysafe.stores.sql.sqlalchemy.loopthread import LoopThread

T = TypeVar("T")


class AsyncAdminConnection(AnyAdminConnection):
    """By a driver that knows coroutines only."""

    def __init__(self, engine: AsyncEngine, deadline: float, backend: Backend) -> None:
        super().__init__(backend)
        self._deadline = deadline
        self._thread = LoopThread()
        try:
            with backend.explained():
                self._connection = self._thread.run(
                    AsyncStoreConnection.open(engine, backend), deadline, backend.connect_timed_out
                )
        except BaseException:
            self._thread.stop()
            raise

    @property
    def process(self) -> int | None:
        return self._connection.process

    @property
    def usable(self) -> bool:
        return self._thread.run(self._is_usable(), self._deadline, self._backend.timed_out)

    async def _is_usable(self) -> bool:
        await asyncio.sleep(0)  # the event loop looks whether the server has gone
        return self._connection.usable

    def _run(self, about: Callable[[Execute], Sequence[Row]], within: float) -> Sequence[Row]:
        return self._thread.run(self._connection.run(about), within, self._backend.timed_out)

    def close(self) -> None:
        self._thread.run(self._close(), 2 * self._deadline, self._backend.timed_out)
        if (thread := self._thread.stop()) is not None:
            thread.join(self._deadline)

    async def _close(self) -> None:
        if self._connection.usable:
            await self._connection.close(self._deadline)
        else:
            self._connection.cut()
