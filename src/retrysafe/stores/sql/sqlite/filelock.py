"""A lock beside the database, held by the process that writes or checkpoints.

SQLite before 3.51.3 can lose commits when one connection starts the write-ahead log over while another copies
it into the database ("the WAL-reset bug").  SQLite's own write lock does not cover both, so each writer takes
this one first and keeps it until its commit, and the checkpoint that a commit may set off, are over.  Writers
exclude each other anyway; all this adds is that they also wait for checkpoints.

It is also fairer: SQLite tries for its lock at growing intervals, up to 100 ms, so that a process that has
waited long waits longer; here all try equally often.

It is an `flock` and dies with its process.  Where there is none (Windows), nothing is locked; use SQLite
3.51.3 or later there.
"""

import os
import re
import sys
import time
import weakref
from collections.abc import Callable

from retrysafe._core.attempt import Unclaimed, unclaimed
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.sqlite.file import open_beside

if sys.platform != "win32":
    import fcntl

    def _try(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _free(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

else:

    def _try(_fd: int) -> bool:
        return True

    def _free(_fd: int) -> None:
        pass


PAUSE = 0.0005
"""Seconds between two tries: about as long as a commit takes.  To wait in the kernel would be fairer still,
but could not be bounded, should the holder be frozen."""


class FileLock:
    """One holder's end of the lock."""

    def __init__(self, database: str) -> None:
        flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
        self._fd = open_beside(database, f"{database}-lock", flags)
        _open.add(self)

    def acquire(self, patience: float, sleep: Callable[[float], None] = time.sleep) -> None:
        until = time.monotonic() + patience
        while not self.try_acquire():
            if time.monotonic() >= until:
                raise StoreUnavailable(
                    f"timed out after {patience:g} s: another process is writing; nothing was done"
                )
            sleep(PAUSE)

    def try_acquire(self) -> bool:
        return _try(self._fd)

    def release(self) -> None:
        _free(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


_READS = re.compile(
    r"(?:\s|;|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)*"  # what may stand before the first word
    r"(?:(?:SELECT|VALUES|EXPLAIN|PRAGMA)\b|$)",
    re.I,
)
_WRITING_PRAGMA = re.compile(
    r"PRAGMA\s+(?:\w+\s*\.\s*)?"
    r"(?:wal_checkpoint|journal_mode|optimize|incremental_vacuum|user_version|application_id)",
    re.I,
)


def may_write(sql: str) -> bool:
    """Whether a statement may write to the database or checkpoint it, by its first word.

    A `WITH` may belong to either, so it counts as one that writes.
    """
    return _READS.match(sql) is None or _WRITING_PRAGMA.search(sql) is not None


class WriteLock:
    """The lock for a connection that is not the store's: taken before its first write, until it has ended.

    Reads take nothing, so that they go on while another connection writes.
    """

    def __init__(self, database: str, patience: float, sleep: Callable[[float], None] = time.sleep) -> None:
        self._database = database
        self._patience = patience
        self._sleep = sleep
        self._lock: FileLock | None = None
        self._unclaimed: Unclaimed | None = None

    def acquire_for(self, sql: str) -> None:
        if self._lock is None and may_write(sql):
            lock = FileLock(self._database)
            try:
                lock.acquire(self._patience, self._sleep)
            except BaseException:
                lock.close()
                raise
            self._lock = lock
            self._unclaimed = unclaimed()
            if self._unclaimed is not None:
                self._unclaimed.writers.append(self)

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()
            if self._unclaimed is not None:
                self._unclaimed.writers.remove(self)


_open: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _drop_inherited() -> None:
    """A child shares the parent's lock, and would keep it alive if the parent died holding it.

    Closing the child's descriptor does not free the lock while the parent has its own.
    """
    for lock in list(_open):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_inherited)
