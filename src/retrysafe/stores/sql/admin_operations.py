"""What operators do, as the statements it is made of; in the form of `operations.py`.

With one difference.  An intervention is two statements, the change and its line in the audit trail, so
the caller gives it a transaction of its own, and rolls all of it back if any of it fails.

A row that cannot be read must hide neither itself nor the others: it is left out, because there is no record
that could be shown, and a warning names it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast, get_args

from retrysafe._core import tokens
from retrysafe._core.model import Door, Final, Parts, Purged, Record
from retrysafe.errors import UnreadableRecord
from retrysafe.stores.admin import (
    UNFINISHED,
    Calls,
    Due,
    Entry,
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
)
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql import codec, operations

_log = logging.getLogger("retrysafe.store")

_STANDINGS: tuple[Standing, ...] = get_args(Standing)

_LONGEST = 64
"""Hexadecimal digits of an identity."""


PurgeStep = tuple[Purged, int | None]
"""What one step of a purge removed, and the number of its line in the audit trail."""


class Page(NamedTuple):
    """Some records of many."""

    records: Sequence[Record]
    last: bytes | None
    """Where the next page begins; `None` if there is none."""


def listing(query: Query, limit: int, *, bodies: bool) -> Operation[list[Sighting]]:
    arguments: Arguments = {**_filters(query), "bodies": int(bodies), "limit": limit}
    if query.id is not None:
        rows = yield "list_records_by_id", {**arguments, **_range(query.id)}
    else:
        rows = yield _narrowest(query, arguments), arguments
    return list(_readable(rows))


def _narrowest(query: Query, arguments: Arguments) -> str:
    """The statement whose index leaves the fewest records to look at."""
    if query.request_id is not None:
        return "list_records_by_request_id"
    if query.door not in (None, "request") and arguments["target"] is not None:
        return "list_records_by_subject"
    return "list_records_by_scope" if query.scope else "list_records"


def export(after: bytes, limit: int, expiring: float | None, door: Door | None) -> Operation[Page]:
    """The next records after an id."""
    rows = yield "export_records", {"after": after, "limit": limit, "expiring": expiring, "door": door}
    records: list[Record] = []
    for columns in rows:
        try:
            records.append(codec.decode(columns))
        except UnreadableRecord as damage:
            _log.warning("a record is not exported: %s", damage)
    return Page(records, cast(bytes, rows[-1][1]) if len(rows) == limit else None)


def statistics(groups: int) -> Operation[Statistics]:
    """Several statements: the caller runs them in one snapshot."""
    [totals] = yield "totals", {}
    doors = yield "by_door", {}
    routes = yield "by_route", {"groups": groups}
    scopes = yield "by_scope", {"groups": groups}
    sources = yield "by_source", {"groups": groups}
    counts, calls = yield from _calls(groups)
    *total, expired, odd, oldest_running, oldest_abandoned, oldest_due, now = totals
    if odd:
        _log.warning("%d records are in a state that this release does not know, and are not counted", odd)
    return Statistics(
        now=cast(float, now),
        total=_share(total),
        expired=cast(int, expired),
        oldest_running=cast(float | None, oldest_running),
        oldest_abandoned=cast(float | None, oldest_abandoned),
        by_door={str(door): _share(share) for door, *share in doors},
        by_route={(str(action), str(target)): _share(share) for action, target, *share in routes},
        by_scope=dict(_scopes(scopes)),
        verdicts={str(verdict): cast(int, count) for verdict, count, _ in counts},
        counted_since=min((cast(float, since) for *_, since in counts), default=None),
        by_source={str(action): _source(numbers) for action, *numbers in sources},
        oldest_due=cast(float | None, oldest_due),
        calls=calls,
    )


def _calls(groups: int) -> Operation[tuple[Sequence[Row], Mapping[Place, Calls]]]:
    """How calls ended, all of them by verdict, and by place where it is known."""
    rights = yield "rights_on_routes", {}
    if not any(may_read for may_read, _ in rights):
        return (yield "verdicts_without_routes", {}), {}
    verdicts = yield "verdicts", {}
    calls = yield "calls_by_route", {"groups": groups}
    return verdicts, _by_place(calls)


def _by_place(rows: Sequence[Row]) -> Mapping[Place, Calls]:
    found: dict[Place, list[tuple[str, int, float, float]]] = {}
    for door, route, source, *counted in rows:
        place = Place(str(door), str(route), str(source))
        found.setdefault(place, []).append(cast("tuple[str, int, float, float]", tuple(counted)))
    calls = {
        place: Calls(
            verdicts={verdict: count for verdict, count, _, _ in counts},
            since=min(since for _, _, since, _ in counts),
            last={verdict: last for verdict, _, _, last in counts},
        )
        for place, counts in found.items()
    }
    return in_order(calls)


def expired(door: Door | None) -> Operation[int]:
    [(records,)] = yield "count_expired", {"door": door}
    return cast(int, records)


def release(seen: Record, note: Note, *, settled: bool) -> Operation[bool]:
    state = seen.state if settled else "in_progress"
    rows = yield "admin_release", {"id": seen.id, "token": seen.token, "state": state}
    return (yield from _entered(rows, note, "release", release_outcome(seen), seen.id))


def resolve(seen: Record, final: Final, note: Note) -> Operation[bool]:
    final = storable(final)
    arguments: Arguments = {
        "id": seen.id,
        "token": seen.token,
        "fence": tokens.draw(),
        **codec.resolution(final),
    }
    rows = yield "admin_resolve", arguments
    return (yield from _entered(rows, note, "resolve", resolve_outcome(seen, final), seen.id))


def payload(id: bytes) -> Operation[bytes | None]:
    rows = yield "payload", {"id": id}
    return cast(bytes | None, rows[0][0]) if rows else None


def due(action: str, limit: int) -> Operation[list[Due]]:
    found: list[Due] = []
    damaged: UnreadableRecord | None = None
    asked = limit
    while True:
        rows = yield "due", {"action": codec.storable(action), "limit": asked}
        found.clear()
        for payload, *columns in rows:
            try:
                found.append(Due(codec.decode(columns), cast(bytes, payload)))
            except UnreadableRecord as damage:
                damaged = damaged or damage
        if len(rows) < asked or len(found) >= limit:
            break
        asked += limit  # damaged records are due for ever, and are not to keep the others from being seen
    if damaged is not None:
        number = len(rows) - len(found)
        _log.warning("%d records are not handled, because they cannot be read: %s", number, damaged)
    return found[:limit]


def redrive(seen: Record, note: Note) -> Operation[bool]:
    arguments: Arguments = {
        "id": seen.id,
        "token": seen.token,
        "fence": tokens.draw(),
        **codec.resolution(UNFINISHED),
        "state": seen.state,
    }
    rows = yield "admin_redrive", arguments
    return (yield from _entered(rows, note, "redrive", redrive_outcome(seen), seen.id))


def purge(
    limit: int, note: Note | None, door: Door | None, so_far: int, entry: int | None
) -> Operation[PurgeStep]:
    """One step of a purge that has removed so many records."""
    purged = yield from operations.purge(limit, door)
    if note is None or not purged.records:
        return purged, entry
    removed = so_far + purged.records
    outcome = f"{removed} record{'' if removed == 1 else 's'} removed"
    if entry is None:
        [(number,)] = yield "insert_audit_entry", {**_about(None), **_said(note, "purge", outcome)}
        return purged, cast(int, number)
    yield "update_audit_entry", {"entry": entry, "outcome": outcome}
    return purged, entry


def audit(limit: int, id: str | None) -> Operation[list[Entry]]:
    rows = yield "list_audit_entries", {**_range(id), "limit": limit}
    return list(_entries(rows))


def _entered(rows: Sequence[Row], note: Note, act: str, outcome: str, id: bytes) -> Operation[bool]:
    """Write down what was done to the record of this row, if there was one."""
    if not rows:
        return False
    key, scope, action, target, request_id = rows[0]
    about = {"key": key, "scope": scope, "action": action, "target": target, "request_id": request_id}
    yield "insert_audit_entry", {**about, "id": id, **_said(note, act, outcome)}
    return True


def _about(id: bytes | None) -> Arguments:
    return {"id": id, "key": None, "scope": "[]", "action": "", "target": "", "request_id": ""}


def _said(note: Note, act: str, outcome: str) -> Arguments:
    return {
        "by": codec.storable(note.by),
        "reason": codec.storable(note.reason),
        "act": act,
        "outcome": outcome,
    }


def _filters(query: Query) -> Arguments:
    target = None if query.target is None else codec.storable(query.target)
    is_prefix = target is not None and target.endswith("*")
    return {
        "states": codec.json(sorted(query.standings)) if query.standings else None,
        "door": query.door,
        "scope": codec.parts_text(query.scope) if query.scope else None,
        "part": codec.parts_text(query.scope[:1])[1:-1] if query.scope else None,
        "action": None if query.action is None else codec.storable(query.action),
        "target": None if is_prefix else target,
        "prefix": target[:-1] if target is not None and is_prefix else None,
        "older": query.older,
        "younger": query.younger,
        "key": None if query.key is None else codec.storable(query.key),
        "request_id": None if query.request_id is None else codec.storable(query.request_id),
    }


def _range(digits: str | None) -> Arguments:
    """The lowest and the highest identity that begin with these digits."""
    if digits is None:
        return {"low": None, "high": None}
    begin = digits.lower()
    if len(begin) > _LONGEST or not set(begin) <= set("0123456789abcdef"):
        return {"low": b"", "high": b""}  # no identity begins like that
    return {name: bytes.fromhex(begin.ljust(_LONGEST, fill)) for name, fill in (("low", "0"), ("high", "f"))}


def _readable(rows: Iterable[Row]) -> Iterable[Sighting]:
    for *columns, standing, size, now, payload, due_at in rows:
        try:
            record = codec.decode(columns)
        except UnreadableRecord as damage:
            _log.warning("a record is not listed: %s", damage)
        else:
            yield Sighting(
                record,
                cast(Standing, standing),
                cast(int, size),
                cast(float, now),
                cast(int | None, payload),
                cast(float | None, due_at),
            )


def _share(numbers: Sequence[object]) -> Share:
    *records, size = cast(Sequence[int], numbers)
    return Share({s: n for s, n in zip(_STANDINGS, records, strict=True) if n}, size)


def _source(numbers: Sequence[object]) -> Source:
    events, deliveries, handled, seconds, longest = numbers
    return Source(
        cast(int, events),
        cast(int, deliveries),
        cast(int, handled),
        cast(float | None, seconds),
        cast(float | None, longest),
    )


def _scopes(rows: Iterable[Row]) -> Iterable[tuple[Parts, Share]]:
    for text, *share in rows:
        try:
            parts = codec.scope(text)
        except ValueError as damage:
            _log.warning("%d records are not counted by scope: %s", sum(cast(list[int], share[:-1])), damage)
        else:
            yield parts, _share(share)


def _entries(rows: Iterable[Row]) -> Iterable[Entry]:
    for row in rows:
        columns = dict(zip(Entry._fields, row, strict=True))
        try:
            columns["scope"] = codec.scope(columns["scope"])
        except ValueError as damage:
            _log.warning("an entry of the audit trail is shown without its scope: %s", damage)
            columns["scope"] = ()
        yield _entry(columns)


def _entry(columns: Mapping[str, object]) -> Entry:
    return Entry(**columns)  # type: ignore[arg-type]  # as `insert_audit_entry` wrote them
