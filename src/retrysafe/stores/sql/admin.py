"""Administration of a store in an SQL database, as `stores/admin.py` wants it; in any dialect.

A dialect says how an operation is run, in one view or in one transaction, how a purge gives way to the
service, and what is its own: the doctor's checks, and how tables are migrated.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeVar

from retrysafe._core.model import Door, Final, Purged, Record
from retrysafe.stores.admin import Due, Entry, Finding, Index, Note, Query, Sighting, Statistics
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import admin_operations
from retrysafe.stores.sql.admin_operations import Page, PurgeStep
from retrysafe.stores.sql.migrations import source
from retrysafe.stores.sql.schema import done

T = TypeVar("T")

_log = logging.getLogger("retrysafe.store")

_PAGE = 50
"""Records of an export in memory at once, of which each may have a body of a megabyte."""


class SQLAdmin(ABC):
    dialect: ClassVar[str]
    step: ClassVar[int]
    """Rows that a purge removes in one commit, which takes a few milliseconds."""

    @abstractmethod
    def _read(self, operation: Operation[T]) -> T:
        """Run an operation that changes nothing, in one view of the database."""

    @abstractmethod
    def _write(self, operation: Operation[T]) -> T:
        """Run an operation in a transaction of its own."""

    @abstractmethod
    def _purge_step(self, operation: Operation[PurgeStep]) -> tuple[PurgeStep, float]:
        """Run one step of a purge; also, for how many seconds it was in the way of others."""

    @abstractmethod
    def _rest(self, took: float) -> None:
        """Let others proceed between two steps of a purge."""

    @abstractmethod
    def _migrate(self, indexes: Sequence[Index]) -> Sequence[str]:
        """Make what is missing, and these indexes; give their names."""

    @abstractmethod
    def diagnose(self) -> Sequence[Finding]: ...
    @abstractmethod
    def close(self) -> None: ...

    def list(self, query: Query, limit: int = 100) -> Sequence[Sighting]:
        return self._read(admin_operations.listing(query, limit, bodies=False))

    def find(self, query: Query, limit: int = 10) -> Sequence[Sighting]:
        return self._read(admin_operations.listing(query, limit, bodies=True))

    def export(self, expiring: float | None = None, door: Door | None = None) -> Iterator[Record]:
        after: bytes | None = b""
        while after is not None:
            page: Page = self._read(admin_operations.export(after, _PAGE, expiring, door))
            yield from page.records
            after = page.last

    def statistics(self, groups: int = 20) -> Statistics:
        return self._read(admin_operations.statistics(groups))

    def expired(self, door: Door | None = None) -> int:
        return self._read(admin_operations.expired(door))

    def audit(self, limit: int = 100, id: str | None = None) -> Sequence[Entry]:
        return self._read(admin_operations.audit(limit, id))

    def release(self, seen: Record, note: Note, *, settled: bool = False) -> bool:
        return self._write(admin_operations.release(seen, note, settled=settled))

    def resolve(self, seen: Record, final: Final, note: Note) -> bool:
        return self._write(admin_operations.resolve(seen, final, note))

    def payload(self, id: bytes) -> bytes | None:
        return self._read(admin_operations.payload(id))

    def due(self, action: str, limit: int = 10) -> Sequence[Due]:
        return self._read(admin_operations.due(action, limit))

    def redrive(self, seen: Record, note: Note) -> bool:
        return self._write(admin_operations.redrive(seen, note))

    def purge(self, limit: int, note: Note | None = None, door: Door | None = None) -> Purged:
        removed, unresolved, entry = 0, tuple[Record, ...](), None
        while removed < limit:
            wanted = min(self.step, limit - removed)
            step = admin_operations.purge(wanted, note, door, removed, entry)
            (purged, entry), took = self._purge_step(step)
            removed += purged.records
            unresolved += purged.unresolved
            for record in purged.unresolved:
                _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])
            if purged.records < wanted:
                break
            self._rest(took)
        return Purged(removed, unresolved)

    def migrate(self, indexes: Sequence[Index] = ()) -> str:
        return done(self._migrate(indexes), self.dialect)

    def schema(self) -> str:
        return source(self.dialect)
