"""Performs operations with a driver that knows coroutines only.

Coroutines use connections of their own event loop.  Threads have one loop in common, which runs in a thread
of its own from the first use on.
"""

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

from retrysafe import process
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.alchemy.loops import LoopLines, Open
from retrysafe.stores.sql.operations import Operation

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that a thread waits beyond the deadline, which its loop keeps: only if that loop stands still."""


class Loops:
    """Performs operations with at most `size` connections for each event loop."""

    def __init__(self, open: Open, size: int, deadline: float) -> None:
        self._open = open
        self._size = size
        self._deadline = deadline
        self.forked()
        process.watch(self)

    def forked(self) -> None:
        """Begin anew: at first, and in a child process, to which neither thread nor loop came along.

        The parent's connections are left as they are: to close them properly would close them for the parent.
        """
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
            self._lines[lines.loop] = lines
        await lines.watch()
        return lines

    def close(self) -> None:
        with self._lock:
            every = list(self._lines.values())
            self._lines.clear()
        for lines in every:
            lines.dismiss()
        if (thread := self._thread.stop()) is not None:
            thread.join(2 * self._deadline)


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._enough: asyncio.Event | None = None

    def run(self, work: Coroutine[Any, Any, T], patience: float) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._begin())
        except BaseException:
            work.close()
            raise
        try:
            return future.result(patience)
        except TimeoutError:
            future.cancel()
            raise StoreUnavailable(
                f"the store's event loop did not answer within {patience:g} s; "
                "it is not known whether it was done"
            ) from None
        except asyncio.CancelledError:
            raise StoreUnavailable("the store was closed; it is not known whether it was done") from None
        except BaseException:
            future.cancel()  # interrupted: nobody waits for it any more
            raise

    def stop(self) -> threading.Thread | None:
        """Let the loop end.  Gives the thread that is about to end."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None and self._loop is not None and self._enough is not None:
                self._loop.call_soon_threadsafe(self._enough.set)
            return thread

    def _begin(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._loop = None
                ready = threading.Event()
                thread = threading.Thread(
                    target=self._work, args=(ready,), name="retrysafe-postgresql-loop", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    raise StoreUnavailable(f"no thread can be started: {error}") from error
                ready.wait()
                self._thread = thread
            if self._loop is None:
                raise StoreUnavailable("the store's event loop did not start; nothing was done")
            return self._loop

    def _work(self, ready: threading.Event) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._stay(ready))
        finally:
            ready.set()

    async def _stay(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._enough = enough = asyncio.Event()
        ready.set()
        await enough.wait()
