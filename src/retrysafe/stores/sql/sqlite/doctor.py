"""Everything about an SQLite store that could be wrong, looked at in turn.

Nothing is made and nothing is changed, but for the lock file and the log that opening a database brings
along. A check that fails is a finding, whatever it failed with, and the others go on.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from retrysafe.errors import SchemaMismatch, StoreError
from retrysafe.stores.admin import Finding
from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.sqlite import opening, surroundings
from retrysafe.stores.sql.sqlite.clock import HostClock, boot_id
from retrysafe.stores.sql.sqlite.connection import Clock, Connection, TookTooLong

Check = Callable[[], Iterator[Finding]]

_APART = 5.0
"""Seconds between the store's clock and the wall clock that are worth a warning: a disciplined clock stays
far below it, and leases of half a minute are not hurt by it."""

_BACKLOG = 100_000
"""Expired records that are worth a warning: services keep up with what they make, so somebody has stopped."""

_PATIENCE = 10.0
"""Seconds for one walk through the file.  That is some gigabytes; for more, an operator decides when."""


def examine(path: str, clock: Clock, deadline: float) -> list[Finding]:
    """Look at everything."""
    around: list[tuple[str, Check]] = [
        ("SQLite", surroundings.library),
        ("directory", lambda: surroundings.directory(path)),
        ("filesystem", lambda: surroundings.filesystem(path)),
        ("space", lambda: surroundings.space(path)),
        ("file", lambda: surroundings.file(path)),
    ]
    findings = [finding for name, check in around for finding in _run(name, check)]
    if any(finding.check == "file" and finding.level != "ok" for finding in findings):
        return findings  # there is nothing to open
    with contextlib.closing(Connection(path, "admin", clock, deadline)) as connection:
        return findings + _Examination(connection, clock).findings()


class _Examination:
    """Of a database that is there."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._meta: opening.Meta = {}

    def findings(self) -> list[Finding]:
        found = _run("schema", self._schema)
        if any(finding.level == "problem" for finding in found):
            return found  # the rest would fail for the same reason
        checks: list[tuple[str, Check]] = [
            ("writing", self._writing),
            ("durability", self._durability),
            ("clock", self._time),
            ("integrity", self._integrity),
            ("records", self._records),
            ("expired", self._expired),
            ("abandoned", self._abandoned),
        ]
        return found + [finding for name, check in checks for finding in _run(name, check)]

    def _schema(self) -> Iterator[Finding]:
        try:
            with self._connection.session():
                meta = opening.read_meta(self._connection)
                there = opening.present(self._connection)
        except SchemaMismatch as mismatch:
            yield Finding("schema", "problem", str(mismatch))
            return
        if meta is None:
            yield Finding(
                "schema",
                "problem",
                f"{self._connection.path} has no tables of retrysafe, or none that say their version",
                "`retrysafe migrate` makes what is missing; if there should be some, look at the path",
            )
            return
        self._meta = meta
        slow = [index for index in opening.INDEXES if index not in there]
        if slow:
            yield Finding(
                "schema",
                "warning",
                f"the index {' and '.join(slow)} is missing: removing expired records walks through the "
                "table",
                "`retrysafe migrate` makes it",
            )
        else:
            yield Finding("schema", "ok", f"version {opening.SCHEMA}, all tables are there")

    def _writing(self) -> Iterator[Finding]:
        with self._connection.transaction():
            pass  # the write lock was to be had, and so was the lock file
        yield Finding("writing", "ok", "the file and its lock can be had")

    def _durability(self) -> Iterator[Finding]:
        with self._connection.session():
            [(journal,)] = self._connection.execute("PRAGMA journal_mode")
            [(synchronous,)] = self._connection.execute("PRAGMA synchronous")
        found = f"journal_mode {journal}, synchronous {synchronous}"
        if journal == "wal" and synchronous == 2:
            yield Finding("durability", "ok", f"{found}: what was answered is on the disk")
        else:
            yield Finding(
                "durability",
                "warning",
                f"{found}, expected wal and 2 (FULL)",
                "services set both when they open the file: look for a program that sets them otherwise",
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
                "leases and expiry are not hurt, but times that are shown are off: one of them was wrong "
                "when the machine started; the store is set anew by the next boot, and never back",
            )
        else:
            yield Finding("clock", "ok", f"{abs(apart):.1f} s from the wall clock; {kind}")

    def _integrity(self) -> Iterator[Finding]:
        rows = self._walk("PRAGMA quick_check(5)")
        if rows is None:
            yield Finding(
                "integrity",
                "ok",
                f"no damage found in {_PATIENCE:.0f} s, and then broken off: the file is large",
                f"at a quiet hour: sqlite3 '{self._connection.path}' 'PRAGMA quick_check'",
            )
        elif [row[0] for row in rows] == ["ok"]:
            yield Finding("integrity", "ok", "PRAGMA quick_check found no damage")
        else:
            yield Finding(
                "integrity",
                "problem",
                "; ".join(str(row[0]) for row in rows),
                "stop the services, keep a copy of the file with its -wal, and restore a backup or try "
                "`sqlite3 FILE .recover`",
            )

    def _records(self) -> Iterator[Finding]:
        rows = self._walk("unreadable")
        if rows is None:
            yield _too_many("records")
        elif rows[0][0]:
            number, id = rows[0]
            name = id.hex()[:8] if isinstance(id, bytes) else "one without an id"
            yield Finding(
                "records",
                "problem",
                f"{number} records cannot be read by this release, among them {name}",
                "their keys answer 503 for ever: use the release that wrote them, or remove these rows by "
                "hand",
            )
        else:
            yield Finding("records", "ok", "version and state of every record are known")

    def _expired(self) -> Iterator[Finding]:
        rows = self._walk("backlog")
        if rows is None:
            yield _too_many("expired")
        elif (number := cast(int, rows[0][0])) > _BACKLOG:
            yield Finding(
                "expired",
                "warning",
                f"{number} expired records wait to be removed",
                "run `retrysafe purge` regularly",
            )
        else:
            yield Finding("expired", "ok", f"{number} expired records wait to be removed")

    def _abandoned(self) -> Iterator[Finding]:
        rows = self._walk("waiting")
        if rows is None:
            yield _too_many("abandoned")
            return
        number, oldest = rows[0]
        if number:
            age = self._clock() - cast(float, oldest)
            yield Finding(
                "abandoned",
                "warning",
                f"the outcome of {number} requests is not known, the oldest of {age / 3600:.1f} hours ago",
                "`retrysafe ls --state abandoned` lists them; find out what happened, then `retrysafe "
                "resolve` or `retrysafe release`",
            )
        else:
            yield Finding("abandoned", "ok", "no outcome is unknown")

    def _walk(self, statement: str) -> Sequence[Row] | None:
        """What a statement finds, or nothing, if it takes too long."""
        try:
            with self._connection.limited(_PATIENCE):
                if statement.startswith("PRAGMA"):
                    return self._connection.execute(statement)
                return self._connection.query(statement, now=self._clock())
        except TookTooLong:
            return None


def _too_many(check: str) -> Finding:
    return Finding(
        check, "ok", f"not counted: it would take more than {_PATIENCE:.0f} s", "`retrysafe stats` counts"
    )


def _run(name: str, check: Check) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except StoreError as error:
        findings.append(Finding(name, "problem", str(error)))
    except Exception as error:  # noqa: BLE001 - an operator is told of it, whatever it is
        findings.append(
            Finding(name, "problem", f"this could not be looked at: {type(error).__name__}: {error}")
        )
    return findings
