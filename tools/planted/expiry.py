"""Stores that keep a record for too long, or not for long enough."""

from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Purged,
    Reservation,
    Reserved,
    Response,
    Unsettled,
)
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.setting import Clock
from tools.planted.bug import HOLD, REASONED, RETRY, Planted


class FinishesOutOfSight(ModelStore):
    """An outcome that comes after the expiry is stored, and has expired."""

    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        expires_at = row.expires_at if row is not None else 0.0
        stored = super().finish(claim, final)
        if stored and row is not None:
            row.expires_at = expires_at
        return stored


class CountsFromTheEnd(ModelStore):
    """The retention begins when a request is over."""

    def finish(self, claim: Claim, final: Final) -> bool:
        stored = super().finish(claim, final)
        row = self._rows.get(claim.id)
        if stored and row is not None:
            row.expires_at = self._clock() + claim.retention
        return stored


class RenewsRetentions(ModelStore):
    """A renewal extends the retention."""

    def _renew(self, claim: Claim) -> bool:
        renewed = super()._renew(claim)
        if renewed:
            self._rows[claim.id].expires_at = self._clock() + claim.retention
        return renewed


class HoldsNothingLonger(ModelStore):
    """A response that has begun to leave is held for no longer than any other."""

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        return super().checkpoint(claim._replace(hold=0.0), head)


class RestartsRetention(ModelStore):
    """Another attempt is another retention."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        reservation = super().take_over(claim, previous, state)
        if isinstance(reservation, Reserved):
            self._rows[claim.id].expires_at = self._clock() + claim.retention
        return reservation


class Slides(ModelStore):
    """Every look at a response extends its retention."""

    def reserve(self, claim: Claim) -> Reservation:
        found = super().reserve(claim)
        if isinstance(found, Found):
            self._rows[claim.id].expires_at = found.now + claim.retention
        return found


class ProlongsOthers(ModelStore):
    """A request for a key that is in use extends its lease."""

    def reserve(self, claim: Claim) -> Reservation:
        found = super().reserve(claim)
        if isinstance(found, Found) and found.record.state == "in_progress":
            self._rows[claim.id].lease_until = found.now + claim.lease
            return found._replace(record=self._rows[claim.id].record())
        return found


class NeverExpires(ModelStore):
    """Does not compare the expiry when it reads."""

    def reserve(self, claim: Claim) -> Reservation:
        row = self._rows.get(claim.id)
        if row is not None:
            row.expires_at = float("inf")
        return super().reserve(claim)


class ExpiresByPurge(ModelStore):
    """A response is replayed until the next purge."""

    def reserve(self, claim: Claim) -> Reservation:
        row = self._rows.get(claim.id)
        now = self._clock()
        if row is not None and row.state == "completed" and row.expired(now):
            return Found(row.record(), now)
        return super().reserve(claim)


class FailsForGood(ModelStore):
    """A failure is known until the next purge."""

    def reserve(self, claim: Claim) -> Reservation:
        row = self._rows.get(claim.id)
        now = self._clock()
        if row is not None and row.state == "failed" and row.expired(now):
            return Found(row.record(), now)
        return super().reserve(claim)


class HoldsForGood(ModelStore):
    """What is abandoned stays so until the next purge."""

    def reserve(self, claim: Claim) -> Reservation:
        row = self._rows.get(claim.id)
        now = self._clock()
        if row is not None and row.state == "in_progress" and row.expired(now):
            return Found(row.record(), now)
        return super().reserve(claim)


class ForgetsTheHold(ModelStore):
    """Takes an abandoned record for an expired one."""

    def reserve(self, claim: Claim) -> Reservation:
        row = self._rows.get(claim.id)
        if row is not None and row.state == "in_progress" and row.lapsed(self._clock()):
            del self._rows[claim.id]
        return super().reserve(claim)


class PurgesByAge(ModelStore):
    """Goes by the expiry alone."""

    def purge(self, limit: int = 500) -> Purged:
        now = self._clock()
        return self._remove([row for row in self._rows.values() if row.expires_at <= now][:limit])


class PurgesTheUnresolved(ModelStore):
    """Spares a lease that is alive, and not an outcome that is unknown."""

    def purge(self, limit: int = 500) -> Purged:
        now = self._clock()
        old = [
            row
            for row in self._rows.values()
            if row.expires_at <= now and (row.state != "in_progress" or row.lapsed(now))
        ]
        return self._remove(old[:limit])


class PurgesWhatItSaw(ModelStore):
    """Looks for what has expired, and deletes it by its id when it comes by again."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._seen: list[bytes] = []

    def purge(self, limit: int = 500) -> Purged:
        seen, now = self._seen, self._clock()
        self._seen = [id for id, row in self._rows.items() if row.expired(now)]
        return self._remove([self._rows[id] for id in seen if id in self._rows][:limit])


PLANTED = (
    Planted(
        "the retention counts from the end",
        "workflow-control counts the time to live from the last update",
        HOLD._replace(store=CountsFromTheEnd),
    ),
    Planted(
        "a renewal restarts the retention",
        "workflow-control counts the time to live from the last update",
        HOLD._replace(store=RenewsRetentions),
    ),
    Planted(
        "a response that has begun to leave is forgotten with the retention",
        "idemgate 0.1.0 runs large and streamed requests again",
        RETRY._replace(handler="streams", store=HoldsNothingLonger),
    ),
    Planted(
        "an outcome that is stored late has expired",
        REASONED,
        HOLD._replace(store=FinishesOutOfSight),
    ),
    Planted(
        "take_over restarts the retention",
        "workflow-control counts the time to live from the last update",
        RETRY._replace(store=RestartsRetention),
    ),
    Planted(
        "reserve extends the retention of a replayed response",
        "PrefectHQ/prefect#5221: each request with a key refreshed it for another 24 hours",
        HOLD._replace(store=Slides),
    ),
    Planted(
        "reserve prolongs the lease that it finds",
        REASONED,
        RETRY._replace(store=ProlongsOthers),
    ),
    Planted(
        "reserve does not know the hold",
        "several packages run again blindly some 30 seconds after kill -9",
        HOLD._replace(store=ForgetsTheHold),
    ),
    Planted(
        "nothing expires",
        "asgi-idempotency-header 0.2.0 responds 409 for ever",
        HOLD._replace(store=NeverExpires),
    ),
    Planted(
        "only a purge ends a retention",
        "agents: keys expire when the cleanup comes by",
        HOLD._replace(store=ExpiresByPurge),
    ),
    Planted(
        "only a purge ends the retention of what may no longer be seen",
        "agents: keys expire when the cleanup comes by",
        HOLD._replace(reauthorise=True, store=ExpiresByPurge),
    ),
    Planted(
        "only a purge ends the retention of a failure",
        "agents: keys expire when the cleanup comes by",
        HOLD._replace(failed="conflict", handler="recovers", store=FailsForGood),
    ),
    Planted(
        "only a purge ends the hold of what was abandoned",
        "agents: keys expire when the cleanup comes by",
        HOLD._replace(store=HoldsForGood),
    ),
    Planted(
        "purge removes running records",
        "agents: DELETE … WHERE created_at < NOW() - INTERVAL '24 hours'",
        RETRY._replace(store=PurgesByAge),
    ),
    Planted(
        "purge removes unresolved records",
        "erp: a scheduled job prunes whatever expires_at has passed",
        HOLD._replace(store=PurgesTheUnresolved),
    ),
    Planted(
        "purge removes by the ids of an earlier look",
        REASONED,
        HOLD._replace(store=PurgesWhatItSaw),
    ),
)
