"""LISTEN: wakes requests that wait for a record when it is finished or released, so that they need not poll.

One thread and one connection per process, from the first waiting request on until there has been none for a
while.  A notification that is missed, because the thread was connecting or a pooler gives it no session of
its own, does no harm: waiting requests poll anyway, only less often.  So an error is logged for debugging
only.
"""

import logging
import os
import select
import threading
from collections.abc import Callable
from time import monotonic

import psycopg

from retrysafe.errors import StoreError
from retrysafe.stores.sql.postgresql.connect import Source
from retrysafe.stores.sql.postgresql.retry import PostgresTrouble
from retrysafe.stores.sql.postgresql.session import Session, wait

Wake = Callable[[], None]

_IDLE = 30.0
"""Seconds without a waiter until connection and thread are given back."""
_PAUSE = 5.0
"""Seconds until a lost connection is opened anew."""
_PATIENCE = 5.0

_log = logging.getLogger("retrysafe.store")


class Listener:
    """Calls subscribers, from its own thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._subscribers: dict[bytes, list[Wake]] = {}
        self._thread: threading.Thread | None = None
        self._alarm: int | None = None
        """The writing end of a pipe that ends the thread's waiting."""

    def subscribe(self, id: bytes, wake: Wake) -> Callable[[], None]:
        """Call `wake` when this record is finished or released.  Returns a function that unsubscribes."""
        with self._lock:
            self._subscribers.setdefault(id, []).append(wake)
            if self._thread is None:
                self._start()

        def unsubscribe() -> None:
            with self._lock:
                remaining = self._subscribers.get(id, [])
                if wake in remaining:
                    remaining.remove(wake)
                if not remaining:
                    self._subscribers.pop(id, None)

        return unsubscribe

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            if self._alarm is not None:
                os.write(self._alarm, b"!")
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def _start(self) -> None:
        try:
            bell, self._alarm = os.pipe()
        except OSError:  # no file descriptor left: waiting requests poll
            return
        self._thread = threading.Thread(
            target=self._run, args=(bell, self._alarm), name="retrysafe-listener", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # no thread can be started: waiting requests poll
            self._end(bell, self._alarm)
            self._thread = self._alarm = None

    def _end(self, bell: int, alarm: int) -> None:
        os.close(bell)
        os.close(alarm)

    def _run(self, bell: int, alarm: int) -> None:
        me = threading.current_thread()
        try:
            while self._thread is me:
                try:
                    if self._listen(me, bell):
                        return
                except (StoreError, PostgresTrouble, psycopg.Error, OSError) as error:
                    _log.debug("LISTEN failed, waiting requests poll instead: %s", error)
                _readable([bell], _PAUSE)
        finally:
            with self._lock:
                if self._thread is me:
                    self._thread = None
                if self._alarm == alarm:
                    self._alarm = None
                self._end(bell, alarm)

    def _listen(self, me: threading.Thread, bell: int) -> bool:
        """Until it is not needed any more: True; or until the connection is lost, which raises."""
        session = self._source.open()
        try:
            wait(session.command("LISTEN retrysafe"), session.socket, monotonic() + _PATIENCE)
            last = monotonic()
            while self._thread is me:
                _readable([bell, session.socket], _IDLE / 2)
                for id in _notified(session):
                    self._wake(id)
                with self._lock:
                    if self._subscribers:
                        last = monotonic()
                    elif monotonic() - last > _IDLE and self._thread is me:
                        self._thread = None
            return True
        finally:
            session.close()

    def _wake(self, id: bytes) -> None:
        with self._lock:
            wakes = list(self._subscribers.get(id, ()))
        for wake in wakes:
            try:
                wake()
            except Exception as error:  # noqa: BLE001 - the others are to be woken all the same
                _log.debug("a waiting request could not be woken: %r", error)


def _notified(session: Session) -> list[bytes]:
    """The records of the notifications since the last time."""
    session.pgconn.consume_input()
    found: list[bytes] = []
    while (notice := session.pgconn.notifies()) is not None:
        try:
            found.append(bytes.fromhex(notice.extra.decode()))
        except ValueError:  # another program uses this channel, too
            continue
    return found


def _readable(sockets: list[int], seconds: float) -> None:
    if hasattr(select, "poll"):
        poll = select.poll()
        for socket in sockets:
            poll.register(socket, select.POLLIN)
        poll.poll(seconds * 1000)
    else:  # Windows
        select.select(sockets, [], [], seconds)
