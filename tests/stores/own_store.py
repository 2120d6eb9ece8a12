"""A store as somebody outside of this project would write it: with imports from public modules only.

It is the contract at its smallest, one dictionary under one lock, and has no operator's end.
"""

import threading
from collections.abc import Callable, Mapping, Sequence

from retrysafe.stores.admin import Admin
from retrysafe.stores.contract import (
    Claim,
    Counted,
    Deliveries,
    Final,
    Found,
    Purged,
    Record,
    Reservation,
    Reserved,
    Response,
    Unsettled,
)


class OwnStore:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._records: dict[bytes, Record] = {}
        self.aio = AsyncOwnStore(self)

    def reserve(self, claim: Claim) -> Reservation:
        with self._lock:
            found = self.look(claim.id)
            if found is None:
                self._records[claim.id] = _begun(claim, self._clock())
                return Reserved(1)
            if found.record.token == claim.token and found.record.state == "in_progress":
                return Reserved(found.record.attempt)
            return found

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        with self._lock:
            found = self.look(claim.id)
            if found is not None and (found.record.token, found.record.state) == (previous, state):
                first, now = found
                if state == "failed" or (_lapsed(first, now) and not first.checkpointed):
                    self._records[claim.id] = _begun(claim, now)._replace(
                        attempt=first.attempt + 1,
                        created_at=first.created_at,
                        expires_at=_moved(claim, first.expires_at, now),
                        request_id=first.request_id,
                    )
                    return Reserved(first.attempt + 1)
            return self.reserve(claim)

    def look(self, id: bytes) -> Found | None:
        with self._lock:
            record, now = self._records.get(id), self._clock()
            return None if record is None or _expired(record, now) else Found(record, now)

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        with self._lock:
            record, now = self._running(claim), self._clock()
            if record is None:
                return False
            self._records[claim.id] = record._replace(
                checkpointed=True,
                response=head._replace(body=b""),
                held_until=max(record.held_until, now + claim.hold),
                updated_at=now,
                expires_at=_moved(claim, record.expires_at, now),
            )
            return True

    def finish(self, claim: Claim, final: Final) -> bool:
        with self._lock:
            record, now = self._records.get(claim.id), self._clock()
            if record is None or record.token != claim.token:
                return False
            if record.state != "in_progress":
                return (record.state, record.response, record.omitted) == final[:3]
            late = record.expires_at <= now
            self._records[claim.id] = record._replace(
                state=final.state,
                response=final.response,
                omitted=final.omitted,
                updated_at=now,
                completed_at=now,
                expires_at=now + claim.retention if late else _moved(claim, record.expires_at, now),
                details=tuple({**dict(record.details), **dict(final.details)}.items()),
            )
            return True

    def release(self, claim: Claim) -> None:
        with self._lock:
            if self._running(claim) is not None:
                del self._records[claim.id]

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        with self._lock:
            return [self._renew(claim) for claim in claims]

    def purge(self, limit: int = 500) -> Purged:
        with self._lock:
            now = self._clock()
            expired = [record for record in self._records.values() if _expired(record, now)][:limit]
            for record in expired:
                del self._records[record.id]
            unresolved = tuple(record for record in expired if record.state == "in_progress")
            return Purged(len(expired), unresolved)

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        with self._lock:
            now = self._clock()
            for id, (number, ago) in asked.items():
                if (record := self._records.get(id)) is not None:
                    times = (*record.delivery_times, *(now - seconds for seconds in ago))
                    self._records[id] = record._replace(
                        deliveries=record.deliveries + number, seen_at=times[-1], delivery_times=times[-20:]
                    )

    def open_keeper(self) -> "OwnKeeper":
        return OwnKeeper(self)

    def open_admin(self) -> Admin:
        raise NotImplementedError("this store has no operator's end")

    def close(self) -> None:
        pass

    def _running(self, claim: Claim) -> Record | None:
        record = self._records.get(claim.id)
        owned = record is not None and record.token == claim.token and record.state == "in_progress"
        return record if owned else None

    def _renew(self, claim: Claim) -> bool:
        record = self._records.get(claim.id)
        if record is None or record.token != claim.token:
            return False
        if record.state == "in_progress":
            self._records[claim.id] = record._replace(lease_until=self._clock() + claim.lease)
        return True


class AsyncOwnStore:
    def __init__(self, store: OwnStore) -> None:
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


class OwnKeeper:
    def __init__(self, store: OwnStore) -> None:
        self._store = store

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        return self._store.renew(claims)

    def release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._store.release(claim)

    def count(self, ended: Mapping[Counted, int]) -> None:
        pass

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        self._store.add_deliveries(asked)

    def close(self) -> None:
        pass


def _moved(claim: Claim, expires_at: float, now: float) -> float:
    return now + claim.retention if claim.retention_from == "update" else expires_at


def _begun(claim: Claim, now: float) -> Record:
    of_the_claim = {name: getattr(claim, name) for name in Record._fields if name in Claim._fields}
    return Record(
        **of_the_claim,
        state="in_progress",
        attempt=1,
        lease_until=now + claim.lease,
        checkpointed=False,
        created_at=now,
        updated_at=now,
        completed_at=None,
        expires_at=now + claim.retention,
        held_until=now + claim.hold,
        response=None,
        omitted=False,
    )


def _lapsed(record: Record, now: float) -> bool:
    return (record.expires_at if record.lease_until is None else record.lease_until) <= now


def _expired(record: Record, now: float) -> bool:
    return record.expires_at <= now and (
        record.state != "in_progress" or (record.held_until <= now and _lapsed(record, now))
    )
