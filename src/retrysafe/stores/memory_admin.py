"""Administration of records in memory: for tests, and for a program that manages its own store."""

import logging
from collections import Counter
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
    Share,
    Sighting,
    Source,
    Standing,
    Statistics,
    in_order,
    redrive_outcome,
    release_outcome,
    resolve_outcome,
    storable,
    waiting_payloads,
)

_log = logging.getLogger("retrysafe.store")

K = TypeVar("K")


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
        return [_without_body(sighting) for sighting in self.find(query, limit)]

    def find(self, query: Query, limit: int = 10) -> Sequence[Sighting]:
        with self._lock():
            now = self._clock()
            # Their order is that of the records' creation, and a sort keeps it where the times are the same.
            seen = [_sighting(row, now) for row in self._living(now)]
        found = [sighting for sighting in seen if _matches(sighting, query)]
        return sorted(found, key=_rank)[:limit]

    def export(self, expiring: float | None = None, door: Door | None = None) -> Iterator[Record]:
        with self._lock():
            now = self._clock()
            records = [row.record() for row in self._rows.values()]
        for record in sorted(records):
            if door in (None, record.door) and (expiring is None or record.expires_at <= now + expiring):
                yield record

    def statistics(self, groups: int = 20) -> Statistics:
        with self._lock():
            now = self._clock()
            seen = [_sighting(row, now) for row in self._living(now)]
            expired = len(self._rows) - len(seen)
            calls = in_order(self._books.calls)
        return Statistics(
            now=now,
            total=_share(seen),
            expired=expired,
            oldest_running=_oldest(seen, "in_progress"),
            oldest_abandoned=_oldest(seen, "abandoned"),
            by_door=_grouped(seen, lambda record: str(record.door)),
            by_route=_grouped(seen, _route, groups),
            by_scope=_grouped(seen, lambda record: record.scope, groups),
            verdicts=_verdicts(calls.values()),
            counted_since=min((each.since for each in calls.values()), default=None),
            by_source=_sources(seen, groups),
            oldest_due=min(
                (each.due_at for each in seen if each.due_at and each.standing == "waiting"), default=None
            ),
            calls=dict(islice(calls.items(), groups)),
        )

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
                and _standing(row, now) == "waiting"
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
            entries = [entry for entry in reversed(self._books.audit) if _begins(entry.id, id)]
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


def _standing(row: Row, now: float) -> Standing:
    unfinished = row.state == "in_progress" and row.lapsed(now)
    if row.due_at is not None and (unfinished or row.state == "failed"):
        return "waiting"
    return "abandoned" if unfinished else row.state


def _sighting(row: Row, now: float) -> Sighting:
    return Sighting(
        row.record(),
        _standing(row, now),
        len(row.response.body) if row.response else 0,
        now,
        None if row.payload is None else len(row.payload),
        row.due_at,
    )


def _without_body(sighting: Sighting) -> Sighting:
    record = sighting.record
    if record.response is None:
        return sighting
    return sighting._replace(record=record._replace(response=record.response._replace(body=b"")))


def _rank(sighting: Sighting) -> tuple[bool, float]:
    abandoned, made = sighting.standing == "abandoned", sighting.record.created_at
    return not abandoned, made if abandoned else -made


def _matches(sighting: Sighting, query: Query) -> bool:
    record, age = sighting.record, sighting.now - sighting.record.created_at
    return (
        (not query.standings or sighting.standing in query.standings)
        and query.door in (None, record.door)
        and set(query.scope) <= set(record.scope)
        and query.action in (None, record.action)
        and (query.target is None or _is_at(record.target, query.target))
        and (query.older is None or age >= query.older)
        and (query.younger is None or age <= query.younger)
        and query.key in (None, record.key)
        and query.request_id in (None, record.request_id)
        and _begins(record.id, query.id)
    )


def _is_at(target: str, wanted: str) -> bool:
    return target.startswith(wanted[:-1]) if wanted.endswith("*") else target == wanted


def _begins(id: bytes | None, digits: str | None) -> bool:
    return digits is None or (id is not None and id.hex().startswith(digits.lower()))


def _share(sightings: Sequence[Sighting]) -> Share:
    return Share(Counter(sighting.standing for sighting in sightings), sum(each.size for each in sightings))


def _verdicts(calls: Iterable[Calls]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for each in calls:
        found.update(each.verdicts)
    return dict(found.most_common())


def _oldest(sightings: Iterable[Sighting], standing: Standing) -> float | None:
    return min((each.record.created_at for each in sightings if each.standing == standing), default=None)


def _sources(seen: Iterable[Sighting], groups: int) -> Mapping[str, Source]:
    found: dict[str, list[Record]] = {}
    for sighting in seen:
        if sighting.record.door == "callback":
            found.setdefault(sighting.record.action, []).append(sighting.record)
    largest = sorted(found.items(), key=lambda item: -len(item[1]))[:groups]
    return {name: _source(records) for name, records in largest}


def _source(records: Sequence[Record]) -> Source:
    took = [
        record.completed_at - record.created_at
        for record in records
        if record.state == "completed" and record.completed_at is not None
    ]
    return Source(
        events=len(records),
        deliveries=sum(record.deliveries for record in records),
        handled=len(took),
        seconds=sum(took) / len(took) if took else None,
        longest=max(took, default=None),
    )


def _route(record: Record) -> tuple[str, str]:
    return record.action, record.target if record.door == "request" else ""


def _grouped(
    sightings: Iterable[Sighting], by: Callable[[Record], K], groups: int | None = None
) -> Mapping[K, Share]:
    found: dict[K, list[Sighting]] = {}
    for sighting in sightings:
        found.setdefault(by(sighting.record), []).append(sighting)
    largest = sorted(found.items(), key=lambda item: -len(item[1]))[:groups]
    return {name: _share(members) for name, members in largest}
