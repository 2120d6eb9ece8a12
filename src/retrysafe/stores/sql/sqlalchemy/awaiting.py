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
from retrysafe.stores.sql.sqlalchemy.loops import LoopConnections, Open
from retrysafe.stores.sql.sqlalchemy.loopthread import LoopThread
from retrysafe.stores.sql.sqlalchemy.timeouts import TIMED_OUT

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that a thread waits beyond the deadline, which its loop keeps: only if that loop stands still."""


_inherited: list[object] = []
"""What children have of their parents.  Kept, because its end would reach into the parent's event loops."""


class LoopExecutor:
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
        _inherited.extend((self._connections, self._thread))
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self._thread = LoopThread()
        # A store that is dropped without being closed must not leave its thread behind.
        self._dropped = weakref.finalize(self, _close_all, self._connections, self._thread)
        self._dropped.atexit = False

    def run(self, make: Callable[[], Operation[T]]) -> T:
        return self._thread.run(self.run_async(make), self._deadline + _GRACE, TIMED_OUT)

    async def run_async(self, make: Callable[[], Operation[T]]) -> T:
        connections = self._connections.get(asyncio.get_running_loop()) or await self._begin()
        return await connections.perform(make())

    async def _begin(self) -> LoopConnections:
        connections = LoopConnections(self._open_here(), self._size, self._deadline)
        with self._lock:
            for loop in [loop for loop in self._connections if loop.is_closed()]:
                self._connections.pop(loop).cut()
            self._connections[connections.loop] = connections
        await connections.watch()
        return connections

    def close(self) -> None:
        with self._lock:
            every = list(self._connections.values())
            self._connections.clear()
        for connections in every:
            connections.stop()
        if (thread := self._thread.stop()) is not None:
            thread.join(2 * self._deadline)


def _close_all(every: dict[asyncio.AbstractEventLoop, LoopConnections], thread: LoopThread) -> None:
    for connections in every.values():
        connections.close_soon()
    thread.stop()
