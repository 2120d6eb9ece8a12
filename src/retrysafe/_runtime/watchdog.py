"""Cuts the connection of a transaction that does not end in time.

The connection is the application's, and may have no deadline of its own: a COMMIT that is sent into a network
which drops every packet is waited for until TCP gives up, often for a quarter of an hour, while its lease is
renewed.  A blocking wait cannot be interrupted from outside, but its socket can be shut down, which every
driver reports as a lost connection.  So one thread per process sleeps until the earliest deadline.  Handing
each COMMIT to another thread would bound the wait, too, at some ten times the cost, and would leave that
thread waiting.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from time import monotonic
from typing import TYPE_CHECKING

from retrysafe._runtime import fork
from retrysafe._runtime.log import Log
from retrysafe.errors import StoreUnavailable

if TYPE_CHECKING:
    from socket import socket  # those who have no socket need not import it


_log = Log("retrysafe")


class Watched:
    """A connection, and when it is cut."""

    __slots__ = ("connection", "cut", "deadline")

    def __init__(self, connection: "socket", deadline: float) -> None:
        self.connection = connection
        self.deadline = deadline
        self.cut = False


class _Watchdog:
    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self.forked()
        fork.watch(self)

    def forked(self) -> None:
        """Begin anew: at first, and in a child process, which shares the sockets and must not cut them."""
        for watched in self._watched:
            watched.connection.close()
        self._watched = set()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._wakes_at = 0.0

    def add(self, watched: Watched) -> None:
        with self._changed:
            self._watched.add(watched)
            if self._thread is None:
                self._start()
            elif watched.deadline < self._wakes_at:
                self._changed.notify()

    def remove(self, watched: Watched) -> None:
        """The thread is not woken: it finds out when it would have had to act."""
        with self._changed:
            self._watched.discard(watched)
            watched.connection.close()

    def _start(self) -> None:
        thread = Thread(target=self._run, name="retrysafe-watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.error("a database is waited for without a limit, no thread can be started: %s", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        with self._changed:
            while self._watched:
                now = monotonic()
                for watched in self._watched:
                    if watched.deadline <= now and not watched.cut:
                        watched.cut = True
                        _shut_down(watched.connection)
                left = [watched.deadline for watched in self._watched if not watched.cut]
                if not left:
                    break
                self._wakes_at = min(left)
                self._changed.wait(self._wakes_at - now)
            self._thread = None


def _shut_down(connection: "socket") -> None:
    from socket import SHUT_RDWR

    with suppress(OSError):  # the other side was faster
        connection.shutdown(SHUT_RDWR)


_watchdog = _Watchdog()


@contextmanager
def cutting_after(seconds: float, fileno: int | None) -> Generator[Watched | None]:
    """Have the socket with this descriptor shut down if the block takes longer; `None`: there is none.

    Gives what says whether that has happened.
    """
    if fileno is None:
        yield None
        return
    from socket import AF_INET, SOCK_STREAM, fromfd

    # A duplicate: the driver may close its own meanwhile, and its number be given to another connection.  The
    # family is of no consequence to a shutdown.
    watched = Watched(fromfd(fileno, AF_INET, SOCK_STREAM), monotonic() + seconds)
    _watchdog.add(watched)
    try:
        yield watched
    finally:
        _watchdog.remove(watched)


@contextmanager
def ending_within(seconds: float, fileno: int | None) -> Generator[None]:
    """The same for the end of a transaction, which then raises `StoreUnavailable`."""
    with cutting_after(seconds, fileno) as watched:
        try:
            yield
        except StoreUnavailable as error:
            if watched is None or not watched.cut:
                raise
            raise StoreUnavailable(
                f"the database did not respond to the COMMIT of a guarded call within {seconds:g} s, and its "
                "connection was closed: it is not known how the transaction ended"
            ) from error
