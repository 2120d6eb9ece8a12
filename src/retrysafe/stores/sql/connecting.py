"""A connection that is opened when it is first needed, in a thread of its own.

So a caller can stop waiting for it, and an event loop never waits.  One that is opened too late for its
caller is there for the next.
"""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from retrysafe._runtime import fork
from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.retry import Trouble

if TYPE_CHECKING:
    import asyncio  # importing it takes longer than all of this library, and threads have no use for it

_LATE = "timed out connecting to the database; nothing was done"


class Usable(Protocol):
    """What is needed of a connection."""

    @property
    def usable(self) -> bool:
        """Whether a batch may begin on it: the last one is over, and it lives."""
        ...

    has_worked: bool

    def close(self) -> None: ...
    def discard(self) -> None:
        """Close it although something may be under way on it, without waiting."""
        ...


C = TypeVar("C", bound=Usable)


class Connecting(Generic[C]):
    """Holds one connection, or the wait for one."""

    def __init__(self, open: Callable[[], C]) -> None:
        self._open = open
        self._connection: C | None = None
        self._opening: Future[C] | None = None
        fork.watch(self)

    def forked(self) -> None:
        """The connection is the parent's, and must not be touched."""
        self._connection = self._opening = None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        opening, self._opening = self._opening, None
        if connection is not None:
            connection.close()
        if opening is not None:
            opening.add_done_callback(_close_unwanted)

    def discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.discard()

    def prepare(self) -> bool:
        """Begin to open the connection, if there is none.  Whether there is one."""
        if self._usable() is not None:
            return True
        self._begin()
        return False

    def connected(self, until: float) -> C:
        """The connection, in a thread."""
        if (connection := self._usable()) is not None:
            return connection
        opening = self._begin()
        try:
            opening.exception(max(until - monotonic(), 0.0))
        except TimeoutError:
            raise StoreUnavailable(_LATE) from None
        return self._opened(opening)

    async def connected_async(self, until: float, loop: "asyncio.AbstractEventLoop") -> C:
        """The connection, in a coroutine."""
        if (connection := self._usable()) is not None:
            return connection
        opening = self._begin()
        arrived = loop.create_future()

        def wake() -> None:
            if not arrived.done():
                arrived.set_result(None)

        def opened(_: "Future[C]") -> None:
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:  # the loop was closed, and no caller is left that could take it
                self.close()

        opening.add_done_callback(opened)
        timer = loop.call_later(max(until - monotonic(), 0.0), wake)
        try:
            await arrived
        finally:
            timer.cancel()
        if not opening.done():
            raise StoreUnavailable(_LATE)
        return self._opened(opening)

    @contextmanager
    def in_use(self, connection: C) -> Generator[None]:
        """Notes of a lost connection whether it had worked, and leaves one that is of no more use."""
        has_worked = connection.has_worked
        try:
            yield
        except Trouble as trouble:
            if trouble.disconnected:
                trouble.stale = has_worked
                self.discard()
            raise
        except BaseException:
            if not connection.usable:
                self.discard()
            raise
        connection.has_worked = True

    def _usable(self) -> C | None:
        late = self._opening
        if late is not None and late.done():
            # Opened, or refused, after its caller had left.  A refusal of that time says nothing about now.
            self._opening = None
            if late.exception() is None:
                self._connection = late.result()
                self._connection.has_worked = True  # so one that went stale since is replaced
        if self._connection is not None and not self._connection.usable:
            self.discard()
        return self._connection

    def _begin(self) -> "Future[C]":
        if self._opening is None:
            self._opening = opening = Future[C]()
            thread = threading.Thread(
                target=_fulfil, args=(opening, self._open), name="retrysafe-connect", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the machine's limit, or the end of the interpreter
                self._opening = None
                raise StoreUnavailable(f"cannot start a thread to connect: {error}") from error
        return self._opening

    def _opened(self, opening: "Future[C]") -> C:
        if self._opening is opening:
            self._opening = None
        self._connection = opening.result()
        return self._connection


def _fulfil(opening: "Future[C]", open: Callable[[], C]) -> None:
    try:
        opening.set_result(open())
    except StoreError as error:
        opening.set_exception(error)
    except Trouble as trouble:
        opening.set_exception(trouble.as_error())
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        told = StoreUnavailable(f"cannot connect to the database: {error!r}")
        told.__cause__ = error
        opening.set_exception(told)


def _close_unwanted(opening: "Future[C]") -> None:
    if opening.exception() is None:
        opening.result().close()
