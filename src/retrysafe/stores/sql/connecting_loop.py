"""The same as `connecting.py` for a driver of coroutines: one connection of an event loop, or the wait for
one.

A connection is cut when the time of what runs on it is over, and is not used again after anything that may
have left something under way on it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

from retrysafe._runtime import fork
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.retry import Trouble

T = TypeVar("T")

_inherited: list[object] = []
"""What children have of their parents, and must leave alone."""


class Cuttable(Protocol):
    """What is needed of a connection."""

    @property
    def usable(self) -> bool: ...

    has_worked: bool

    def cut(self) -> None:
        """End it at once: what is being waited for does not come any more."""
        ...


C = TypeVar("C", bound=Cuttable)


class LoopConnecting(Generic[C]):
    """Holds one connection of one event loop; the messages are for when its time is over."""

    def __init__(self, open: Callable[[], Awaitable[C]], timed_out: str, connect_timed_out: str) -> None:
        self._open = open
        self._timed_out = timed_out
        self._connect_timed_out = connect_timed_out
        self._connection: C | None = None
        fork.watch(self)

    def forked(self) -> None:
        """The connection is the parent's, and so is the event loop into which its end would reach."""
        _inherited.append(self._connection)
        self._connection = None

    async def run(self, work: Callable[[C], Awaitable[T]], until: float) -> T:
        connection = await self._connected(until)
        has_worked = connection.has_worked
        timer = asyncio.get_running_loop().call_later(until - monotonic(), connection.cut)
        try:
            result = await work(connection)
        except Trouble as trouble:
            if trouble.disconnected:
                trouble.stale = has_worked
                self.close()
            if monotonic() >= until:
                raise StoreUnavailable(self._timed_out) from trouble
            raise
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
        connection.has_worked = True
        return result

    async def _connected(self, until: float) -> C:
        if self._connection is not None and not self._connection.usable:
            self.close()
        if self._connection is not None:
            return self._connection
        opening = asyncio.ensure_future(self._open())
        try:
            await asyncio.wait([opening], timeout=max(until - monotonic(), 0.0))
        finally:
            if not opening.done():
                # Not waited for: drivers take their time even to be cancelled, if the server says nothing.
                opening.cancel()
                opening.add_done_callback(_cut_unwanted)
        if not opening.done():
            raise StoreUnavailable(self._connect_timed_out)
        try:
            self._connection = opening.result()
        except Trouble as trouble:
            raise trouble.as_error() from None
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cut()


def _cut_unwanted(opening: "asyncio.Future[C]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().cut()
