"""Closes a connection whose statement was interrupted: in a thread, so that no caller waits for it.

The server may still be at work on what was asked, or wait for a lock on a whole table, which no
`lock_timeout` inside the statement could bound.  To close the connection would not stop it; so it is asked
to, within a second.  The connection counts as open until then: a server in trouble is not flooded with new
ones.
"""

import contextlib
import select
import threading
import time
from collections.abc import Callable

import psycopg
from psycopg import pq

from retrysafe.stores.sql.postgresql.session import Session

_PATIENCE = 1.0


def discard(session: Session, over: Callable[[], None]) -> None:
    """Close this session, then call `over`."""

    def work() -> None:
        try:
            _cancel(session)
        finally:
            session.close()
            over()

    try:
        threading.Thread(target=work, name="retrysafe-discard", daemon=True).start()
    except RuntimeError:  # no thread can be started: the interpreter ends, or the machine is at its limit
        session.close()
        over()


def _cancel(session: Session) -> None:
    if session.pgconn.status != pq.ConnStatus.OK or pq.version() < 170000:
        return  # gone already; or a libpq that could ask only without a deadline and without encryption
    until = time.monotonic() + _PATIENCE
    with contextlib.suppress(psycopg.Error, OSError):  # it was worth a try
        request = session.pgconn.cancel_conn()
        request.start()
        while (status := request.poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
            left = until - time.monotonic()
            if left <= 0:
                break
            reading = status == pq.PollingStatus.READING
            sockets = [request.socket]
            select.select(sockets if reading else [], [] if reading else sockets, [], left)
        request.finish()
