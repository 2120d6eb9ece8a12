"""The database file: created for its owner alone, and missed when its path names another file.

A process goes on reading and writing a file that was deleted or replaced by a rename, and nothing fails.
Processes that start later open, or create, the file that the path names now.  Each half then accepts keys
that the other half has accepted already.  So a store remembers the file that it began with and compares it
with what its path names: before and after every commit, and once a second where it only reads.  On a
difference every operation is refused.

It stays refused until the original file is back, or the store is closed, or the process restarted.  To open
the new file instead would be wrong: claims that are recorded in the old one alone are still running, here or
in other workers, and would be fresh in the new one.  Restarting ends those handlers first.

The log (`-wal`) is compared too: it holds the latest records, no connection deletes it while another one has
it open, and a process that opens the database without it has an older state.

Not noticed: a copy that was written *into* the file by another program.  The path then names the same file.
Windows does not delete or rename a file that SQLite has open.
"""

import contextlib
import logging
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from retrysafe.errors import StoreUnavailable

C = TypeVar("C", bound=sqlite3.Connection)

_log = logging.getLogger("retrysafe.store")

_OWNER_ALONE = 0o600
"""Records hold the keys, the scopes and the responses of all users of the service."""

_TRIES = 3
"""To open a file that was the same before and after.  On an overlay filesystem the first one that writes to a
file of a lower layer makes a copy of it, which is another file; the next try then finds this one."""

LOOK_EVERY = 1.0
"""Seconds between two looks at what is not looked at with every commit: a replay from a deleted file is still
the right response, so it may be a little late, and looking takes as long as a tenth of a replay."""

Identity = tuple[int, int]
"""Device and inode: a file, whatever its name."""


class FileReplaced(StoreUnavailable):
    """The path of the store does not name the file that the store has open."""


class Opened(NamedTuple):
    """The files that one connection has open."""

    database: Identity
    log: Identity | None


class DatabaseFile:
    """The file of a store, shared by its connections."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lost: str | None = None
        """The file that was missed by the last look: the database or its log."""
        self._first: Identity | None = None

    def connect(self, connect: Callable[[str], C], *, create: bool) -> tuple[C, Identity]:
        """Open the file that the store began with; without one, whatever there is.

        SQLite creates no file: it would be readable by all users, and perhaps in the place of a deleted one.
        """
        for _ in range(_TRIES):
            before = _identify(self.path)
            if self._first is None:
                if before is None and create:
                    create_private(self.path)
                    before = _identify(self.path)
            elif before != self._first:
                raise self._missed(self.path, before)
            elif self.lost is not None and self.lost != self.path:
                # Only a connection that has the original log open can find that it is back.
                raise self._missed(self.lost, self.log_identity())
            connection = connect(f"{Path(self.path).as_uri()}?mode=rw")
            if before is not None and _identify(self.path) == before:
                return connection, before
            connection.close()
        raise StoreUnavailable(f"{self.path} was replaced several times while it was opened: try again")

    @property
    def is_known(self) -> bool:
        """Whether a store was found in it, or created, so that its tables and its clock can be relied on."""
        return self._first is not None

    def log_identity(self) -> Identity | None:
        return _identify(f"{self.path}-wal")

    def begin_with(self, found: Identity) -> None:
        """From now on this is the file of the store: a connection has found a store in it."""
        if self._first is None:
            self._first = found
        elif self._first != found:
            raise self._missed(self.path, found)

    def forget(self) -> None:
        """The store was closed, and may be used with another file."""
        self._first = None
        self.lost = None

    def verify(self, opened: Opened | None = None, *, log: bool = False) -> None:
        """Refuse, unless the path names the files that a connection has open, or the store began with."""
        expected = opened.database if opened is not None else self._first
        if expected is None:
            return
        try:
            found = _identify(self.path)
            if found != expected:
                raise self._missed(self.path, found)
            if log and opened is not None and opened.log is not None:
                found = self.log_identity()
                if found != opened.log:
                    raise self._missed(f"{self.path}-wal", found)
        except OSError:
            return  # what cannot be looked at is not known to be gone, and SQLite has it open
        if self.lost and log:
            self.lost = None
            _log.warning("%s is the original file again: requests are accepted", self.path)

    def _missed(self, path: str, found: Identity | None) -> FileReplaced:
        what = "deleted" if found is None else "replaced by another file"
        message = (
            f"{path} was {what} while this process had it open. Records of this process are not seen by "
            f"processes that open {self.path} now, and keys would be accepted twice: put the original file "
            "back, or restart every worker"
        )
        before, self.lost = self.lost, path
        if before is None:
            _log.error("every operation is refused: %s", message)
        return FileReplaced(message)


def create_private(path: str) -> None:
    """Create an empty database that only its owner can read, whatever the umask says, if there is none.

    SQLite gives the log and the shared memory the mode of the database.  A file that exists keeps its mode:
    it may be shared with a group on purpose.
    """
    # What a link points to may be missing, too.  Where it cannot be created, SQLite says so.
    with contextlib.suppress(OSError):
        _create_private(os.path.realpath(path))


def _create_private(path: str) -> None:
    try:
        # Without opening it: closing a file drops all locks that the process has on it, and a connection of
        # the application's may have opened it in this moment.
        os.mknod(path, stat.S_IFREG | _OWNER_ALONE)
    except FileExistsError:
        raise
    except (AttributeError, OSError):  # Windows has no such function, and macOS only for root
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ALONE))


def open_beside(database: str, path: str, flags: int) -> int:
    """Open a file beside the database, and create it with the mode of the database, as SQLite does.

    A file of root's that the service cannot open would stop it, so it gets the owner of the database, too.
    """
    with contextlib.suppress(FileExistsError):
        try:
            like = os.stat(database)
        except OSError:
            like = None
        mode = _OWNER_ALONE if like is None else stat.S_IMODE(like.st_mode) & 0o666
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
        if like is not None and hasattr(os, "fchmod"):
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, mode)  # past the umask
                if os.geteuid() == 0:
                    os.fchown(descriptor, like.st_uid, like.st_gid)
        return descriptor
    return os.open(path, flags | os.O_CREAT, _OWNER_ALONE)


def _identify(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
