"""What a store does by itself whose server cannot be asked for it: which records are meant, in which order
they are listed, and how they are counted."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from retrysafe._core.model import Parts, Record
from retrysafe.stores.admin import (
    Calls,
    Place,
    Query,
    Share,
    Sighting,
    Source,
    Standing,
    Statistics,
    in_order,
)

K = TypeVar("K")


def standing_of(record: Record, now: float, due_at: float | None) -> Standing:
    unfinished = record.state == "in_progress" and has_lapsed(record, now)
    if due_at is not None and (unfinished or record.state == "failed"):
        return "waiting"
    return "abandoned" if unfinished else record.state


def has_lapsed(record: Record, now: float) -> bool:
    """The lease has ended.  A missing one counts as alive for as long as the record."""
    return (record.expires_at if record.lease_until is None else record.lease_until) <= now


def has_expired(record: Record, now: float, due_at: float | None) -> bool:
    return (
        record.expires_at <= now
        and due_at is None
        and (record.state != "in_progress" or (record.held_until <= now and has_lapsed(record, now)))
    )


def without_body(sighting: Sighting) -> Sighting:
    record = sighting.record
    if record.response is None:
        return sighting
    return sighting._replace(record=record._replace(response=record.response._replace(body=b"")))


def rank(sighting: Sighting) -> tuple[bool, float]:
    """The order of a list: abandoned ones first, the oldest of them first, then the youngest first."""
    abandoned, made = sighting.standing == "abandoned", sighting.record.created_at
    return not abandoned, made if abandoned else -made


def matches(sighting: Sighting, query: Query) -> bool:
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
        and begins(record.id, query.id)
    )


def begins(id: bytes | None, digits: str | None) -> bool:
    """Whether these are the first digits of an identity."""
    return digits is None or (id is not None and id.hex().startswith(digits.lower()))


def _is_at(target: str, wanted: str) -> bool:
    return target.startswith(wanted[:-1]) if wanted.endswith("*") else target == wanted


class _Shares(Generic[K]):
    """Records and their bytes, by something of theirs."""

    def __init__(self) -> None:
        self._of: dict[K, tuple[Counter[Standing], int]] = {}

    def add(self, name: K, sighting: Sighting) -> None:
        records, size = self._of.get(name) or (Counter[Standing](), 0)
        records[sighting.standing] += 1
        self._of[name] = records, size + sighting.size

    def largest(self, groups: int | None = None) -> Mapping[K, Share]:
        found = sorted(self._of.items(), key=lambda item: -item[1][0].total())[:groups]
        return {name: Share(records, size) for name, (records, size) in found}


class _Callbacks:
    """Those of one source."""

    def __init__(self) -> None:
        self.events = self.deliveries = self.handled = 0
        self.seconds = 0.0
        self.longest: float | None = None

    def add(self, record: Record) -> None:
        self.events += 1
        self.deliveries += record.deliveries
        if record.state == "completed" and record.completed_at is not None:
            took = record.completed_at - record.created_at
            self.handled += 1
            self.seconds += took
            self.longest = took if self.longest is None else max(self.longest, took)

    def result(self) -> Source:
        average = self.seconds / self.handled if self.handled else None
        return Source(self.events, self.deliveries, self.handled, average, self.longest)


class Totals:
    """Counts records one after the other, so that not all of them have to be in memory."""

    def __init__(self) -> None:
        self._total: _Shares[None] = _Shares()
        self._doors: _Shares[str] = _Shares()
        self._routes: _Shares[tuple[str, str]] = _Shares()
        self._scopes: _Shares[Parts] = _Shares()
        self._sources: dict[str, _Callbacks] = {}
        self._oldest: dict[Standing, float] = {}
        self._oldest_due: float | None = None
        self.expired = 0

    def add(self, sighting: Sighting) -> None:
        """One that has not expired."""
        record, standing = sighting.record, sighting.standing
        self._total.add(None, sighting)
        self._doors.add(str(record.door), sighting)
        # Of operations and callbacks the target is an id.
        self._routes.add((record.action, record.target if record.door == "request" else ""), sighting)
        self._scopes.add(record.scope, sighting)
        if record.door == "callback":
            self._sources.setdefault(record.action, _Callbacks()).add(record)
        self._oldest[standing] = min(self._oldest.get(standing, record.created_at), record.created_at)
        if standing == "waiting" and sighting.due_at is not None:
            due_at = sighting.due_at
            self._oldest_due = due_at if self._oldest_due is None else min(self._oldest_due, due_at)

    def result(self, now: float, groups: int, counted: Mapping[Place, Calls]) -> Statistics:
        calls = in_order(counted)
        sources = sorted(self._sources.items(), key=lambda item: -item[1].events)[:groups]
        return Statistics(
            now=now,
            total=self._total.largest().get(None, Share({}, 0)),
            expired=self.expired,
            oldest_running=self._oldest.get("in_progress"),
            oldest_abandoned=self._oldest.get("abandoned"),
            by_door=self._doors.largest(),
            by_route=self._routes.largest(groups),
            by_scope=self._scopes.largest(groups),
            verdicts=_verdicts(calls.values()),
            counted_since=min((each.since for each in calls.values()), default=None),
            by_source={name: callbacks.result() for name, callbacks in sources},
            oldest_due=self._oldest_due,
            calls=dict(list(calls.items())[:groups]),
        )


def _verdicts(calls: Iterable[Calls]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for each in calls:
        found.update(each.verdicts)
    return dict(found.most_common())
