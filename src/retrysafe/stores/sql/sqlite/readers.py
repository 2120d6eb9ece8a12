"""Connections that read in the caller's own thread, past any lock.

In WAL mode readers and writers do not wait for each other, so a replay needs no other thread and goes on
while some process sits on the write lock.  For the same reason a coroutine reads right on its event loop:
it is one lookup by primary key in pages that are mostly cached, and quicker than to hand it to a thread.

There are as many connections as reads have ever happened at once, and mostly that is one.
"""

from typing import TypeVar

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql.sqlite.connection import Clock, Connection
from retrysafe.stores.sql.sqlite.file import DatabaseFile

T = TypeVar("T")

_PATIENCE = 0.02
"""Seconds.  A reader has to wait only while another process recovers the log after a crash, or closes the
file as the last one; then it is better to let the writer ask than to hold up an event loop."""

_KEPT = 8
"""Idle connections: more than eight reads at once are rare, and each costs three file descriptors."""


class Readers:
    """A stack of idle connections.  Taking and giving back are atomic, as `list.pop` and `append` are."""

    def __init__(self, file: DatabaseFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._idle: list[Connection] = []

    def take_open(self) -> Connection | None:
        """One that is open, to perform with: then a read takes no longer than the read itself."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        if connection.is_open:
            return connection
        self._give_back(connection)
        return None

    def have_one(self) -> None:
        """Open one, if there is none."""
        if self._idle and self._idle[-1].is_open:
            return
        connection = self._take()
        try:
            with connection.session():
                pass
        except StoreUnavailable:
            connection.suspect = True  # the next one that needs it will see
        finally:
            self._give_back(connection)

    def perform(self, operation: Operation[T], connection: Connection | None = None) -> T:
        connection = connection or self._take()
        try:
            return connection.perform_alone(operation)
        except StoreUnavailable:
            connection.suspect = True
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        while self._idle:
            self._take().close()

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return Connection(self._file.path, "reader", self._clock, _PATIENCE, self._file)

    def _give_back(self, connection: Connection) -> None:
        if connection.suspect or len(self._idle) >= _KEPT:
            connection.close()
        else:
            self._idle.append(connection)
