"""Administration of a store on Redis, as `stores/admin.py` wants it.

A server of Redis has no query: lists and statistics walk through the identities of all buckets, read records
a hundred at a time, which holds the server up for less than a millisecond, and choose here.  So they are not
one view: what changes meanwhile may be seen before or after.
"""

import heapq
import json
import logging
from binascii import unhexlify
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from secrets import token_hex
from time import monotonic
from typing import Any, Literal, TypeVar, cast

from retrysafe._core import tokens
from retrysafe._core.model import Door, Final, Purged, Record
from retrysafe.errors import StoreReset, UnreadableRecord
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
)
from retrysafe.stores.queue import Operation, Rows, perform_alone
from retrysafe.stores.redis import doctor, records
from retrysafe.stores.redis.database import Database
from retrysafe.stores.redis.errors import RESET
from retrysafe.stores.redis.executor import Conversation
from retrysafe.stores.redis.operations import Operations, call, identities
from retrysafe.stores.redis.scripts import BOOKS, BUCKETS, Command, number_of, pack
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sightings import (
    Totals,
    begins,
    has_expired,
    matches,
    rank,
    standing_of,
    without_body,
)
from retrysafe.stores.sql import codec

T = TypeVar("T")

_log = logging.getLogger("retrysafe.store")

_PAGE = 100
"""Records that are read at once.  With bodies, each of which may have a megabyte, a tenth of it."""

_TOGETHER = 8 * _PAGE
"""Records, without bodies, that are asked for within one deadline: on a busy machine it must suffice."""

_WALKED = 32
"""Buckets that are walked through at once."""

_STEP = 500
"""Records that are removed between two looks at the limit."""


class RedisAdmin:
    """On connections of its own, opened when they are first needed."""

    def __init__(self, database: Database, operations: Operations, deadline: float) -> None:
        self._database = database
        self._operations = operations
        self._deadline = deadline
        self._executor = database.executor()
        self.unreadable = 0
        """Records that could not be read so far."""

    # --- reading

    def list(self, query: Query, limit: int = 100) -> Sequence[Sighting]:
        wanted = _as_stored(query)
        sightings = (
            sighting
            for sighting in self._all(query.id)
            if not _is_expired(sighting) and matches(sighting, wanted)
        )
        return [without_body(sighting) for sighting in heapq.nsmallest(limit, sightings, key=rank)]

    def find(self, query: Query, limit: int = 10) -> Sequence[Sighting]:
        wanted = _as_stored(query)
        found: list[Sighting] = []
        for chosen in self.list(query, limit):
            # Once more with its body, if it is still what was chosen.
            for sighting, _ in self._read([chosen.record.id], bodies=True):
                if not _is_expired(sighting) and matches(sighting, wanted):
                    found.append(sighting)
        return found

    def export(self, expiring: float | None = None, door: Door | None = None) -> Iterator[Record]:
        self._now()
        for numbers in _pages(range(BUCKETS), _WALKED):
            ids = [id for bucket in self._perform(self._walk(numbers)) for id in bucket]
            for page in _pages(sorted(ids), _PAGE // 10):
                for sighting, _ in self._read(page, bodies=True, what="exported"):
                    record = sighting.record
                    if door in (None, record.door) and (
                        expiring is None or record.expires_at <= sighting.now + expiring
                    ):
                        yield record

    def statistics(self, groups: int = 20) -> Statistics:
        calls, now = self._calls()
        totals = Totals()
        for sighting in self._all():
            if _is_expired(sighting):
                totals.expired += 1
            else:
                totals.add(sighting)
        return totals.result(now, groups, calls)

    def expired(self, door: Door | None = None) -> int:
        number = 0
        offsets: dict[int, int] = dict.fromkeys(range(BUCKETS), 0)
        while offsets:
            found = self._perform(self._operations.expired_candidates(offsets, _PAGE))
            offsets = {bucket: offsets[bucket] + len(ids) for bucket, ids in found.items()}
            for page in _pages([id for ids in found.values() for id in ids], _TOGETHER):
                for sighting, _ in self._read(page):
                    number += _is_expired(sighting) and door in (None, sighting.record.door)
        return number

    def payload(self, id: bytes) -> bytes | None:
        for sighting, payload in self._read([id], payloads=True):
            return None if _is_expired(sighting) else payload
        return None

    def due(self, action: str, limit: int = 10) -> Sequence[Due]:
        action = codec.storable(action)
        chosen: list[Sighting] = []
        offsets: dict[int, int] = dict.fromkeys(range(BUCKETS), 0)
        later: list[tuple[float, bytes]] = []
        while offsets and len(chosen) < limit:
            found = self._perform(self._due_candidates(offsets))
            later += [each for pairs in found.values() for each in pairs]
            # Of a bucket that has more, the next ones may come before those of other buckets.
            cut = {number: pairs[-1][0] for number, pairs in found.items() if len(pairs) == _PAGE}
            horizon = min(cut.values(), default=inf)
            offsets = {number: offsets[number] + _PAGE for number in cut}
            later.sort()
            now = [id for due_at, id in later if due_at <= horizon]
            later = later[len(now) :]
            for page in _pages(now, _PAGE):
                sightings = [sighting for sighting, _ in self._read(page, what="given to a worker")]
                chosen += [each for each in sightings if _is_for_worker(each, action)]
                if len(chosen) >= limit:
                    break
        chosen.sort(key=lambda each: each.due_at or 0.0)
        return list(self._with_payloads(chosen[:limit], action))

    def audit(self, limit: int = 100, id: str | None = None) -> Sequence[Entry]:
        self._now()
        entries = _entries(self._perform(self._audit(limit if id is None else None)))
        return [entry for entry in entries if id is None or begins(entry.id, id)][:limit]

    # --- intervening

    def purge(self, limit: int, note: Note | None = None, door: Door | None = None) -> Purged:
        said = () if note is None else (token_hex(8).encode(), *_said(note))
        removed, unresolved = 0, tuple[Record, ...]()
        while removed < limit:
            wanted = min(_STEP, limit - removed)
            purged = self._perform(self._operations.purge_noted(wanted, door, said))
            removed += purged.records
            unresolved += purged.unresolved
            for record in purged.unresolved:
                _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])
            if purged.records < wanted:
                break
        return Purged(removed, unresolved)

    def release(self, seen: Record, note: Note, *, settled: bool = False) -> bool:
        if seen.state != "in_progress" and not settled:
            return False
        return self._intervene(
            seen, "admin_release", (seen.token, _state(seen), *_said(note), release_outcome(seen).encode())
        )

    def resolve(self, seen: Record, final: Final, note: Note) -> bool:
        final = storable(final)
        if seen.state != "in_progress":
            return False
        return self._intervene(
            seen,
            "admin_resolve",
            (
                seen.token,
                tokens.draw(),
                bytes((records.STATES.index(final.state), final.omitted)),
                records.head_of(final.response),
                final.response.body,
                *_said(note),
                resolve_outcome(seen, final).encode(),
            ),
        )

    def redrive(self, seen: Record, note: Note) -> bool:
        if seen.state == "completed":
            return False
        return self._intervene(
            seen,
            "admin_redrive",
            (
                seen.token,
                tokens.draw(),
                _state(seen),
                records.head_of(UNFINISHED.response),
                UNFINISHED.response.body,
                b"%d" % UNFINISHED.omitted,
                *_said(note),
                redrive_outcome(seen).encode(),
            ),
        )

    # --- the store itself

    def migrate(self, indexes: Sequence[Index] = ()) -> str:  # noqa: ARG002 - every list is a scan
        if self.missing_sentinels():
            raise StoreReset(RESET)
        return "nothing to do: the store is armed, and has no tables"

    def missing_sentinels(self) -> int:
        return self._converse(self._missing())

    def arm(self, note: Note) -> None:
        self._converse(self._arm(note))

    def schema(self) -> str:
        return ""

    def diagnose(self) -> Sequence[Finding]:
        return doctor.examine(
            self._database.address,
            self._database.scripts,
            self._deadline,
            lambda: self._converse(self._database.pipeline.sentinels()),
            self._legible,
        )

    def close(self) -> None:
        self._executor.close()

    # --- how it is done

    def _perform(self, operation: Operation[T]) -> T:
        return perform_alone(self._executor, operation, self._deadline)

    def _converse(self, conversation: Conversation[T]) -> T:
        try:
            return self._executor.perform(conversation, monotonic() + self._deadline)
        except Trouble as trouble:
            raise trouble.as_error() from None

    def _missing(self) -> Conversation[int]:
        pipeline = self._database.pipeline
        yield from pipeline.create()
        return sum(sentinel is None for sentinel in (yield from pipeline.sentinels()))

    def _arm(self, note: Note) -> Conversation[None]:
        pipeline, books = self._database.pipeline, self._operations.layout.books
        found = yield from pipeline.sentinels()
        missing = sum(sentinel is None for sentinel in found)
        if not missing:
            return
        yield from pipeline.arm(found)
        outcome = f"armed: {missing} of {len(found)} sentinels were missing"
        [(seconds, _)] = yield from pipeline.ask([Command(BOOKS, pack("TIME"))])
        said = ("act", "arm", "at", seconds, "by", note.by, "reason", note.reason, "outcome", outcome)
        yield from pipeline.ask([Command(BOOKS, pack("XADD", books.audit, "*", *said))])

    def _all(self, digits: str | None = None) -> Iterator[Sighting]:
        """Every record that can be read, without its body; or only those whose identity may begin like
        this."""
        self._now()
        for numbers in _pages(_buckets(digits), _WALKED):
            ids = [id for bucket in self._perform(self._walk(numbers)) for id in bucket]
            for page in _pages(ids, _TOGETHER):
                for sighting, _ in self._read(page):
                    yield sighting

    def _legible(self) -> Iterator[Sighting | None]:
        """Every record without its body, and `None` for one that cannot be read."""
        for numbers in _pages(range(BUCKETS), _WALKED):
            ids = [id for bucket in self._perform(self._walk(numbers)) for id in bucket]
            for page in _pages(ids, _TOGETHER):
                before = self.unreadable
                for sighting, _ in self._read(page):
                    yield sighting
                yield from [None] * (self.unreadable - before)

    def _walk(self, numbers: Sequence[int]) -> Operation[Sequence[Sequence[bytes]]]:
        """All identities of some buckets."""
        buckets = self._operations.layout.buckets
        found: dict[int, set[bytes]] = {number: set() for number in numbers}
        cursors = dict.fromkeys(numbers, b"0")
        while cursors:
            walks = [
                Command(number, pack("ZSCAN", buckets[number].ids, cursor, "COUNT", "1000"))
                for number, cursor in cursors.items()
            ]
            replies = yield call("walk", walks)
            walked = zip(cursors, cast("Sequence[tuple[bytes, list[bytes]]]", replies), strict=True)
            cursors = {}
            for number, (cursor, words) in walked:
                found[number].update(identities(words[::2]))  # one may be come by twice
                if cursor != b"0":
                    cursors[number] = cursor
        return [list(ids) for ids in found.values()]

    def _read(
        self, ids: Sequence[bytes], *, bodies: bool = False, payloads: bool = False, what: str = "listed"
    ) -> Sequence[tuple[Sighting, bytes | None]]:
        """Those that can be read, in this order; with payloads, if these are asked for."""
        flags = b"1" if bodies else b"0", b"1" if payloads else b"0"
        buckets: dict[int, list[bytes]] = {}
        for id in ids:
            buckets.setdefault(number_of(id), []).append(id)
        pages = [(number, page) for number, mine in buckets.items() for page in _pages(mine, _PAGE)]
        buckets_of = self._operations.layout.buckets
        commands = [
            self._operations.about_bucket(number, "read", [*map(buckets_of[number].record_of, page)], flags)
            for number, page in pages
        ]
        found: dict[bytes, tuple[Sighting, bytes | None]] = {}
        if not commands:
            return []
        for (_, page), reply in zip(pages, self._perform(_ask("read", commands)), strict=True):
            now, *stored = cast("Sequence[Any]", reply)
            [time] = records.TIME.unpack(now)
            for id, fields in zip(page, stored, strict=True):
                if fields is None:
                    continue  # removed since it was listed
                try:
                    found[id] = _sighting(id, fields, time)
                except UnreadableRecord as damage:
                    self.unreadable += 1
                    _log.warning("a record is not %s: %s", what, damage)
        return [found[id] for id in ids if id in found]

    def _due_candidates(
        self, offsets: Mapping[int, int]
    ) -> Operation[Mapping[int, Sequence[tuple[float, bytes]]]]:
        commands = [
            self._operations.about_bucket(number, "list_due", (), (b"%d" % offset, b"%d" % _PAGE))
            for number, offset in offsets.items()
        ]
        replies = cast("Sequence[list[bytes]]", (yield call("list_due", commands)))
        return {
            number: [(float(due), id) for id, due in zip(identities(reply[::2]), reply[1::2], strict=True)]
            for number, reply in zip(offsets, replies, strict=True)
            if reply
        }

    def _with_payloads(self, chosen: Sequence[Sighting], action: str) -> Iterator[Due]:
        for seen in chosen:
            for sighting, payload in self._read([seen.record.id], bodies=True, payloads=True):
                if payload is not None and _is_for_worker(sighting, action):
                    yield Due(sighting.record, payload)

    def _now(self) -> float:
        """The store's clock.  Raises `StoreReset` where there is no store."""
        [(now,)] = self._perform(
            _ask("read", [self._operations.about_bucket(BOOKS, "read", (), (b"0", b"0"))])
        )
        time: float = records.TIME.unpack(cast(bytes, now))[0]
        return time

    def _calls(self) -> tuple[dict[Place, Calls], float]:
        now = self._now()
        [words] = self._perform(
            _ask("calls", [Command(BOOKS, pack("HGETALL", self._operations.layout.calls))])
        )
        found: dict[Place, Calls] = {}
        pairs = iter(cast("Sequence[bytes]", words))
        for name, numbers in zip(pairs, pairs, strict=True):
            try:
                door, route, source, verdict = json.loads(name)
                number, since, last = numbers.split()
                counted = int(number), float(since), float(last)
            except ValueError:
                _log.warning("a count of calls cannot be read, and is left out")
                continue
            place = Place(door, route, source)
            verdicts, began, seen = found.get(place, Calls({}, counted[1], {}))
            found[place] = Calls(
                {**verdicts, verdict: counted[0]}, min(began, counted[1]), {**seen, verdict: counted[2]}
            )
        return found, now

    def _audit(self, limit: int | None) -> Operation[Rows]:
        count = () if limit is None else ("COUNT", str(limit))
        reads = [
            Command(number, pack("XREVRANGE", bucket.audit, "+", "-", *count))
            for number, bucket in enumerate(self._operations.layout.all)
        ]
        return (yield call("audit", reads))

    def _intervene(self, seen: Record, script: str, arguments: Sequence[bytes]) -> bool:
        bucket = self._operations.layout.of(seen.id)
        keys = bucket.record_of(seen.id), bucket.audit
        command = self._operations.about_bucket(seen.id[0], script, keys, arguments)
        [done] = self._perform(_ask(script, [command]))
        return cast(object, done) == 1


def _ask(name: str, commands: Sequence[Command]) -> Operation[Rows]:
    return (yield call(name, commands))


def _pages(all: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(all), size):
        yield all[begin : begin + size]


def _sighting(id: bytes, fields: Sequence[Any], now: float) -> tuple[Sighting, bytes | None]:
    *columns, size, payload = fields
    record = records.record(id, columns)
    due_at = records.due_at(columns[0])
    if isinstance(payload, bytes):
        length: int | None = len(payload)
    else:
        length = payload if payload is not None and payload >= 0 else None
    standing = standing_of(record, now, due_at)
    sighting = Sighting(record, standing, max(size, 0), now, length, due_at)
    return sighting, payload if isinstance(payload, bytes) else None


def _is_for_worker(sighting: Sighting, action: str) -> bool:
    record = sighting.record
    return (
        record.door == "callback"
        and record.action == action
        and sighting.standing == "waiting"
        and sighting.due_at is not None
        and sighting.due_at <= sighting.now
        and sighting.payload is not None
    )


def _buckets(digits: str | None) -> Sequence[int]:
    """Those that may have an identity which begins with these digits."""
    begin = (digits or "").lower()[:2]
    return [number for number in range(BUCKETS) if f"{number:02x}".startswith(begin)]


def _is_expired(sighting: Sighting) -> bool:
    return has_expired(sighting.record, sighting.now, sighting.due_at)


def _as_stored(query: Query) -> Query:
    """What is asked for, in the form in which it is stored."""
    made = codec.storable
    return query._replace(
        scope=tuple((made(name), made(value)) for name, value in query.scope),
        action=None if query.action is None else made(query.action),
        target=None if query.target is None else made(query.target),
        key=None if query.key is None else made(query.key),
        request_id=None if query.request_id is None else made(query.request_id),
    )


def _state(seen: Record) -> bytes:
    return b"%d" % records.STATES.index(seen.state)


def _said(note: Note) -> tuple[bytes, bytes]:
    return codec.storable(note.by).encode(), codec.storable(note.reason).encode()


def _entries(replies: Rows) -> list[Entry]:
    """The latest first.  The parts of one purge, which has one in each bucket, are one entry."""
    found: list[tuple[tuple[int, ...], Entry]] = []
    purges: dict[str, tuple[tuple[int, ...], int, Mapping[str, bytes]]] = {}
    for reply in replies:
        for place, words in cast("Sequence[tuple[bytes, list[bytes]]]", reply):
            order = tuple(map(int, place.split(b"-")))
            said = {name.decode(): value for name, value in zip(words[::2], words[1::2], strict=True)}
            if said["act"] == b"purge":
                name = said["call"].decode()
                last, number, latest = purges.get(name, ((), 0, said))
                purges[name] = (
                    max(last, order),
                    number + int(said["removed"]),
                    said if order > last else latest,
                )
            else:
                found.append((order, _entry(said)))
    for order, number, latest in purges.values():
        outcome = f"{number} record{'' if number == 1 else 's'} removed"
        found.append((order, _entry({**latest, "outcome": outcome.encode()})))
    return [entry for _, entry in sorted(found, key=lambda each: (each[1].at, each[0]), reverse=True)]


def _entry(said: Mapping[str, bytes]) -> Entry:
    about = records.claimed(said["claimed"]) if "claimed" in said else ("", "[]", "", "", "", "")
    _, scope, key, action, target, request_id, *_ = about
    try:
        parts = codec.scope(scope)
    except ValueError as damage:
        _log.warning("an entry of the audit trail is shown without its scope: %s", damage)
        parts = ()
    return Entry(
        at=float(said["at"]),
        by=said["by"].decode("utf-8", "replace"),
        reason=said["reason"].decode("utf-8", "replace"),
        act=cast("Literal['release', 'resolve', 'redrive', 'purge', 'arm']", said["act"].decode()),
        outcome=said["outcome"].decode(),
        id=unhexlify(said["id"]) if "id" in said else None,
        key=key[1:] if key else None,
        scope=parts,
        action=action,
        target=target,
        request_id=request_id,
    )
