"""Leases that are wrong: whose they are, for how long, and by which clock."""

from collections.abc import Sequence

from retrysafe._core.model import Claim, Reservation, Unsettled
from retrysafe.stores.memory import MemoryRenewer
from retrysafe.testing.simulate import clocks
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.setting import Clock
from tools.planted.bug import HOLD, REASONED, RETRY, Planted
from tools.planted.decisions import Unfinished, judging_unfinished


class RenewsUnfenced(ModelStore):
    """Renews the lease of the holder of the key, and replies that it was yours."""

    def _renew(self, claim: Claim) -> bool:
        row = self._rows.get(claim.id)
        return row is not None and super()._renew(row.claim)


class Revives(ModelStore):
    """Sets what is renewed to be in progress, whatever it was."""

    def _renew(self, claim: Claim) -> bool:
        row = self._rows.get(claim.id)
        if row is not None and row.claim.token == claim.token:
            row.state = "in_progress"
        return super()._renew(claim)


class Recreates(ModelStore):
    """Writes a renewal whether or not there is something to be renewed."""

    def _renew(self, claim: Claim) -> bool:
        if claim.id not in self._rows:
            self.reserve(claim)
        return super()._renew(claim)

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        return [self._renew(claim) for claim in claims]


class NeverRenews(ModelStore):
    """Says that it did."""

    def _renew(self, claim: Claim) -> bool:
        row = self._rows.get(claim.id)
        return row is not None and row.claim.token == claim.token


class RefusesRenewals(ModelStore):
    """Treats a late worker as one that was taken over."""

    def _renew(self, claim: Claim) -> bool:
        row = self._rows.get(claim.id)
        return row is not None and not row.lapsed(self._clock()) and super()._renew(claim)


class LeasesForever(ModelStore):
    """A lease is as long as the retention."""

    def reserve(self, claim: Claim) -> Reservation:
        return super().reserve(claim._replace(lease=claim.retention))

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return super().take_over(claim._replace(lease=claim.retention), previous, state)


class RenewsForever(ModelStore):
    """What is renewed once is renewed for good."""

    def _renew(self, claim: Claim) -> bool:
        return super()._renew(claim._replace(lease=claim.retention))


class RenewsByKey(ModelStore):
    """A batch is a dictionary by key, and has room for one of two attempts at it."""

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        renewed = {claim.id: super(RenewsByKey, self)._renew(claim) for claim in claims}
        return [renewed[claim.id] for claim in claims]


class ForgetsOthers(ModelStore):
    """What is forgotten is deleted by its key alone."""

    def open_keeper(self) -> MemoryRenewer:
        return _ForgetsOthers(self)


class _ForgetsOthers(MemoryRenewer):
    def release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            found = self._store.look(claim.id)
            if found is not None:
                self._store.release(claim._replace(token=found.record.token))


class ForgetsOneOfTwo(ModelStore):
    """A batch of releases is a dictionary by key, too."""

    def open_keeper(self) -> MemoryRenewer:
        return _ForgetsOneOfTwo(self)


class _ForgetsOneOfTwo(MemoryRenewer):
    def release(self, claims: Sequence[Claim]) -> None:
        super().release(list({claim.id: claim for claim in claims}.values()))


class GoesByLocalClocks(ModelStore):
    """Uses the clock of the caller."""

    def __init__(self, _clock: Clock) -> None:
        super().__init__(clocks.local)


def _by_the_local_clock(real: Unfinished) -> Unfinished:
    return lambda record, _now, policy: real(record, clocks.local(), policy)


PLANTED = (
    Planted(
        "the store goes by the workers' clocks",
        "Krzysztof318/MailFathom#1989: a job's lease is judged by the clock of the replica that asks",
        RETRY._replace(store=GoesByLocalClocks),
    ),
    Planted(
        "the judge goes by the worker's clock",
        "johanhaleby/occurrent#662: a competing consumer judges another node's lease by its own clock",
        HOLD,
        judging_unfinished(_by_the_local_clock),
    ),
    Planted(
        "a renewal is not fenced",
        "pikkujs/pikku#1742: an attempt that was taken over extends its successor's lease",
        RETRY._replace(store=RenewsUnfenced),
    ),
    Planted(
        "a renewal revives what is finished",
        "brendanlong/lion-reader#917: a delayed heartbeat takes a job back",
        HOLD._replace(store=Revives),
    ),
    Planted(
        "a renewal makes anew what is gone",
        REASONED,
        RETRY._replace(handler="declines", store=Recreates),
    ),
    Planted(
        "leases are not renewed",
        "idemkit 1.0.2 renews no lease on HTTP, so a handler slower than its lease runs twice",
        RETRY._replace(store=NeverRenews),
    ),
    Planted(
        "a worker that renews late is treated as taken over",
        REASONED,
        RETRY._replace(store=RefusesRenewals),
    ),
    Planted(
        "a lease is as long as the retention",
        "pathosDev/actor-ts#984: a crash wedges the key for 24 hours",
        RETRY._replace(store=LeasesForever),
    ),
    Planted(
        "a renewed lease is as long as the retention",
        "fastapi-idempotency-key 0.1.1: a crash blocks its key for 24 hours",
        RETRY._replace(store=RenewsForever),
    ),
    Planted(
        "two attempts at one key are renewed as one",
        REASONED,
        RETRY._replace(store=RenewsByKey),
    ),
    Planted(
        "forgetting a claim releases another's",
        "aws-powertools/powertools-lambda-typescript#5675 deletes records that it never acquired",
        RETRY._replace(store=ForgetsOthers),
    ),
    Planted(
        "of two claims at one key one is forgotten",
        REASONED,
        RETRY._replace(store=ForgetsOneOfTwo),
    ),
)
