"""Bugs that are planted in the store, the judge and the flow are found by the enumeration of schedules.

A check that cannot fail proves nothing.
"""

from collections.abc import Callable

import pytest

from retrysafe import decisions, protocol
from retrysafe.call import Call
from retrysafe.model import Claim, Final, Found, Record, Reservation, Reserved, Unsettled
from retrysafe.policy import Policy
from retrysafe.steps import Checkpoint, Finish, Flow
from retrysafe.stores.memory import MemoryStore
from retrysafe.verdicts import Judgement, Overtake
from tests.protocol.stepping import Setting, Violation, World, explore
from tests.protocol.test_interleavings import TWO_ALIKE
from tests.protocol.witness import transactional


class FinishesUnfenced(MemoryStore):
    """Keeps whatever it is given, whoever holds the key."""

    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        if row is None:
            return False
        row.state, row.response, row.omitted = final
        return True


class FinishesTwice(MemoryStore):
    """Fenced by the token, but an outcome that is there already is replaced by a later one."""

    def finish(self, claim: Claim, final: Final) -> bool:
        row = self._rows.get(claim.id)
        if row is not None and row.state == "completed":
            row.claim = claim
            row.state = "in_progress"
        return super().finish(claim, final)


class TakesOverAnything(MemoryStore):
    """Ignores which attempt it was asked to replace."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        row = self._rows[claim.id]
        row.begin_again(claim, self._clock())
        return Reserved(row.attempt)


class TakesOverFailures(MemoryStore):
    """Compares the token only: an abandoned attempt may meanwhile have failed for good."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        row = self._rows.get(claim.id)
        failed = row is not None and row.state == "failed"
        return super().take_over(claim, previous, "failed" if failed else state)


class TakesOverTheLiving(MemoryStore):
    """Gives a key that is in use to whoever asks for it."""

    def reserve(self, claim: Claim) -> Reservation:
        found = super().reserve(claim)
        if isinstance(found, Found) and found.record.state == "in_progress":
            self._rows[claim.id].begin_again(claim, found.now)
            return Reserved(2)
        return found


class ReleasesUnfenced(MemoryStore):
    """Deletes the record of whoever holds the key now."""

    def release(self, claim: Claim) -> None:
        self._rows.pop(claim.id, None)


class NeverExpires(MemoryStore):
    """Does not compare the expiry when it reads."""

    def reserve(self, claim: Claim) -> Reservation:
        row = self._rows.get(claim.id)
        if row is not None:
            row.expires_at = float("inf")
        return super().reserve(claim)


class ForgetsTheHold(MemoryStore):
    """Takes an abandoned record for an expired one."""

    def reserve(self, claim: Claim) -> Reservation:
        row = self._rows.get(claim.id)
        if row is not None and row.state == "in_progress" and row.lapsed(self._clock()):
            del self._rows[claim.id]
        return super().reserve(claim)


class ForgetsItself(MemoryStore):
    """Does not recognise a bid that is repeated because its acknowledgement was lost."""

    def reserve(self, claim: Claim) -> Reservation:
        found = super().reserve(claim)
        if isinstance(found, Reserved) and found.attempt == 1 and self._seen == claim.token:
            return Found(self._rows[claim.id].record()._replace(token=b"?"), self._clock())
        if isinstance(found, Reserved):
            self._seen = claim.token
        return found

    _seen = b""


class LosesLeases(MemoryStore):
    """Takes a missing lease for one that has ended."""

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        row = self._rows[claim.id]
        if row.lease_until is None:
            row.lease_until = 0.0
        return super().take_over(claim, previous, state)


BROKEN_STORES = {
    "finish is not fenced": Setting("retry", store=FinishesUnfenced),
    "finish replaces an outcome": Setting("retry", store=FinishesTwice),
    "take_over is unconditional": Setting("retry", store=TakesOverAnything),
    "take_over does not compare the state": Setting("retry", "replay", "fails", store=TakesOverFailures),
    "reserve takes the living over": Setting("hold", store=TakesOverTheLiving),
    "reserve is not atomic": Setting("hold", split_reserve=True, faults=0, lapses=0),
    "reserve does not know the hold": Setting("hold", store=ForgetsTheHold),
    "reserve does not recognise itself": Setting("hold", store=ForgetsItself),
    "nothing expires": Setting("hold", store=NeverExpires, faults=0, lapses=0),
    "release is not fenced": Setting("retry", "retry", "declines", store=ReleasesUnfenced),
    "tx: finish is not fenced": transactional(store=FinishesUnfenced),
    "tx: what was fenced is committed": transactional(commits_unfenced=True),
    "tx: take_over is unconditional": transactional(store=TakesOverAnything),
    "tx: release is not fenced": transactional("recovers", store=ReleasesUnfenced),
}


def violation(setting: Setting) -> str:
    """What the exploration finds, which must be something."""
    with pytest.raises(Violation) as found:
        explore(setting, World.aftermath)
    return str(found.value)


@pytest.mark.parametrize("name", BROKEN_STORES)
def test_a_broken_store_is_found(name: str) -> None:
    """Each of these stores breaks a promise in some schedule, and the exploration says in which."""
    assert "after: " in violation(BROKEN_STORES[name])


def test_a_judge_that_takes_a_missing_lease_for_an_orphan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store does not give such a record away, and so the flow would ask for it for ever."""
    monkeypatch.setattr(decisions, "_judge_unfinished", _orphans(decisions._judge_unfinished))
    assert "circles" in violation(Setting("retry", damage=True, lapses=0))


def test_a_judge_and_a_store_that_agree_on_orphans_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the store makes the same mistake, a key is given away beside its owner."""
    monkeypatch.setattr(decisions, "_judge_unfinished", _orphans(decisions._judge_unfinished))
    setting = Setting("retry", damage=True, lapses=0, store=LosesLeases)
    assert "given away while its lease was alive" in violation(setting)


def _orphans(
    judge: Callable[[Record, float, Policy], Judgement],
) -> Callable[[Record, float, Policy], Judgement]:
    def judge_unfinished(record: Record, now: float, policy: Policy) -> Judgement:
        return (
            Overtake(record.token, "in_progress")
            if record.lease_until is None
            else judge(record, now, policy)
        )

    return judge_unfinished


def test_a_judge_that_does_not_hold_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running an abandoned request again is a second execution where the policy says never."""
    judge = decisions._judge_unfinished
    monkeypatch.setattr(
        decisions,
        "_judge_unfinished",
        lambda record, now, policy: judge(record, now, policy._replace(abandoned="retry")),
    )
    assert "execution 2, where 1 may be" in violation(Setting("hold"))


def test_a_judge_that_does_not_compare_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its fingerprint, a request sees the answer to another one."""
    monkeypatch.setattr(decisions, "same", lambda one, other: True)
    assert "one request saw the answer to another" in violation(Setting("hold", fingerprints=TWO_ALIKE))


def test_a_flow_that_does_not_believe_the_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that was overtaken must not deliver what it made."""
    real = protocol.keep

    def keep(call: Call, write: Finish | Checkpoint) -> Flow[bool | None]:
        yield from real(call, write)
        return True

    monkeypatch.setattr(protocol, "keep", keep)
    assert "told an outcome that was not kept" in violation(Setting("retry"))


def test_a_flow_that_answers_before_it_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent that is not durable."""

    def keep(call: Call, write: Finish | Checkpoint) -> Flow[bool | None]:
        return True
        yield  # never: this makes it a flow

    monkeypatch.setattr(protocol, "keep", keep)
    assert "told an outcome that was not kept" in violation(Setting("hold", faults=0, lapses=0))


def test_a_flow_that_never_releases_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that did nothing must not block its key."""

    def release(call: Call) -> Flow[None]:
        return
        yield  # never: this makes it a flow

    monkeypatch.setattr(protocol, "_release", release)
    setting = Setting("hold", "replay", "declines", faults=0, lapses=0)
    assert "told that its key is free, and it is not" in violation(setting)
