"""The operator's end of an SQLite file: a connection of its own, which reads past any lock and writes in
turns.

It opens an existing file and never makes one, `migrate` aside.
"""

import contextlib
import time
from collections.abc import Generator, Sequence
from typing import TypeVar

from retrysafe._core.model import Door, Purged
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.admin import Finding, Index, Note
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql.admin import SQLAdmin
from retrysafe.stores.sql.admin_operations import PurgeStep
from retrysafe.stores.sql.sqlite import schema
from retrysafe.stores.sql.sqlite.connection import Clock, Connection

T = TypeVar("T")

_REST = 12
"""While others write, a purge rests for so many times as long as it has just held the lock: it has a
thirteenth of the lock's time.  They also lose a little by having to read pages anew, so it is not more."""

_TURN = 0.002
"""Seconds of rest in any case.  A process that waits for the lock tries every half a millisecond, and must
find it free before it is taken again; only then can it be seen that another process writes."""


class SQLiteAdmin(SQLAdmin):
    """Opens its connection when it is first used, and again after trouble."""

    dialect = schema.DIALECT
    step = 200

    def __init__(self, path: str, clock: Clock, deadline: float) -> None:
        self._path = path
        self._clock = clock
        self._deadline = deadline
        self._connection: Connection | None = None
        self._writes: object = None

    def purge(self, limit: int, note: Note | None = None, door: Door | None = None) -> Purged:
        self._writes = self._writes_of_others()
        return super().purge(limit, note, door)

    def _purge_step(self, operation: Operation[PurgeStep]) -> tuple[PurgeStep, float]:
        with self._use() as connection:
            with connection.transaction():
                began = time.monotonic()  # not before: waiting for the lock costs the others nothing
                step = connection.perform(operation)
            return step, time.monotonic() - began

    def _rest(self, took: float) -> None:
        time.sleep(_TURN)
        before, self._writes = self._writes, self._writes_of_others()
        if self._writes != before:
            time.sleep(took * _REST)

    def diagnose(self) -> Sequence[Finding]:
        # Here and not above: services never ask, and need not load what it looks at.
        from retrysafe.stores.sql.sqlite.doctor import examine

        return examine(self._path, self._clock, self._deadline)

    def _migrate(self, indexes: Sequence[Index]) -> Sequence[str]:
        self.close()
        return schema.migrate(self._path, self._clock, self._deadline, indexes)

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
