"""An operator's connection by SQLAlchemy: see `AdminConnection` in `sql/backend.py`.

It has a thread of its own, so that an operator can stop waiting for a server that says nothing.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Row
from retrysafe.stores.sql.backend import Backend, Execute
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection, StoreConnection
from retrysafe.stores.sql.sqlalchemy.loopthread import LoopThread

T = TypeVar("T")


class _AdminConnection(ABC):
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        with self._backend.explained():
            return self._run(lambda execute: self._backend.query(execute, name, arguments), within)

    def command(self, sql: str, within: float) -> None:
        with self._backend.explained():
            self._run(lambda execute: execute(sql, {}), within)

    @abstractmethod
    def _run(self, about: Callable[[Execute], Sequence[Row]], within: float) -> Sequence[Row]: ...


class AsyncAdminConnection(_AdminConnection):
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


class BlockingAdminConnection(_AdminConnection):
    """By a driver that blocks."""

    def __init__(self, engine: Engine, deadline: float, backend: Backend) -> None:
        super().__init__(backend)
        self._deadline = deadline
        self._worker = WorkerThread()
        opening = self._worker.begin(lambda: StoreConnection.open(engine, backend))
        try:
            with backend.explained():
                self._connection = opening.result(deadline)
        except TimeoutError:
            opening.add_done_callback(_unwanted)
            raise StoreUnavailable(backend.connect_timed_out) from None
        finally:
            if not hasattr(self, "_connection"):
                self._worker.end()

    @property
    def process(self) -> int | None:
        return self._connection.process

    @property
    def usable(self) -> bool:
        return self._connection.usable

    def _run(self, about: Callable[[Execute], Sequence[Row]], within: float) -> Sequence[Row]:
        try:
            return self._worker.begin(lambda: self._connection.run(about)).result(within)
        except TimeoutError:
            self._connection.cut()
            raise StoreUnavailable(self._backend.timed_out) from None

    def close(self) -> None:
        self._worker.begin(self._connection.close)
        self._worker.end().join(self._deadline)


class WorkerThread:
    """A thread that runs one call after the other, and whose end need not be waited for."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="retrysafe-operator", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def do() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)

        self._queue.put(do)
        return future

    def end(self) -> threading.Thread:
        """Let it end when everything is done.  Gives the thread that is about to end."""
        self._queue.put(None)
        return self._thread

    def _work(self) -> None:
        while (do := self._queue.get()) is not None:
            do()


def _unwanted(opening: Future[StoreConnection]) -> None:
    if opening.exception() is None:
        opening.result().close()
