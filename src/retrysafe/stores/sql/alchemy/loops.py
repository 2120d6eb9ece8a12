"""Connections of drivers that know coroutines only: each belongs to the event loop that opened it.

So every loop has a few of its own, and closes them when it ends.

An operation runs in a task of its own.  Whoever is cancelled stops waiting, and the operation comes to its
end: its connection is used again only after its answer was read, so nobody gets the answer to another
question.  One that takes longer than the deadline has its connection cut.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.alchemy.line import AsyncLine
from retrysafe.stores.sql.operations import Operation

T = TypeVar("T")


class LoopLines:
    """The connections of the running event loop, at most so many."""

    def __init__(self, engine: AsyncEngine, size: int, deadline: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._engine = engine
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
        until = self.loop.time() + self._deadline
        try:
            async with asyncio.timeout_at(until):
                await self._turn.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"no connection was free within {self._deadline:g} s; nothing was done"
            ) from None
        try:
            line = await self._take(until)
            timer = self.loop.call_at(until, line.cut)
            try:
                return await line.perform(operation, until)
            finally:
                timer.cancel()
                await self._give_back(line)
        finally:
            self._turn.release()

    async def _take(self, until: float) -> AsyncLine:
        while self._free:
            line = self._free.pop()
            if line.usable:
                return line
            line.cut()
        try:
            async with asyncio.timeout_at(until):
                return await AsyncLine.open(self._engine)
        except TimeoutError:
            raise StoreUnavailable(
                f"the server did not let us in within {self._deadline:g} s; nothing was done"
            ) from None

    async def _give_back(self, line: AsyncLine) -> None:
        if not line.usable:
            line.cut()
        elif self._closed:
            await line.close(self._deadline)
        else:
            self._free.append(line)

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

    def cut(self) -> None:
        """Close the connections that nobody uses, without a word to the server."""
        self._closed = True
        while self._free:
            self._free.pop().cut()
