"""A handful of connections for threads: the last one that was given back is the next one taken.

They are opened in threads of their own, so that a caller can stop waiting for one.  One that is opened too
late for its caller is there for the next.
"""

import threading
import time
from collections.abc import Callable

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.sql.postgresql.discard import discard
from retrysafe.stores.sql.postgresql.session import Session

MOST = 4
"""Connections for the threads of a process.  An operation takes about a millisecond, most of it the disk's,
so four carry a thousand requests per second and process; and a database accepts a hundred connections by
default, which the workers of an application share."""


class Pool:
    """At most so many sessions at a time, dying ones included."""

    def __init__(self, open: Callable[[], Session], most: int = MOST) -> None:
        self._open = open
        self._most = most
        self._count = 0
        self._idle: list[Session] = []
        self._changed = threading.Condition()
        self._is_shut = False

    def take(self, until: float) -> Session:
        with self._changed:
            while True:
                if self._idle:
                    return self._idle.pop()
                if self._count < self._most:
                    self._count += 1
                    break
                if not self._changed.wait(until - time.monotonic()):
                    raise StoreUnavailable(
                        f"timed out waiting for a free connection to PostgreSQL: all {self._most} are in use"
                    )
        pending = PendingConnection()
        if not start(lambda: self._fetch(pending)):
            self._one_less()
            raise no_thread()
        return pending.wait(until)

    def give(self, session: Session) -> None:
        """Take it back, if it can be used again."""
        if not session.is_idle:
            discard(session, self._one_less)
            return
        with self._changed:
            if not self._is_shut:
                self._idle.append(session)
                self._changed.notify()
                return
        session.close()
        self._one_less()

    def empty(self) -> None:
        """One was found dead, so its idle siblings are not trusted."""
        with self._changed:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()
            self._one_less()

    def shut(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        with self._changed:
            self._is_shut = True
        self.empty()

    def _fetch(self, pending: "PendingConnection") -> None:
        try:
            session = self._open()
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self._one_less()
            pending.fail(error)
        else:
            if not pending.deliver(session):
                self.give(session)

    def _one_less(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()


class PendingConnection:
    """A connection that is being opened for a caller, which may stop waiting."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._lock = threading.Lock()
        self._abandoned = False
        self._session: Session | None = None
        self._error: BaseException | None = None

    def wait(self, until: float) -> Session:
        self._arrived.wait(until - time.monotonic())
        with self._lock:
            self._abandoned = True
        if self._session is not None:
            return self._session
        if isinstance(self._error, StoreError):
            raise self._error
        if self._error is not None:
            raise StoreUnavailable(f"cannot connect to PostgreSQL: {self._error!r}") from self._error
        raise StoreUnavailable("timed out connecting to PostgreSQL")

    def deliver(self, session: Session) -> bool:
        with self._lock:
            if self._abandoned:
                return False
            self._session = session
        self._arrived.set()
        return True

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._arrived.set()


def start(work: Callable[[], None]) -> bool:
    """Start it in a thread of its own, if one can be started."""
    try:
        threading.Thread(target=work, name="retrysafe-connect", daemon=True).start()
    except RuntimeError:  # the machine's limit, or the end of the interpreter
        return False
    return True


def no_thread() -> StoreUnavailable:
    return StoreUnavailable("cannot start a thread to connect to PostgreSQL")
