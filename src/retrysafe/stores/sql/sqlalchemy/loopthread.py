"""An event loop in a thread of its own, for callers that have none: from the first use on, until it is
stopped."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from retrysafe.errors import StoreUnavailable

T = TypeVar("T")


class LoopThread:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._enough: asyncio.Event | None = None

    def run(self, work: Coroutine[Any, Any, T], patience: float, late: str) -> T:
        """Its answer, or an error that says `late`; it is cancelled then."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._begin())
        except BaseException:
            work.close()
            raise
        try:
            return future.result(patience)
        except TimeoutError:
            future.cancel()
            raise StoreUnavailable(late) from None
        except asyncio.CancelledError:
            raise StoreUnavailable("the store was closed; whether it was done is not known") from None
        except BaseException:
            future.cancel()  # interrupted: the caller has left
            raise

    def stop(self) -> threading.Thread | None:
        """Let the loop end.  Gives the thread that is about to end."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None and self._loop is not None and self._enough is not None:
                self._loop.call_soon_threadsafe(self._enough.set)
            return thread

    def call(self, function: Callable[[], object]) -> None:
        """Have the loop call it, if there is one."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(function)

    def close(self, patience: float = 0.0) -> None:
        """Let the loop end, and wait for so long."""
        thread = self.stop()
        if thread is not None and patience and thread is not threading.current_thread():
            thread.join(patience)

    def _begin(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._loop = None
                ready = threading.Event()
                thread = threading.Thread(
                    target=self._work, args=(ready,), name="retrysafe-loop", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    raise StoreUnavailable(f"cannot start a thread: {error}") from error
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
