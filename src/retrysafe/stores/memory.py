"""Records in this process's memory, for tests and for programs of one process.

It passes the whole store suite: threads and coroutines share it, and each method is one step under one
lock.  Nothing survives the process, and a fork leaves parent and child with records of their own.

What is stored is a `_Row`, which is cheap to change; a `Record` is made only when one is returned.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from threading import Lock
from time import monotonic

from retrysafe._core.model import (
    DELIVERY_TIMES,
    Claim,
    Counted,
    Deliveries,
    Final,
    Found,
    Inbox,
    Purged,
    Record,
    Reservation,
    Reserved,
    Response,
    State,
    Unsettled,
    make,
    merge_details,
)
from retrysafe._core.times import Duration
from retrysafe._runtime import fork
from retrysafe.errors import ConfigurationError
from retrysafe.stores.memory_admin import Books, MemoryAdmin
from retrysafe.stores.options import CLEANUP_INTERVAL, cleanup_seconds

_log = logging.getLogger("retrysafe.store")

_SWEPT = 16
"""Expired rows removed by one new claim at most.  It looks at the oldest and goes on for as long as it
finds expired ones, so the dead are never more than the living, and no claim pays for a whole burst."""

_FRESH = Reserved(1)
_EPOCH = time.time() - time.monotonic()


def _steady() -> float:
    """Seconds since the epoch that never jump: a stepped wall clock must not end a lease."""
    return _EPOCH + monotonic()


def open_url(
    url: str,
    *,
    deadline: float,  # noqa: ARG001 - as every `stores.Opener`
    cleanup_interval: Duration | None = CLEANUP_INTERVAL,
) -> "MemoryStore":
    cleanup_seconds(cleanup_interval)  # claims sweep, at no interval; but a mistake is one here, too
    if url.removeprefix("memory:").strip("/"):
        raise ConfigurationError("memory: takes no name or path: write memory: alone")
    return MemoryStore()


class _Row:
    """One key: the claim that holds it, and what has changed since."""

    # Defaults of the class: this is how every attempt begins, and a row that begins says nothing new.
    state: State = "in_progress"
    attempt = 1
    checkpointed = False
    completed_at: float | None = None
    response: Response | None = None
    omitted = False
    deliveries = 1
    seen_at: float | None = None
    delivery_times: tuple[float, ...] = ()
    payload: bytes | None = None
    due_at: float | None = None

    def __init__(self, claim: Claim, now: float) -> None:
        self.claim = self.first = claim
        self.created_at = self.updated_at = now
        self.expires_at = now + claim.retention
        self.lease_until: float | None = now + claim.lease
        self.held_until = now + claim.hold
        self.details = claim.details
        if claim.inbox is not None:
            self.receive(claim.inbox, now)

    def receive(self, inbox: Inbox | None, now: float) -> None:
        """Note what a claim says of its payload, and when a worker may handle it."""
        if inbox is not None and inbox.payload is not None:
            self.payload = inbox.payload
        due_in = None if inbox is None or self.payload is None else inbox.due_in
        self.due_at = None if due_in is None else now + due_in

    def begin_again(self, claim: Claim, now: float) -> None:
        """Start another attempt.  Creation and the first claim's request id stay as they are."""
        self.claim = claim
        self.state = "in_progress"
        self.attempt += 1
        self.lease_until = now + claim.lease
        self.held_until = now + claim.hold
        self.completed_at = None
        self.checkpointed = False
        self.response = None
        self.omitted = False
        self.details = claim.details
        self.receive(claim.inbox, now)
        self.update(now)

    def update(self, now: float) -> None:
        """Note a change, which a retention may be counted from."""
        self.updated_at = now
        if self.claim.retention_from == "update":
            self.expires_at = now + self.claim.retention

    def lapsed(self, now: float) -> bool:
        """The lease has ended.  A missing one counts as alive for as long as the record."""
        return (self.expires_at if self.lease_until is None else self.lease_until) <= now

    def expired(self, now: float) -> bool:
        return (
            self.expires_at <= now
            and self.due_at is None
            and (self.state != "in_progress" or (self.held_until <= now and self.lapsed(now)))
        )

    def running(self, token: bytes) -> bool:
        """The fence: in progress, and under this very token."""
        return self.claim.token == token and self.state == "in_progress"

    def record(self) -> Record:
        claim, first = self.claim, self.first
        return make(
            Record,
            (
                claim.id,
                claim.token,
                claim.fingerprint,
                self.state,
                claim.mode,
                self.attempt,
                self.lease_until,
                self.checkpointed,
                first.door,
                first.scope,
                first.key,
                first.action,
                first.target,
                first.request_id,
                first.correlation_id,
                self.created_at,
                self.updated_at,
                self.completed_at,
                self.expires_at,
                self.held_until,
                self.response,
                self.omitted,
                self.details,
                self.deliveries,
                self.seen_at,
                self.delivery_times,
                claim.retention_from,
            ),
        )


class MemoryStore:
    """Records in a dictionary."""

    def __init__(self, clock: Callable[[], float] = _steady) -> None:
        self._clock = clock
        self.forked()
        fork.watch(self)
        # Ordered, because the sweep goes round: a row that was checked goes to the end.
        self._rows: OrderedDict[bytes, _Row] = OrderedDict()
        self._books = Books()
        self.aio = AsyncMemoryStore(self)

    def forked(self) -> None:
        """A lock that another thread held when the process forked would never be released here."""
        self._lock = Lock()

    def reserve(self, claim: Claim) -> Reservation:
        with self._lock:
            now = self._clock()
            row = self._rows.get(claim.id)
            if row is None or (row.expires_at <= now and row.expired(now)):
                self._sweep(now)
                self._rows[claim.id] = _Row(claim, now)
                return _FRESH
            if row.state == "in_progress" and row.running(claim.token):
                return Reserved(row.attempt)
            return make(Found, (row.record(), now))

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        with self._lock:
            now = self._clock()
            row = self._rows.get(claim.id)
            if (
                row is not None
                and not row.expired(now)
                and row.claim.token == previous
                and row.state == state
            ):
                abandoned = row.state == "in_progress" and not row.checkpointed and row.lapsed(now)
                is_left = claim.inbox is None or not claim.inbox.is_only_stored or row.due_at is None
                if (row.state == "failed" or abandoned) and is_left:
                    row.begin_again(claim, now)
                    return Reserved(row.attempt)
        return self.reserve(claim)

    def look(self, id: bytes) -> Found | None:
        with self._lock:
            now = self._clock()
            row = self._rows.get(id)
            return None if row is None or row.expired(now) else Found(row.record(), now)

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        with self._lock:
            row = self._rows.get(claim.id)
            if row is None or not row.running(claim.token):
                return False
            now = self._clock()
            row.checkpointed = True
            row.response = Response(head.status, head.headers)
            row.held_until = max(row.held_until, now + claim.hold)
            row.update(now)
            return True

    def finish(self, claim: Claim, final: Final) -> bool:
        with self._lock:
            row = self._rows.get(claim.id)
            if row is None or row.claim.token != claim.token:
                return False
            if row.state != "in_progress":
                return (row.state, row.response, row.omitted) == final[:3]
            now = self._clock()
            row.state, row.response, row.omitted, details, due_in = final
            row.due_at = None if due_in is None else now + due_in
            if details:
                row.details = merge_details(row.details, details)
            row.completed_at = now
            row.update(now)
            if row.expires_at <= now:
                row.expires_at = now + claim.retention
            return True

    def release(self, claim: Claim) -> None:
        with self._lock:
            row = self._rows.get(claim.id)
            if row is not None and row.running(claim.token):
                del self._rows[claim.id]

    def purge(self, limit: int = 500) -> Purged:
        with self._lock:
            now = self._clock()
            expired = (row for row in self._rows.values() if row.expired(now))
            return self._remove(list(islice(expired, limit)))

    def open_keeper(self) -> "MemoryRenewer":
        return MemoryRenewer(self)

    def open_admin(self) -> MemoryAdmin[_Row]:
        return MemoryAdmin(self._rows, self._books, lambda: self._lock, self._clock)

    def close(self) -> None:
        """Nothing to close; the records stay, as they would in a file."""

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        with self._lock:
            return [self._renew(claim) for claim in claims]

    def count(self, ended: Mapping[Counted, int]) -> None:
        with self._lock:
            self._books.count(ended, self._clock())

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        with self._lock:
            now = self._clock()
            for id, (number, ago) in asked.items():
                if (row := self._rows.get(id)) is not None:
                    times = tuple(now - seconds for seconds in ago)
                    row.deliveries += number
                    row.seen_at = max(row.seen_at or 0.0, times[-1])
                    row.delivery_times = (*row.delivery_times, *times)[-DELIVERY_TIMES:]

    def _renew(self, claim: Claim) -> bool:
        row = self._rows.get(claim.id)
        if row is None or row.claim.token != claim.token:
            return False
        if row.state == "in_progress":
            row.lease_until = self._clock() + claim.lease
        return True

    def _sweep(self, now: float) -> None:
        rows = self._rows
        for _ in range(_SWEPT):
            id = next(iter(rows), None)
            if id is None:
                return
            oldest = rows[id]
            if oldest.expires_at > now or not oldest.expired(now):
                rows.move_to_end(id)
                return
            for record in self._remove([oldest]).unresolved:
                _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])

    def _remove(self, expired: Sequence[_Row]) -> Purged:
        for row in expired:
            del self._rows[row.claim.id]
        unresolved = (row.record() for row in expired if row.state == "in_progress")
        return Purged(len(expired), tuple(unresolved))


class AsyncMemoryStore:
    """The same for coroutines: a dictionary never blocks, so each calls it directly."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def reserve(self, claim: Claim) -> Reservation:
        return self._store.reserve(claim)

    async def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return self._store.take_over(claim, previous, state)

    async def look(self, id: bytes) -> Found | None:
        return self._store.look(id)

    async def checkpoint(self, claim: Claim, head: Response) -> bool:
        return self._store.checkpoint(claim, head)

    async def finish(self, claim: Claim, final: Final) -> bool:
        return self._store.finish(claim, final)

    async def release(self, claim: Claim) -> None:
        self._store.release(claim)


class MemoryRenewer:
    """The lease keeper's end."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.renew = store.renew
        self.count = store.count
        self.add_deliveries = store.add_deliveries

    def release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._store.release(claim)

    def close(self) -> None:
        """Nothing was opened."""
