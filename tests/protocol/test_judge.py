"""`judge`: the table of what a bid for a key means, line by line."""

import itertools
from typing import get_args

import pytest

from retrysafe._core.decisions import judge
from retrysafe._core.model import Found, Reserved, State
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Busy, CanTakeOver, Judgement, Replay
from retrysafe.policy import Abandoned, Failed, Policy
from tests.protocol.values import BROKE, CLAIM, CREATED, NOW, a_record

RUNNING = a_record()
ABANDONED = a_record(lease_until=NOW)
COMPLETED = a_record(state="completed", response=CREATED)
FAILED = a_record(state="failed", response=BROKE)
CHECKPOINTED = ABANDONED._replace(checkpointed=True, response=CREATED._replace(body=b""))

EVERY_POLICY = [
    Policy(failed=failed, abandoned=abandoned)
    for failed, abandoned in itertools.product(get_args(Failed), get_args(Abandoned))
]


def judged(record: object, policy: Policy | None = None, now: float = NOW) -> Judgement:
    return judge(Found(record, now), CLAIM, policy or Policy())  # type: ignore[arg-type]  # a record


def code(judgement: Judgement) -> str:
    assert isinstance(judgement, Problem)
    return judgement.code


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_nothing_or_expired_is_run(policy: Policy) -> None:
    """A store that found nothing of age has reserved the key: it is ours, under every policy."""
    assert judge(Reserved(1), CLAIM, policy) == Reserved(1)
    assert judge(Reserved(3), CLAIM, policy) == Reserved(3)


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_in_progress_is_busy(policy: Policy) -> None:
    """While the lease is alive, nobody else gets the key."""
    assert isinstance(judged(RUNNING, policy), Busy)
    assert isinstance(judged(RUNNING, policy, NOW + 29.999), Busy)


@pytest.mark.parametrize("policy", EVERY_POLICY)
@pytest.mark.parametrize("mode", ["lease", "tx"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_missing_lease_is_alive(policy: Policy, mode: str, checkpointed: bool) -> None:
    """A lease that was lost or damaged in the store is no orphan before the record's time is up (F24).

    After that, nobody is told for as long as it is held that somebody is at it.
    """
    lost = RUNNING._replace(lease_until=None, checkpointed=checkpointed, mode=mode)  # type: ignore[arg-type]
    assert isinstance(judged(lost, policy, lost.expires_at - 0.001), Busy)
    lapsed = lost._replace(lease_until=lost.expires_at)
    assert judged(lost, policy, lost.expires_at) == judged(lapsed, policy, lost.expires_at)
    assert not isinstance(judged(lost, policy, lost.expires_at), Busy)


@pytest.mark.parametrize(("later", "hint"), [(0.0, 0.2), (0.1, 0.2), (5.0, 5.0), (20.0, 10.0), (29.9, 0.1)])
def test_how_long_to_wait(later: float, hint: float) -> None:
    """As long again as it took already, but not beyond its lease, and not at once."""
    judgement = judged(RUNNING, now=NOW + later)
    assert isinstance(judgement, Busy)
    assert judgement.retry_after == pytest.approx(hint)


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_abandoned_in_a_transaction_is_taken_over(policy: Policy) -> None:
    """Its effects were rolled back with it, so there is nothing to hold."""
    assert judged(ABANDONED._replace(mode="tx"), policy) == CanTakeOver(b"theirs", "in_progress")


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_abandoned_with_a_lease(policy: Policy) -> None:
    """`hold` says that the outcome is unknown; `retry` takes over."""
    judgement = judged(ABANDONED, policy)
    if policy.abandoned == "hold":
        assert code(judgement) == "outcome-unknown"
    else:
        assert judgement == CanTakeOver(b"theirs", "in_progress")


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_a_checkpointed_attempt_is_never_taken_over(policy: Policy) -> None:
    """Bytes of its answer have left: its outcome is unknown under either policy."""
    assert code(judged(CHECKPOINTED, policy)) == "outcome-unknown"


def test_a_lease_ends_on_time() -> None:
    """At the very moment of its end it is over: two may not both think that it is theirs."""
    retry = Policy(abandoned="retry")
    assert isinstance(judged(ABANDONED, retry, now=NOW - 0.001), Busy)
    assert judged(ABANDONED, retry, now=NOW) == CanTakeOver(b"theirs", "in_progress")


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_completed_is_replayed(policy: Policy) -> None:
    """Whatever the policy: it is settled."""
    assert judged(COMPLETED, policy) == Replay(COMPLETED)
    assert judged(COMPLETED._replace(omitted=True), policy) == Replay(COMPLETED._replace(omitted=True))


@pytest.mark.parametrize("abandoned", get_args(Abandoned))
def test_failed(abandoned: Abandoned) -> None:
    """A failure is replayed, run again or reported, as the policy says."""
    assert judged(FAILED, Policy(failed="replay", abandoned=abandoned)) == Replay(FAILED)
    assert judged(FAILED, Policy(failed="retry", abandoned=abandoned)) == CanTakeOver(b"theirs", "failed")
    conflict = judged(FAILED, Policy(failed="conflict", abandoned=abandoned))
    assert isinstance(conflict, Problem)
    assert conflict.previous is not None
    assert (conflict.code, conflict.previous.status) == ("previously-failed", 500)


def test_a_failure_without_a_response() -> None:
    """A conflict is reported all the same."""
    conflict = judged(FAILED._replace(response=None), Policy(failed="conflict"))
    assert isinstance(conflict, Problem)
    assert conflict.previous is not None
    assert conflict.previous.status is None


@pytest.mark.parametrize("policy", EVERY_POLICY)
@pytest.mark.parametrize("record", [RUNNING, ABANDONED, CHECKPOINTED, COMPLETED, FAILED])
def test_a_different_request_is_a_mismatch(policy: Policy, record: object) -> None:
    """In every state and under every policy: it never runs and never sees the answer (I7)."""
    other = CLAIM._replace(fingerprint=b"something else")
    found = Found(record, NOW)  # type: ignore[arg-type]  # a record
    assert code(judge(found, other, policy)) == "key-reused"


@pytest.mark.parametrize("policy", EVERY_POLICY)
@pytest.mark.parametrize("record", [RUNNING, ABANDONED, RUNNING._replace(lease_until=None)])
def test_our_own_bid_is_recognised(policy: Policy, record: object) -> None:
    """A bid whose acknowledgement was lost finds its own token, and nobody to wait for (I16)."""
    mine = record._replace(token=CLAIM.token, attempt=2)  # type: ignore[attr-defined]  # a record
    assert judged(mine, policy) == Reserved(2)


def test_every_state_is_in_the_table() -> None:
    """A new state would need a line in the table, and in these tests."""
    assert set(get_args(State)) == {"in_progress", "completed", "failed"}
