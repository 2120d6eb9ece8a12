"""A file that is locked for as long as a process lives, with the id of that process in it."""

import fcntl
import os
from pathlib import Path


def take(path: Path) -> int | None:
    """A descriptor that holds the lock, also in a process that inherits it; `None` if another one does."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    os.ftruncate(lock, 0)  # the process that it names is gone
    return lock


def note(lock: int, process: int) -> None:
    """Say whose lock it is."""
    os.pwrite(lock, str(process).encode(), 0)


def holder(path: Path) -> int | None:
    """The id of the process that holds the lock; `None` if none does, or if it is not noted yet."""
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who look do not see each other
    except BlockingIOError:
        noted = os.pread(lock, 20, 0)
        return int(noted) if noted else None
    else:
        return None
    finally:
        os.close(lock)
