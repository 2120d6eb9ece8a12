"""The operator's end of an SQLite file: a connection of its own, which reads past any lock and writes in
turns.

It opens an existing file and never makes one, `migrate` aside.
"""

import contextlib
import logging
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

from retrysafe._core.model import Door, Final, Purged, Record
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.admin import Entry, Finding, Index, Note, Query, Sighting, Statistics
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import admin_operations
from retrysafe.stores.sql.export import exported
from retrysafe.stores.sql.migrations import source
from retrysafe.stores.sql.schema import done
from retrysafe.stores.sql.sqlite import schema
from retrysafe.stores.sql.sqlite.connection import Clock, Connection

T = TypeVar("T")

_log = logging.getLogger("retrysafe.store")

_STEP = 200
"""Rows removed in one commit.  It takes a few milliseconds, and then others have their turn."""

_REST = 12
"""While others write, a purge rests for so many times as long as it has just held the lock: it has a
thirteenth of the lock's time.  They also lose a little by having to read pages anew, so it is not more."""

_TURN = 0.002
"""Seconds of rest in any case.  A process that waits for the lock tries every half a millisecond, and must
find it free before it is taken again; only then can it be seen that another process writes."""


class SQLiteAdmin:
    """Opens its connection when it is first used, and again after trouble."""

    def __init__(self, path: str, clock: Clock, deadline: float) -> None:
        self._path = path
        self._clock = clock
        self._deadline = deadline
        self._connection: Connection | None = None

    def list(self, query: Query, limit: int = 100) -> Sequence[Sighting]:
        return self._read(admin_operations.listing(query, limit, bodies=False))

    def find(self, query: Query, limit: int = 10) -> Sequence[Sighting]:
        return self._read(admin_operations.listing(query, limit, bodies=True))

    def export(self, expiring: float | None = None, door: Door | None = None) -> Iterator[Record]:
        return exported(self._read, expiring, door)

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
        writes = self._writes_of_others()
        while removed < limit:
            wanted = min(_STEP, limit - removed)
            with self._use() as connection:
                with connection.transaction():
                    began = time.monotonic()  # not before: waiting for the lock costs the others nothing
                    step, entry = connection.perform(admin_operations.purge(wanted, note, removed, entry))
                took = time.monotonic() - began
            removed += step.records
            unresolved += step.unresolved
            for record in step.unresolved:
                _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])
            if step.records < wanted:
                break
            time.sleep(_TURN)
            before, writes = writes, self._writes_of_others()
            if writes != before:
                time.sleep(took * _REST)
        return Purged(removed, unresolved)

    def diagnose(self) -> Sequence[Finding]:
        # Here and not above: services never ask, and need not load what it looks at.
        from retrysafe.stores.sql.sqlite.doctor import examine

        return examine(self._path, self._clock, self._deadline)

    def migrate(self, indexes: Sequence[Index] = ()) -> str:
        self.close()
        return done(schema.migrate(self._path, self._clock, self._deadline, indexes), schema.DIALECT)

    def schema(self) -> str:
        return source(schema.DIALECT)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _use(self) -> Generator[Connection]:
        if self._connection is None:
            self._connection = schema.open_existing(self._path, self._clock, self._deadline)
        try:
            yield self._connection
        except StoreUnavailable:
            self.close()  # and opened anew by the next one
            raise

    def _read(self, operation: Operation[T]) -> T:
        with self._use() as connection, connection.snapshot():
            return connection.perform(operation)

    def _write(self, operation: Operation[T]) -> T:
        with self._use() as connection, connection.transaction():
            return connection.perform(operation)

    def _writes_of_others(self) -> object:
        """A number that changes when another connection has written."""
        with self._use() as connection, connection.session():
            return connection.execute("PRAGMA data_version")
