"""Connections of drivers that know coroutines only: each belongs to the event loop that opened it.

So every loop has a few of its own, and closes them when it ends.

An operation runs in a task of its own.  A caller that is cancelled stops waiting, and the operation goes on
to its end: its connection is used again only after its result was read, so no caller gets the result of
another statement.  One that takes longer than the deadline has its connection cut.
"""

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql import statements
from retrysafe.stores.sql.operations import Operation, Row
from retrysafe.stores.sql.postgresql.retry import Retries, Trouble
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection
from retrysafe.stores.sql.sqlalchemy.timeouts import (
    CONNECT_TIMED_OUT,
    NO_CONNECTION_FREE,
    TIMED_OUT,
    patience,
)

T = TypeVar("T")

Open = Callable[[], Awaitable[AsyncStoreConnection]]


class LoopConnections:
    """The connections of the running event loop, at most so many."""

    def __init__(self, open: Open, size: int, deadline: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._open = open
        self._deadline = deadline
        self._turn = asyncio.Semaphore(size)
        self._free: list[AsyncStoreConnection] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._closer = self._close_at_end()

    async def perform(self, operation: Operation[T]) -> T:
        task = self.loop.create_task(self._perform(operation))
        self._tasks.add(task)
        done: asyncio.Future[None] = self.loop.create_future()

        def over(_: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if not done.done():
                done.set_result(None)
            elif not task.cancelled():
                task.exception()  # its caller has left

        task.add_done_callback(over)
        await done
        return task.result()

    async def _perform(self, operation: Operation[T]) -> T:
        until = time.monotonic() + self._deadline
        try:
            async with asyncio.timeout(self._deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise StoreUnavailable(NO_CONNECTION_FREE) from None
        execution = Execution(self._take, until)
        try:
            return await execution.perform(operation)
        finally:
            self._turn.release()
            await self._give_back(execution.connection)

    async def _take(self, until: float) -> AsyncStoreConnection:
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                return connection
            connection.cut()
        opening = self.loop.create_task(_ensure(self._open()))
        self._tasks.add(opening)
        opening.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([opening], timeout=until - time.monotonic())
        finally:
            if not opening.done():
                # Not waited for: drivers take their time even to be cancelled, if the server says nothing.
                opening.cancel()
                opening.add_done_callback(_unwanted)
        if not opening.done():
            raise StoreUnavailable(CONNECT_TIMED_OUT)
        return opening.result()

    async def _give_back(self, connection: AsyncStoreConnection | None) -> None:
        if connection is None:
            return
        if not connection.usable:
            connection.cut()
        elif self._closed:
            await connection.close(self._deadline)
        else:
            self._free.append(connection)

    # --- their end

    async def watch(self) -> None:
        """Have the loop close the connections when it ends."""
        await anext(self._closer)

    async def _close_at_end(self) -> AsyncGenerator[None]:
        # A loop that is shut down, as by `asyncio.run`, closes all generators that have begun, and waits.
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        self._closed = True
        while self._free:
            await self._free.pop().close(self._deadline)

    def stop(self) -> None:
        """Have the connections closed, from whichever thread; and wait for it, unless this is the loop's."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        closing = self.close_soon()
        if closing is not None and here is not self.loop:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                closing.result(self._deadline)

    def close_soon(self) -> "concurrent.futures.Future[None] | None":
        """Have the connections closed by the loop; if it does not run, they are cut."""
        self._closed = True
        if self.loop.is_running():
            return asyncio.run_coroutine_threadsafe(self.close(), self.loop)
        self.cut()
        return None

    def cut(self) -> None:
        """Close the idle connections, without a message to the server."""
        self._closed = True
        while self._free:
            self._free.pop().cut()


async def _ensure(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _unwanted(opening: asyncio.Task[AsyncStoreConnection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().cut()


class Execution:
    """One operation, and the connection that it has at the moment."""

    def __init__(self, take: Callable[[float], Awaitable[AsyncStoreConnection]], until: float) -> None:
        self.connection: AsyncStoreConnection | None = None
        self._take = take
        self._until = until
        self._retries = Retries(until)
        self._statements = statements.load("postgresql")

    async def perform(self, operation: Operation[T]) -> T:
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(await self._run(self._statements[name], arguments))
        except StopIteration as answer:
            result: T = answer.value
            return result

    async def _run(self, sql: str, arguments: Mapping[str, object]) -> Sequence[Row]:
        """A statement may be repeated, and on another connection too: nothing but its answer is kept."""
        while True:
            has_worked = False
            try:
                if self.connection is None:
                    self.connection = await self._take(self._until)
                has_worked = self.connection.has_worked
                rows = await self._within(self.connection, sql, arguments)
                self.connection.has_worked = True
                return rows
            except Trouble as trouble:
                if time.monotonic() >= self._until:
                    raise StoreUnavailable(TIMED_OUT) from None
                pause = self._retries.after(trouble, has_worked=has_worked)
                if trouble.ends_session and self.connection is not None:
                    self.connection.cut()
                    self.connection = None
            await asyncio.sleep(pause)

    async def _within(
        self, connection: AsyncStoreConnection, sql: str, arguments: Mapping[str, object]
    ) -> Sequence[Row]:
        timer = asyncio.get_running_loop().call_later(self._until - time.monotonic(), connection.cut)
        try:
            return await connection.execute(sql, {"patience": patience(self._until), **arguments})
        finally:
            timer.cancel()
