"""Stores that break a promise by themselves: each is the one in memory, with as little changed as it takes.

Nothing is locked here: the simulator is one thread.
"""

from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Reservation,
    Reserved,
    Response,
    Unsettled,
)
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.setting import Clock
from tools.planted.bug import HOLD, REASONED, REPLAY, RETRY, TX, Planted


class FinishesUnfenced(ModelStore):
    """Stores whatever it is given, whichever owner holds the key."""

    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        if row is None:
            return False
        row.state = "in_progress"
        return super().finish(row.claim, final)


class FinishesTwice(ModelStore):
    """An outcome that is there already is replaced by a later one."""

    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        if row is not None and row.state == "completed":
            row.claim = claim
            row.state = "in_progress"
        return super().finish(claim, final)


class DoesNotCount(ModelStore):
    """Writes where it may, and never looks how many rows it wrote."""

    def finish(self, claim: Claim, final: Final) -> bool:
        super().finish(claim, final)
        return True


class TakesOverAnything(ModelStore):
    """Ignores which attempt it was asked to replace."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        row = self._rows.get(claim.id)
        if row is None:
            return self.reserve(claim)
        row.begin_again(claim, self._clock())
        return Reserved(row.attempt)


class TakesOverFailures(ModelStore):
    """Compares the token only: an abandoned attempt may meanwhile have failed for good."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        row = self._rows.get(claim.id)
        failed = row is not None and row.state == "failed"
        return super().take_over(claim, previous, "failed" if failed else state)


class TakesOverTheLiving(ModelStore):
    """Gives a key that is in use to every request that asks for it."""

    def reserve(self, claim: Claim) -> Reservation:
        found = super().reserve(claim)
        if isinstance(found, Found) and found.record.state == "in_progress":
            self._rows[claim.id].begin_again(claim, found.now)
            return Reserved(2)
        return found


class ReleasesUnfenced(ModelStore):
    """Deletes the record, whichever owner holds the key now."""

    def release(self, claim: Claim) -> None:
        self._rows.pop(claim.id, None)


class ReleasesOutcomes(ModelStore):
    """Compares the token only: what was stored under it is deleted."""

    def release(self, claim: Claim) -> None:
        row = self._rows.get(claim.id)
        if row is not None and row.claim.token == claim.token:
            del self._rows[claim.id]


class ForgetsItself(ModelStore):
    """Does not recognise a bid that is repeated because its acknowledgement was lost."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._told: set[bytes] = set()

    def reserve(self, claim: Claim) -> Reservation:
        found = super().reserve(claim)
        if isinstance(found, Reserved) and claim.token in self._told:
            return Found(self._rows[claim.id].record()._replace(token=b"?"), self._clock())
        self._told.add(claim.token)
        return found


class DecidesInBatches(ModelStore):
    """Two bids in a row are one batch, and a batch is decided by what was there before it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._first: Claim | None = None

    def reserve(self, claim: Claim) -> Reservation:
        first, self._first = self._first, None
        if first is not None and first.id == claim.id and first.token != claim.token:
            row = self._rows.get(claim.id)
            if row is not None and row.running(first.token) and row.attempt == 1:
                del self._rows[claim.id]
        found = super().reserve(claim)
        if isinstance(found, Reserved) and first is None:
            self._first = claim
        return found

    def look(self, id: bytes) -> Found | None:
        self._first = None
        return super().look(id)

    def finish(self, claim: Claim, final: Final) -> bool:
        self._first = None
        return super().finish(claim, final)


class RefusesRepeats(ModelStore):
    """Takes an outcome that is sent again, because its acknowledgement was lost, for another owner's."""

    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        return row is not None and row.running(claim.token) and super().finish(claim, final)


class ForgetsCheckpoints(ModelStore):
    """Says that it has noted what leaves, and has not."""

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        row = self._rows.get(claim.id)
        return row is not None and row.running(claim.token)


class ChecksPointUnfenced(ModelStore):
    """Lets a response leave, whichever owner holds the key."""

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        row = self._rows.get(claim.id)
        return row is not None and super().checkpoint(claim._replace(token=row.claim.token), head)


class ForgetsTombstones(ModelStore):
    """Does not note that a response was too large to store."""

    def finish(self, claim: Claim, final: Final) -> bool:
        return super().finish(claim, final._replace(omitted=False))


PLANTED = (
    Planted(
        "finish is not fenced",
        "aws-lambda-powertools 3.37 updates records unconditionally; pikkujs/pikku#1742 writes results by id",
        RETRY._replace(store=FinishesUnfenced),
    ),
    Planted(
        "finish replaces an outcome",
        "the callback receipts of job-callbacks are saved over whatever is there",
        RETRY._replace(store=FinishesTwice),
    ),
    Planted(
        "finish does not look whether it wrote a row",
        "Robert-Velhorst/015-Weggeefkastje.nl-automation#19: that the update changed a row was not checked",
        RETRY._replace(store=DoesNotCount),
    ),
    Planted(
        "take_over is unconditional",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        RETRY._replace(store=TakesOverAnything),
    ),
    Planted(
        "take_over does not compare the state",
        "our own history: enumerating schedules found a take-over that overran a failure",
        REPLAY._replace(handler="fails", store=TakesOverFailures),
    ),
    Planted(
        "reserve takes the living over",
        "django-idempotency-key 1.3.0 ran 8 concurrent duplicates 8 times",
        HOLD._replace(store=TakesOverTheLiving),
    ),
    Planted(
        "reserve does not recognise itself",
        REASONED,
        HOLD._replace(store=ForgetsItself),
    ),
    Planted(
        "two equal keys in one batch are both new",
        "camunda/camunda#60741: one request may carry the same id twice",
        HOLD._replace(store=DecidesInBatches),
    ),
    Planted(
        "finish does not recognise itself",
        REASONED,
        HOLD._replace(store=RefusesRepeats),
    ),
    Planted(
        "release is not fenced",
        "KanishJebaMathewM/Truxify#4623: a slow request deletes the lock of its successor",
        RETRY._replace(handler="declines", store=ReleasesUnfenced),
    ),
    Planted(
        "a checkpoint is not stored",
        "idemgate 0.1.0 runs streamed requests again",
        RETRY._replace(handler="streams", store=ForgetsCheckpoints),
    ),
    Planted(
        "a checkpoint is not fenced",
        "pikkujs/pikku#1742: writes of an attempt that was taken over are taken for its successor's",
        RETRY._replace(handler="streams", store=ChecksPointUnfenced),
    ),
    Planted(
        "a tombstone is stored as an empty response",
        "erp: a body above 1 MiB replays as an empty 200",
        HOLD._replace(handler="streams", store=ForgetsTombstones),
    ),
    Planted(
        "tx: finish is not fenced",
        "aws-lambda-powertools 3.37 updates records unconditionally",
        TX._replace(store=FinishesUnfenced),
    ),
    Planted(
        "tx: finish does not look whether it wrote a row",
        "Robert-Velhorst/015-Weggeefkastje.nl-automation#19: that the update changed a row was not checked",
        TX._replace(store=DoesNotCount),
    ),
    Planted(
        "tx: take_over is unconditional",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        TX._replace(store=TakesOverAnything),
    ),
    Planted(
        "tx: release is not fenced",
        "usesend/useSend#282: the lock is deleted even if another holds it",
        TX._replace(handler="recovers", store=ReleasesUnfenced),
    ),
    Planted(
        "tx: a release deletes what was committed",
        "aws-powertools/powertools-lambda-typescript#5675: a completed record was deleted",
        TX._replace(store=ReleasesOutcomes),
    ),
)
