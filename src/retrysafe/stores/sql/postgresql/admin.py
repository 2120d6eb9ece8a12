"""The operator's end of PostgreSQL: a session of its own, which reads in snapshots and writes in turns.

It looks before it uses: tables of another version, or none, are answered with `SchemaMismatch`, and nothing
is made, `migrate` aside.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from retrysafe._core.model import Final, Purged, Record
from retrysafe.stores.admin import Entry, Finding, Note, Query, Sighting, Statistics
from retrysafe.stores.sql import admin_operations
from retrysafe.stores.sql.operations import Operation
from retrysafe.stores.sql.postgresql import layout, migration
from retrysafe.stores.sql.postgresql.desk import SNAPSHOT, WALK, WRITE, Desk, Session
from retrysafe.stores.sql.statements import source

T = TypeVar("T")

_log = logging.getLogger("retrysafe.store")

_STEP = 500
"""Rows removed in one commit.  It takes a few milliseconds.  Nobody waits for it: a request whose own expired
record is among them waits at the most until its commit."""

_REST = 4
"""A purge rests for so many times as long as a step took, so it has a fifth of a processor and of the disk's
time, however slow they are."""

_TURN = 0.002
"""Seconds of rest in any case."""


class PostgresAdmin:
    """The operator's end.  `connect` opens a session that is nobody else's."""

    def __init__(self, connect: Callable[[], Session], deadline: float) -> None:
        self._connect = connect
        self._deadline = deadline
        self._desk = Desk(connect, deadline)
        self._known = False

    def list(self, query: Query, limit: int = 100) -> Sequence[Sighting]:
        return self._read(admin_operations.sightings(query, limit, bodies=False))

    def find(self, query: Query, limit: int = 10) -> Sequence[Sighting]:
        return self._read(admin_operations.sightings(query, limit, bodies=True))

    def statistics(self, groups: int = 20) -> Statistics:
        return self._read(admin_operations.statistics(groups))

    def expired(self) -> int:
        return self._read(admin_operations.expired())

    def audit(self, limit: int = 100, id: str | None = None) -> Sequence[Entry]:
        return self._read(admin_operations.audit(limit, id))

    def release(self, seen: Record, note: Note, *, settled: bool = False) -> bool:
        return self._write(admin_operations.release(seen, note, settled=settled))

    def resolve(self, seen: Record, final: Final, note: Note) -> bool:
        return self._write(admin_operations.resolve(seen, final, note))

    def purge(self, limit: int, note: Note | None = None) -> Purged:
        removed, unresolved, entry = 0, tuple[Record, ...](), None
        while removed < limit:
            wanted = min(_STEP, limit - removed)
            began = time.monotonic()
            step, entry = self._write(admin_operations.purge(wanted, note, removed, entry))
            took = time.monotonic() - began
            removed += step.records
            unresolved += step.unresolved
            for record in step.unresolved:
                _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])
            if step.records < wanted:
                break
            time.sleep(_TURN + took * _REST)
        return Purged(removed, unresolved)

    def diagnose(self) -> Sequence[Finding]:
        # Here and not above: services never ask, and need not load what it looks at.
        from retrysafe.stores.sql.postgresql.doctor import examine

        return examine(self._connect, self._deadline)

    def migrate(self) -> str:
        made = migration.migrate(self._desk)
        self._known = True
        if made:
            return f"made {', '.join(made)}"
        return f"nothing to do: the tables have version {layout.SCHEMA}"

    def schema(self) -> str:
        return source("postgresql", "schema")

    def close(self) -> None:
        self._desk.close()
        self._known = False

    def _read(self, operation: Operation[T]) -> T:
        return self._perform(operation, SNAPSHOT)

    def _write(self, operation: Operation[T]) -> T:
        return self._perform(operation, WRITE)

    def _perform(self, operation: Operation[T], begin: str) -> T:
        if not self._known:
            migration.check(self._desk)
            self._known = True
        with self._desk.transaction(begin, WALK) as transaction:
            return transaction.perform(operation)
