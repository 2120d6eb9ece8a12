"""Performs operations with a driver that knows coroutines only.

Coroutines use connections of their own event loop.  Threads have one loop in common, which runs in a thread
of its own from the first use on.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from retrysafe._runtime import fork
from retrysafe.stores.sql.operations import Operation
from retrysafe.stores.sql.sqlalchemy.loops import LoopLines, Open
from retrysafe.stores.sql.sqlalchemy.loopthread import LoopThread
from retrysafe.stores.sql.sqlalchemy.timeouts import LATE

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that a thread waits beyond the deadline, which its loop keeps: only if that loop stands still."""


_inherited: list[object] = []
"""What children have of their parents.  Kept, because its end would reach into the parent's event loops."""


class Loops:
    """Performs operations with at most `size` connections for each event loop."""

    def __init__(self, open_here: Callable[[], Open], size: int, deadline: float) -> None:
        self._open_here = open_here
        self._size = size
        self._deadline = deadline
        self._begin_anew()
        fork.watch(self)

    def forked(self) -> None:
        """A child process, to which neither thread nor loop came along, has to open its own."""
        self._dropped.detach()
        _inherited.extend((self._lines, self._thread))
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[asyncio.AbstractEventLoop, LoopLines] = {}
        self._thread = LoopThread()
        # A store that is dropped without being closed must not leave its thread behind.
        self._dropped = weakref.finalize(self, _let_go, self._lines, self._thread)
        self._dropped.atexit = False

    def run(self, make: Callable[[], Operation[T]]) -> T:
        return self._thread.run(self.run_async(make), self._deadline + _GRACE, LATE)

    async def run_async(self, make: Callable[[], Operation[T]]) -> T:
        lines = self._lines.get(asyncio.get_running_loop()) or await self._begin()
        return await lines.perform(make())

    async def _begin(self) -> LoopLines:
        lines = LoopLines(self._open_here(), self._size, self._deadline)
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


def _let_go(every: dict[asyncio.AbstractEventLoop, LoopLines], thread: LoopThread) -> None:
    for lines in every.values():
        lines.let_go()
    thread.stop()
