"""What an SQLite file depends on besides itself: the library, its directory, the disk.

The database is never opened here with anything but SQLite: closing a file drops all locks that the process
has on it, SQLite's among them.
"""

import os
import shutil
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing

from retrysafe.stores.admin import Finding

_MENDED = (3, 51, 3)
"""The first SQLite without the WAL-reset bug: see filelock.py."""

_MOUNTS = "/proc/self/mounts"

_NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda davfs fuse.glusterfs fuse.rclone fuse.s3fs fuse.sshfs glusterfs gpfs "
    "lustre ncpfs nfs nfs4 ocfs2 pvfs2 smb2 smb3 smbfs virtiofs vboxsf".split()
)
"""Where shared memory is not shared with everybody who has the file, or locks are not kept: a log in WAL mode
needs both."""

_LITTLE = 1 << 30
_TOO_LITTLE = 64 << 20
"""Bytes.  With a gigabyte left somebody has time to act; with 64 MB the log and its checkpoint may not
fit."""

_LONG_LOG = 256 << 20
"""Bytes.  A log is started over at 4 MB, unless a reader stays in it; 64 times as much is no accident."""


def library() -> Iterator[Finding]:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= _MENDED:
        yield Finding("SQLite", "ok", version)
    elif sys.platform == "win32":
        yield Finding(
            "SQLite",
            "problem",
            f"{version} has the WAL-reset bug, which can corrupt the file, and Windows has no lock against "
            "it",
            "use a Python that is linked with SQLite 3.51.3 or later",
        )
    else:
        yield Finding(
            "SQLite",
            "warning",
            f"{version} has the WAL-reset bug, which can corrupt the file; the lock file protects it for as "
            "long as only retrysafe writes to it or checkpoints it",
            "let no other program write to this file, or use a Python that is linked with SQLite 3.51.3 or "
            "later",
        )
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("SELECT json_valid('[]')")
    except sqlite3.Error as error:
        yield Finding(
            "SQLite",
            "problem",
            f"it was built without JSON ({error}): requests do not need it, but lists do",
            "use a Python that is linked with SQLite 3.38 or later, which always has it",
        )


def directory(path: str) -> Iterator[Finding]:
    """Whether the files beside the database can be made: the log, the shared memory and the lock."""
    place = os.path.dirname(path)
    try:
        with tempfile.TemporaryFile(dir=place):  # without a name, where the system has such files
            pass
    except OSError as error:
        yield Finding(
            "directory",
            "problem",
            f"{place} cannot be written to: {error.strerror}",
            "the log and the lock are made beside the file: give the user who runs the service this "
            "directory",
        )
    else:
        yield Finding("directory", "ok", f"{place} can be written to")


def file(path: str) -> Iterator[Finding]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        yield Finding(
            "file",
            "warning",
            f"there is no {path} yet",
            "it is made by the first request that a service guards, or by `retrysafe migrate`; if there "
            "should be one, look at the path",
        )
        return
    if not stat.S_ISREG(found.st_mode):
        yield Finding("file", "problem", f"{path} is no file", "name a file in the store's address")
    elif not os.access(path, os.R_OK | os.W_OK):
        yield Finding(
            "file",
            "problem",
            f"{path} cannot be read and written by this user",
            "run as the user of the service, or give this one the right to",
        )
    else:
        yield Finding("file", "ok", f"{path}, {size(found.st_size)}")


def space(path: str) -> Iterator[Finding]:
    free = shutil.disk_usage(_existing(os.path.dirname(path))).free
    log = os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0
    found = f"{size(free)} free, log of {size(log)}"
    if free < _LITTLE:
        yield Finding(
            "space",
            "problem" if free < _TOO_LITTLE else "warning",
            found,
            "without space no request is accepted: make room, or purge expired records, whose pages are "
            "used again",
        )
    elif log > _LONG_LOG:
        yield Finding(
            "space",
            "warning",
            found,
            "the log is copied into the file as long as nobody reads for minutes: look for a program that "
            "keeps a transaction open on this file, such as a backup or a database browser",
        )
    else:
        yield Finding("space", "ok", found)


def filesystem(path: str) -> Iterator[Finding]:
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            kind = kind_of(os.path.realpath(path), mounts.read().splitlines())
    except OSError:
        yield Finding(
            "filesystem", "ok", "not known on this system", "make sure that it is a disk of this machine"
        )
        return
    if kind in _NETWORK:
        yield Finding(
            "filesystem",
            "problem",
            f"{kind} is shared with other machines",
            "SQLite's log works on a disk of one machine only, and would lose records here: move the file",
        )
    else:
        yield Finding("filesystem", "ok", kind)


def kind_of(path: str, mounts: Sequence[str]) -> str:
    """The type of the mount that this path is on, from lines of `/proc/mounts`."""
    best, kind = "", "unknown"
    for line in mounts:
        _, point, found, *_ = line.split(" ")
        # Blanks and the like are written in octal.
        point = point.encode("utf-8", "surrogateescape").decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two mounts on one point the later one is seen
            best, kind = point, found
    return kind


def size(number: int) -> str:
    """Bytes, for people."""
    amount, unit = float(number), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


def _existing(place: str) -> str:
    while not os.path.exists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    return place
