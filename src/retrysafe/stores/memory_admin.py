"""Administration of records in memory: for tests, and for a program that manages its own store."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from threading import Lock
from typing import Generic, Literal, Protocol, TypeVar

from retrysafe._core import tokens
from retrysafe._core.model import Claim, Counted, Door, Final, Purged, Record, Response, State
from retrysafe.stores.admin import (
    UNFINISHED,
    Calls,
    Due,
    Entry,
    Finding,
    Index,
    Note,
    Place,
    Query,
    Sighting,
    Statistics,
    redrive_outcome,
    release_outcome,
    resolve_outcome,
    storable,
    waiting_payloads,
)
from retrysafe.stores.sightings import Totals, begins, matches, rank, standing_of, without_body

_log = logging.getLogger("retrysafe.store")


class Row(Protocol):
    """What the store keeps of a key, as far as an operator has to do with it."""

    claim: Claim
    state: State
    response: Response | None
    omitted: bool
    created_at: float
    updated_at: float
    completed_at: float | None
    expires_at: float
    payload: bytes | None
    due_at: float | None

    def lapsed(self, now: float) -> bool: ...
    def expired(self, now: float) -> bool: ...
    def record(self) -> Record: ...


class Books:
    """What a store holds besides its records."""

    def __init__(self) -> None:
        self.audit: list[Entry] = []
        self.calls: dict[Place, Calls] = {}

    def count(self, ended: Mapping[Counted, int], now: float) -> None:
        for (verdict, *where), number in ended.items():
            place = Place(*where)
            verdicts, since, last = self.calls.get(place, Calls({}, now, {}))
            counted = {**verdicts, verdict: verdicts.get(verdict, 0) + number}
            self.calls[place] = Calls(counted, since, {**last, verdict: now})


R = TypeVar("R", bound=Row)


class MemoryAdmin(Generic[R]):
    """Does each thing in one step, under the store's own lock."""

    def __init__(
        self,
        rows: MutableMapping[bytes, R],
        books: Books,
        lock: Callable[[], Lock],
        clock: Callable[[], float],
    ) -> None:
        self._rows = rows
        self._books = books
        self._lock = lock  # asked for each time: a fork makes another one
        self._clock = clock

    def list(self, query: Query, limit: int = 100) -> Sequence[Sighting]:
        return [without_body(sighting) for sighting in self.find(query, limit)]

    def find(self, query: Query, limit: int = 10) -> Sequence[Sighting]:
        with self._lock():
            now = self._clock()
            # Their order is that of the records' creation, and a sort keeps it where the times are the same.
            seen = [_sighting(row, now) for row in self._living(now)]
        found = [sighting for sighting in seen if matches(sighting, query)]
        return sorted(found, key=rank)[:limit]

    def export(self, expiring: float | None = None, door: Door | None = None) -> Iterator[Record]:
        with self._lock():
            now = self._clock()
            records = [row.record() for row in self._rows.values()]
        for record in sorted(records):
            if door in (None, record.door) and (expiring is None or record.expires_at <= now + expiring):
                yield record

    def statistics(self, groups: int = 20) -> Statistics:
        totals = Totals()
        with self._lock():
            now = self._clock()
            for row in self._living(now):
                totals.add(_sighting(row, now))
            totals.expired = sum(1 for _ in self._expired(now, None))
            return totals.result(now, groups, self._books.calls)

    def expired(self, door: Door | None = None) -> int:
        with self._lock():
            return sum(1 for _ in self._expired(self._clock(), door))

    def purge(self, limit: int, note: Note | None = None, door: Door | None = None) -> Purged:
        with self._lock():
            now = self._clock()
            expired = [*islice(self._expired(now, door), limit)]
            for row in expired:
                del self._rows[row.claim.id]
            if note is not None and expired:
                outcome = f"{len(expired)} record{'' if len(expired) == 1 else 's'} removed"
                self._books.audit.append(Entry(now, *note, "purge", outcome, None, None, (), "", "", ""))
        unresolved = tuple(row.record() for row in expired if row.state == "in_progress")
        for record in unresolved:
            _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])
        return Purged(len(expired), unresolved)

    def release(self, seen: Record, note: Note, *, settled: bool = False) -> bool:
        with self._lock():
            now = self._clock()
            row = self._as_seen(seen, now, settled=settled)
            if row is None:
                return False
            self._enter(row, note, "release", release_outcome(seen), now)
            del self._rows[seen.id]
            return True

    def resolve(self, seen: Record, final: Final, note: Note) -> bool:
        final = storable(final)
        with self._lock():
            now = self._clock()
            row = self._as_seen(seen, now, settled=False)
            if row is None:
                return False
            self._enter(row, note, "resolve", resolve_outcome(seen, final), now)
            row.claim = row.claim._replace(token=tokens.draw())
            retention = row.expires_at - (
                row.updated_at if row.claim.retention_from == "update" else row.created_at
            )
            row.state, row.response, row.omitted, *_ = final
            row.due_at = None
            row.updated_at = row.completed_at = now
            # Its whole retention from now on: its client was told not to retry, and may do so much later;
            # and a held record may be past its expiry already.
            row.expires_at = now + retention
            return True

    def payload(self, id: bytes) -> bytes | None:
        with self._lock():
            row = self._rows.get(id)
            return None if row is None or row.expired(self._clock()) else row.payload

    def due(self, action: str, limit: int = 10) -> Sequence[Due]:
        with self._lock():
            now = self._clock()
            found = [
                (row.due_at, Due(row.record(), row.payload))
                for row in self._rows.values()
                if row.claim.door == "callback"
                and row.claim.action == action
                and row.payload is not None
                and row.due_at is not None
                and row.due_at <= now
                and standing_of(row.record(), now, row.due_at) == "waiting"
            ]
        return [due for _, due in sorted(found, key=lambda each: each[0])[:limit]]

    def redrive(self, seen: Record, note: Note) -> bool:
        with self._lock():
            now = self._clock()
            row = self._as_seen(seen, now, settled=seen.state == "failed")
            if row is None or row.payload is None:
                return False
            self._enter(row, note, "redrive", redrive_outcome(seen), now)
            row.claim = row.claim._replace(token=tokens.draw())
            if row.state == "in_progress":
                row.state, row.response, row.omitted, *_ = UNFINISHED
                row.completed_at = now
            row.updated_at = row.due_at = now
            return True

    def audit(self, limit: int = 100, id: str | None = None) -> Sequence[Entry]:
        with self._lock():
            entries = [entry for entry in reversed(self._books.audit) if begins(entry.id, id)]
        return entries[:limit]

    def diagnose(self) -> Sequence[Finding]:
        found = self.statistics(0)
        advice = "they are lost when the process ends: use SQLite or PostgreSQL for a service"
        findings = [Finding("memory", "ok", f"{len(self._rows)} records in this process alone", advice)]
        abandoned = found.total.records.get("abandoned", 0)
        if abandoned:
            findings.append(Finding("abandoned", "warning", f"the outcome of {abandoned} records is unknown"))
        if found.oldest_due is not None:
            findings.append(waiting_payloads(found.oldest_due, found.now))
        return findings

    def migrate(self, indexes: Sequence[Index] = ()) -> str:  # noqa: ARG002 - as every `Admin`
        return "nothing to do: memory has no tables"

    def schema(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing was opened."""

    def _living(self, now: float) -> Iterable[Row]:
        return (row for row in self._rows.values() if not row.expired(now))

    def _expired(self, now: float, door: Door | None) -> Iterable[Row]:
        rows = self._rows.values()
        return (row for row in rows if row.expired(now) and door in (None, row.claim.door))

    def _as_seen(self, seen: Record, now: float, *, settled: bool) -> R | None:
        """The row of this record if it is still as it was seen: abandoned, or `settled` in the same state."""
        row = self._rows.get(seen.id)
        if row is None or row.claim.token != seen.token or row.expired(now) or row.state != seen.state:
            return None
        if row.state == "in_progress":
            return row if row.lapsed(now) else None
        return row if settled else None

    def _enter(
        self, row: Row, note: Note, act: Literal["release", "resolve", "redrive"], outcome: str, now: float
    ) -> None:
        of = row.record()
        self._books.audit.append(
            Entry(
                at=now,
                by=note.by,
                reason=note.reason,
                act=act,
                outcome=outcome,
                id=of.id,
                key=of.key,
                scope=of.scope,
                action=of.action,
                target=of.target,
                request_id=of.request_id,
            )
        )


def _sighting(row: Row, now: float) -> Sighting:
    record = row.record()
    return Sighting(
        record,
        standing_of(record, now, row.due_at),
        len(row.response.body) if row.response else 0,
        now,
        None if row.payload is None else len(row.payload),
        row.due_at,
    )
