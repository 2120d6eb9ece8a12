"""An operator's connection by SQLAlchemy: see `AdminConnection` in `postgresql/admin.py`.

It has a thread of its own, so that an operator can stop waiting for a server that says nothing.
"""

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
from retrysafe.stores.sql.postgresql.admin import explained
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection, StoreConnection
from retrysafe.stores.sql.sqlalchemy.executor import CONNECT_TIMED_OUT, TIMED_OUT
from retrysafe.stores.sql.sqlalchemy.loopthread import LoopThread
from retrysafe.stores.sql.statements import load

T = TypeVar("T")


class _AdminConnection(ABC):
    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        with explained():
            return self._execute(load("postgresql")[name], arguments, within)

    def command(self, sql: str, within: float) -> None:
        with explained():
            self._execute(sql, {}, within)

    @abstractmethod
    def _execute(self, sql: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]: ...


class AsyncAdminConnection(_AdminConnection):
    """By a driver that knows coroutines only."""

    def __init__(self, engine: AsyncEngine, deadline: float) -> None:
        self._deadline = deadline
        self._thread = LoopThread()
        try:
            with explained():
                self._connection = self._thread.run(
                    AsyncStoreConnection.open(engine), deadline, CONNECT_TIMED_OUT
                )
        except BaseException:
            self._thread.stop()
            raise

    @property
    def process(self) -> int | None:
        return self._connection.process

    def _execute(self, sql: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        return self._thread.run(self._connection.execute(sql, arguments), within, TIMED_OUT)

    def close(self) -> None:
        self._thread.run(self._close(), 2 * self._deadline, TIMED_OUT)
        if (thread := self._thread.stop()) is not None:
            thread.join(self._deadline)

    async def _close(self) -> None:
        if self._connection.usable:
            await self._connection.close(self._deadline)
        else:
            self._connection.cut()


class BlockingAdminConnection(_AdminConnection):
    """By a driver that blocks."""

    def __init__(self, engine: Engine, deadline: float) -> None:
        self._deadline = deadline
        self._worker = WorkerThread()
        opening = self._worker.begin(lambda: StoreConnection.open(engine))
        try:
            with explained():
                self._connection = opening.result(deadline)
        except TimeoutError:
            opening.add_done_callback(_unwanted)
            raise StoreUnavailable(CONNECT_TIMED_OUT) from None
        finally:
            if not hasattr(self, "_connection"):
                self._worker.end()

    @property
    def process(self) -> int | None:
        return self._connection.process

    def _execute(self, sql: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        try:
            return self._worker.begin(lambda: self._connection.execute(sql, arguments)).result(within)
        except TimeoutError:
            self._connection.cut()
            raise StoreUnavailable(TIMED_OUT) from None

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
