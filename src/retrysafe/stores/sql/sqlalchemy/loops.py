"""Connections of drivers that know coroutines only: each belongs to the event loop that opened it.

So every loop has a few of its own, and closes them when it ends.

An operation runs in a task of its own.  Whoever is cancelled stops waiting, and the operation comes to its
end: its connection is used again only after its answer was read, so nobody gets the answer to another
question.  One that takes longer than the deadline has its connection cut.
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
from retrysafe.stores.sql.postgresql.retry import Trials, Trouble
from retrysafe.stores.sql.sqlalchemy.connection import AsyncLine
from retrysafe.stores.sql.sqlalchemy.timeouts import LATE, NO_LINE_FREE, NOT_LET_IN, patience

T = TypeVar("T")

Open = Callable[[], Awaitable[AsyncLine]]


class LoopLines:
    """The connections of the running event loop, at most so many."""

    def __init__(self, open: Open, size: int, deadline: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._open = open
        self._deadline = deadline
        self._turn = asyncio.Semaphore(size)
        self._free: list[AsyncLine] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._end = self._at_the_end()

    async def perform(self, operation: Operation[T]) -> T:
        task = self.loop.create_task(self._perform(operation))
        self._tasks.add(task)
        done: asyncio.Future[None] = self.loop.create_future()

        def over(_: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if not done.done():
                done.set_result(None)
            elif not task.cancelled():
                task.exception()  # nobody waits for it any more

        task.add_done_callback(over)
        await done
        return task.result()

    async def _perform(self, operation: Operation[T]) -> T:
        until = time.monotonic() + self._deadline
        try:
            async with asyncio.timeout(self._deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise StoreUnavailable(NO_LINE_FREE) from None
        errand = Errand(self._take, until)
        try:
            return await errand.perform(operation)
        finally:
            self._turn.release()
            await self._give_back(errand.line)

    async def _take(self, until: float) -> AsyncLine:
        while self._free:
            line = self._free.pop()
            if line.usable:
                return line
            line.cut()
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
            raise StoreUnavailable(NOT_LET_IN)
        return opening.result()

    async def _give_back(self, line: AsyncLine | None) -> None:
        if line is None:
            return
        if not line.usable:
            line.cut()
        elif self._closed:
            await line.close(self._deadline)
        else:
            self._free.append(line)

    # --- their end

    async def watch(self) -> None:
        """Have the loop close the connections when it ends."""
        await anext(self._end)

    async def _at_the_end(self) -> AsyncGenerator[None]:
        # A loop that is shut down, as by `asyncio.run`, closes all generators that have begun, and waits.
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        self._closed = True
        while self._free:
            await self._free.pop().close(self._deadline)

    def dismiss(self) -> None:
        """Have the connections closed, from whichever thread; and wait for it, unless this is the loop's."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        closing = self.let_go()
        if closing is not None and here is not self.loop:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                closing.result(self._deadline)

    def let_go(self) -> "concurrent.futures.Future[None] | None":
        """Have the connections closed by whoever runs the loop; if nobody does, they are cut."""
        self._closed = True
        if self.loop.is_running():
            return asyncio.run_coroutine_threadsafe(self.close(), self.loop)
        self.cut()
        return None

    def cut(self) -> None:
        """Close the connections that nobody uses, without a word to the server."""
        self._closed = True
        while self._free:
            self._free.pop().cut()


async def _ensure(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _unwanted(opening: asyncio.Task[AsyncLine]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().cut()


class Errand:
    """One operation, and the connection that it has at the moment."""

    def __init__(self, take: Callable[[float], Awaitable[AsyncLine]], until: float) -> None:
        self.line: AsyncLine | None = None
        self._take = take
        self._until = until
        self._trials = Trials(until)
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
            seasoned = False
            try:
                if self.line is None:
                    self.line = await self._take(self._until)
                seasoned = self.line.seasoned
                rows = await self._within(self.line, sql, arguments)
                self.line.seasoned = True
                return rows
            except Trouble as trouble:
                if time.monotonic() >= self._until:
                    raise StoreUnavailable(LATE) from None
                pause = self._trials.after(trouble, seasoned=seasoned)
                if trouble.ends_session and self.line is not None:
                    self.line.cut()
                    self.line = None
            await asyncio.sleep(pause)

    async def _within(self, line: AsyncLine, sql: str, arguments: Mapping[str, object]) -> Sequence[Row]:
        timer = asyncio.get_running_loop().call_later(self._until - time.monotonic(), line.cut)
        try:
            return await line.execute(sql, {"patience": patience(self._until), **arguments})
        finally:
            timer.cancel()
