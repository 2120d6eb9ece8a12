"""Performs operations with a driver that knows coroutines only.

Coroutines use connections of their own event loop.  Threads have one loop in common, which runs in a thread
of its own for as long as it is needed.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from retrysafe import process
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.alchemy.line import AsyncLine
from retrysafe.stores.sql.alchemy.loops import LoopLines
from retrysafe.stores.sql.operations import Operation

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that a thread waits beyond the deadline, which its loop keeps: only if that loop stands still."""


class Loops:
    """Performs operations with at most `size` connections for each event loop."""

    def __init__(self, open: Callable[[], Awaitable[AsyncLine]], size: int, deadline: float) -> None:
        self._open = open
        self._size = size
        self._deadline = deadline
        self.forked()
        process.watch(self)

    def forked(self) -> None:
        """Begin anew: at first, and in a child process, to which neither thread nor loop came along."""
        self._lock = threading.Lock()
        self._lines: dict[asyncio.AbstractEventLoop, LoopLines] = {}
        self._thread = LoopThread()
        # A store that is dropped without being closed must not leave its thread behind.
        self._dropped = weakref.finalize(self, self._thread.stop)
        self._dropped.atexit = False

    def perform(self, operation: Operation[T]) -> T:
        return self._thread.run(self.perform_async(operation), self._deadline + _GRACE)

    async def perform_async(self, operation: Operation[T]) -> T:
        lines = self._lines.get(asyncio.get_running_loop()) or await self._begin()
        return await lines.perform(operation)

    async def _begin(self) -> LoopLines:
        lines = LoopLines(self._open, self._size, self._deadline)
        with self._lock:
            for loop in [loop for loop in self._lines if loop.is_closed()]:
                self._lines.pop(loop).cut()
            known = self._lines.setdefault(lines.loop, lines)
        if known is lines:
            await lines.watch()
        return known

    def close(self) -> None:
        with self._lock:
            every = list(self._lines.values())
            self._lines.clear()
        for lines in every:
            lines.dismiss()
        self._thread.stop()
        self._thread.join(2 * self._deadline)


class LoopThread:
    """An event loop in a thread, from the first use on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._enough: asyncio.Event | None = None

    def run(self, work: Coroutine[Any, Any, T], patience: float) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._running())
        except BaseException:
            work.close()
            raise
        try:
            return future.result(patience)
        except concurrent.futures.TimeoutError:
            ...
