"""Everything about an SQLite store that could be wrong: the library, the directory, the disk, the file and
its records.

Nothing is created or changed, except the lock file and the log that come with opening a database.  A check
that fails is a finding, whatever it failed with, and the others go on.

The database file is opened by SQLite only: closing a file drops all locks that the process has on it,
SQLite's included.
"""

import contextlib
import os
import shlex
import shutil
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from retrysafe.stores.admin import Finding
from retrysafe.stores.queue import Row
from retrysafe.stores.retry import TookTooLong
from retrysafe.stores.sql import doctor
from retrysafe.stores.sql.sqlite import schema
from retrysafe.stores.sql.sqlite.clock import HostClock, boot_id
from retrysafe.stores.sql.sqlite.connection import Clock, Connection

Check = Callable[[], Iterator[Finding]]

_APART = 5.0
"""Seconds between the store's clock and the wall clock that are worth a warning: a disciplined clock stays
far below it, and leases of half a minute are not hurt by it."""

_FIXED = (3, 51, 3)
"""The first SQLite without the WAL-reset bug: see filelock.py."""

_MOUNTS = "/proc/self/mounts"

_NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda davfs fuse.glusterfs fuse.rclone fuse.s3fs fuse.sshfs glusterfs gpfs "
    "lustre ncpfs nfs nfs4 ocfs2 pvfs2 smb2 smb3 smbfs virtiofs vboxsf".split()
)
"""Where shared memory is not shared between all machines, or locks are not reliable: a log in WAL mode
needs both."""

_LITTLE = 1 << 30
_TOO_LITTLE = 64 << 20
"""Bytes.  With a gigabyte left the operator has time to act; with 64 MB the log and its checkpoint may not
fit."""

_LONG_LOG = 256 << 20
"""Bytes.  A log is started over at 4 MB, unless a reader stays in it; 64 times as much is not an accident."""


def examine(path: str, clock: Clock, deadline: float) -> list[Finding]:
    """Run every check."""
    around: list[tuple[str, Check]] = [
        ("SQLite", library),
        ("directory", lambda: directory(path)),
        ("filesystem", lambda: filesystem(path)),
        ("space", lambda: space(path)),
        ("file", lambda: file(path)),
        ("permissions", lambda: permissions(path)),
    ]
    findings = [finding for name, check in around for finding in doctor.run(name, check)]
    if any(finding.check == "file" and finding.level != "ok" for finding in findings):
        return findings  # there is nothing to open
    with contextlib.closing(Connection(path, "admin", clock, deadline)) as connection:
        return findings + _Examination(connection, clock).findings()


def library() -> Iterator[Finding]:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= _FIXED:
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
            "long as everything that writes to it goes through retrysafe",
            "write to this file through the guard only (sessionmaker(guard), begin(guard), "
            "retrysafe.sqlite3.connection), with no other connection and no other program; or use a Python "
            "that is linked with SQLite 3.51.3 or later",
        )
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
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
            "the log and the lock are created beside the file: give the user of the service write access to "
            "this directory",
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
            f"{path} does not exist yet",
            "the first guarded request of a service creates it, or `retrysafe migrate`; if it should exist, "
            "check the path",
        )
        return
    if not stat.S_ISREG(found.st_mode):
        yield Finding(
            "file", "problem", f"{path} is not a regular file", "name a file in the store's address"
        )
    elif not os.access(path, os.R_OK | os.W_OK):
        yield Finding(
            "file",
            "problem",
            f"{path} cannot be read and written by this user",
            "run as the user of the service, or give this user access",
        )
    else:
        yield Finding("file", "ok", f"{path}, {size(found.st_size)}")


def permissions(path: str) -> Iterator[Finding]:
    """Whether other users of the machine can read keys and responses.  The lock file is empty."""
    readable: list[str] = []
    reach = 0
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.stat(name).st_mode)
            if mode & (stat.S_IRGRP | stat.S_IROTH):
                readable.append(name)
                reach |= mode
    if os.name == "nt" or not os.path.exists(path):
        return  # rights are not in the mode there; and of a missing file another check says so
    if not readable:
        yield Finding("permissions", "ok", "only the owner of the file can read it")
        return
    readers = " and ".join(
        users
        for right, users in ((stat.S_IRGRP, "its group"), (stat.S_IROTH, "every user of this machine"))
        if reach & right
    )
    yield Finding(
        "permissions",
        "warning",
        f"{readers} can read {', '.join(readable)}, which hold keys, scopes and responses",
        f"run `chmod {'600' if reach & stat.S_IROTH else 'g-rw'} {' '.join(map(shlex.quote, readable))}`"
        + ("" if reach & stat.S_IROTH else ", unless the group shares the file on purpose"),
    )


def space(path: str) -> Iterator[Finding]:
    free = shutil.disk_usage(_existing(os.path.dirname(path))).free
    log = os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0
    found = f"{size(free)} free, log of {size(log)}"
    if free < _LITTLE:
        yield Finding(
            "space",
            "problem" if free < _TOO_LITTLE else "warning",
            found,
            "without space no request is accepted: free some space, or purge expired records, whose pages "
            "are reused",
        )
    elif log > _LONG_LOG:
        yield Finding(
            "space",
            "warning",
            found,
            "the log cannot be copied into the file while a reader holds it open: look for a program that "
            "has a transaction open on this file, such as a backup or a database browser",
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


class _Examination:
    """Of a database that is there."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._meta: schema.Meta = {}

    def findings(self) -> list[Finding]:
        found = doctor.run("schema", self._schema)
        if any(finding.level == "problem" for finding in found):
            return found  # the rest would fail for the same reason
        checks: list[tuple[str, Check]] = [
            ("writing", self._writing),
            ("durability", self._durability),
            ("clock", self._time),
            ("integrity", self._integrity),
            ("records", lambda: doctor.records(self._ask)),
            ("expired", lambda: doctor.expired(self._ask)),
            ("abandoned", lambda: doctor.abandoned(self._ask)),
            ("payloads", lambda: doctor.payloads(self._ask)),
        ]
        return found + [finding for name, check in checks for finding in doctor.run(name, check)]

    def _schema(self) -> Iterator[Finding]:
        with self._connection.session():
            found = list(doctor.tables(self._connection.query, schema.DIALECT, self._connection.path))
            if found[0].level != "problem":
                self._meta = schema.meta(self._connection)
        yield from found

    def _writing(self) -> Iterator[Finding]:
        with self._connection.transaction():
            pass  # both locks were acquired: SQLite's and the lock file's
        yield Finding("writing", "ok", "the file and its lock file can be locked")

    def _durability(self) -> Iterator[Finding]:
        # `synchronous` belongs to a connection: what this one says is not what those of a service do.
        with self._connection.session():
            [(journal,)] = self._connection.execute("PRAGMA journal_mode")
        if journal == "wal":
            yield Finding(
                "durability",
                "ok",
                "journal_mode wal; each connection of retrysafe sets synchronous to FULL before it writes, "
                "so what was acknowledged is on the disk",
            )
        else:
            yield Finding(
                "durability",
                "warning",
                f"journal_mode {journal}, expected wal",
                "services set it when they open the file: look for a program that sets it otherwise",
            )

    def _time(self) -> Iterator[Finding]:
        anchored = True
        if isinstance(self._clock, HostClock):
            anchored = self._clock.adopt(self._meta) and boot_id() is not None
        now = self._clock()
        apart = now - time.time()
        mark = self._meta.get("high_water")
        kind = (
            "counted from the boot"
            if anchored
            else "the wall clock, until a service has opened the file since boot"
        )
        if isinstance(self._clock, HostClock) and boot_id() is None:
            kind = "the wall clock: this system does not tell its boots apart"
        if isinstance(mark, float) and mark > now + _APART:
            yield Finding(
                "clock",
                "problem",
                f"a service wrote a time that is {mark - now:.0f} s ahead of the store's clock",
                "processes that share the file must share the machine's boot clock: look for a time "
                "namespace of its own (containers with an offset)",
            )
        elif abs(apart) > _APART:
            yield Finding(
                "clock",
                "warning",
                f"the store's clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the wall "
                "clock",
                "leases and expiry are not affected, but times that are shown are off: one of the clocks was "
                "wrong when the machine started; the store's clock is set by the next boot, and never back",
            )
        else:
            yield Finding("clock", "ok", f"{abs(apart):.1f} s from the wall clock; {kind}")

    def _integrity(self) -> Iterator[Finding]:
        try:
            with self._connection.limited(doctor.PATIENCE):
                rows = self._connection.execute("PRAGMA quick_check(5)")
        except TookTooLong:
            yield Finding(
                "integrity",
                "ok",
                f"no damage found in {doctor.PATIENCE:.0f} s; stopped there, because the file is large",
                f"when there is little traffic: sqlite3 '{self._connection.path}' 'PRAGMA quick_check'",
            )
            return
        if [row[0] for row in rows] == ["ok"]:
            yield Finding("integrity", "ok", "PRAGMA quick_check found no damage")
        else:
            yield Finding(
                "integrity",
                "problem",
                "; ".join(str(row[0]) for row in rows),
                "stop the services, keep a copy of the file with its -wal, and restore a backup or try "
                "`sqlite3 FILE .recover`",
            )

    def _ask(self, name: str) -> Sequence[Row]:
        """Run a statement by its name, for as long as it may take."""
        with self._connection.limited(doctor.PATIENCE):
            return self._connection.query(name, now=self._clock())
