"""No connection is open while the process forks.

SQLite keeps its locks per process, in memory that a child inherits: the child would believe that it holds the
parent's locks, or wait forever for a thread that did not come along.  So a fork waits until no thread is
using a connection, which takes a few deadlines at most, and closes them all.  Parent and child open their own
when they next need one.

Should a connection have stayed open, because it was stuck or because the fork came from C code that does not
announce it, the child refuses to use that file rather than to damage it.
"""

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING

from retrysafe.errors import StoreUnavailable

if TYPE_CHECKING:
    from retrysafe.stores.sql.sqlite.connection import Connection

_GRACE = 1.0
"""Seconds beyond the patience of a connection, which it may need twice: for the flush at its end."""

_connections: "weakref.WeakSet[Connection]" = weakref.WeakSet()
_held: "list[Connection]" = []
_stuck: "list[Connection]" = []
_gate = threading.Lock()


def watch(connection: "Connection") -> None:
    """Close this connection before every fork."""
    with _gate:
        _connections.add(connection)


def check(path: str) -> None:
    """Whether this process may open this file."""
    if any(connection.path == path for connection in _stuck):
        raise StoreUnavailable(
            f"this process was forked while {path} was open, and SQLite cannot open it here again: "
            "fork before the store is first used, or start workers with spawn"
        )


def _before() -> None:
    _gate.acquire()
    for connection in list(_connections):
        if connection.in_use.acquire(timeout=2 * connection.patience + _GRACE):
            connection.shut()
            _held.append(connection)


def _after_in_parent() -> None:
    while _held:
        _held.pop().in_use.release()
    _gate.release()


def _after_in_child() -> None:
    global _gate
    _gate = threading.Lock()
    while _held:
        _held.pop().in_use.release()
    _stuck.extend(connection for connection in _connections if connection.is_open)
    if _stuck:
        with contextlib.suppress(ImportError, AttributeError):
            # Not even the end of the interpreter may close them: one reference too many for each.
            import ctypes

            for connection in _stuck:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
