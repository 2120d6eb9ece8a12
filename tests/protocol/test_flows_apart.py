"""The flows, stepped by hand: streams, waiting, authorisation and draining."""

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Final, Record, Reserved, Response
from retrysafe._core.problems import Problem
from retrysafe._core.protocol import conclude, let_flow
from retrysafe._core.steps import (
    Checkpoint,
    Finish,
    Forget,
    Look,
    Persist,
    Reauthorise,
    Release,
    Reserve,
    Result,
    Run,
    Streamed,
    TakeOver,
    Wait,
)
from retrysafe.policy import Policy
from tests.protocol.values import (
    ABANDONED,
    CLAIM,
    COMPLETED,
    CREATED,
    DOWN,
    FAILED,
    RETRY,
    RUNNING,
    WAITING,
    Stepper,
    a_call,
    found,
    running,
    stepping,
)

# --- Answers that flow ------------------------------------------------------------------------------------


def flowing() -> tuple[Attempt, Stepper[Result | None]]:
    attempt = Attempt(CLAIM, 1)
    head = Response(200, ((b"set-cookie", b"s=1"), (b"etag", b'"1"')))
    flow = Stepper(let_flow(a_call(), attempt, head))
    checkpoint = flow.expect(Checkpoint)
    assert checkpoint.claim == CLAIM._replace(hold=Policy().unknown_retention), "it is never run again"
    assert checkpoint.head == Response(200, ((b"etag", b'"1"'),))
    return attempt, flow


def test_bytes_leave_after_the_checkpoint() -> None:
    """The client gets every header; the record gets those that may be replayed."""
    attempt, flow = flowing()
    assert not attempt.checkpointed
    flow.give(True)
    assert flow.result is not None
    assert flow.result.stored
    assert isinstance(flow.result.reply, Response)
    assert (b"set-cookie", b"s=1") in flow.result.reply.headers
    assert attempt.checkpointed


def test_no_byte_leaves_after_being_overtaken() -> None:
    """Fenced: somebody else is at it, and this answer must not be seen."""
    attempt, flow = flowing()
    flow.give(False)
    assert flow.result is None
    assert not attempt.checkpointed


def test_a_checkpoint_that_cannot_be_made() -> None:
    """The answer flows, marked as not stored; from here on nothing is believed that was said."""
    attempt, flow = flowing()
    flow.throw(DOWN)
    flow.expect(Persist)
    flow.give(True)
    flow.expect(Checkpoint)
    flow.throw(DOWN)
    flow.give(False)
    assert flow.result is not None
    assert not flow.result.stored
    assert attempt.checkpointed


@pytest.mark.parametrize(
    ("write", "verdict", "stored"),
    [(True, "completed", True), (False, "completed", False), (None, "unstored", False)],
)
def test_the_end_of_a_stream(write: bool | None, verdict: str, stored: bool) -> None:
    """Its bytes are gone: there is nothing left to tell, whether or not the end could be kept."""
    attempt = Attempt(CLAIM, 1)
    attempt.checkpointed = True
    head = CREATED._replace(body=b"")
    flow = Stepper(conclude(a_call(), attempt, Streamed(head)))
    finish = flow.expect(Finish)
    assert finish.final == Final("completed", head, omitted=True)
    if write is None:
        flow.throw(DOWN)
    flow.give(bool(write))
    assert (flow.result.verdict, flow.result.reply, flow.result.stored) == (verdict, None, stored)


def test_a_stream_that_never_left_is_not_finished() -> None:
    """Its key was lost before a byte had left: the client is told what became of the key, and not nothing.

    A bid of its own that came late may have made the record anew, so a write might not even be refused.
    """
    flow = Stepper(conclude(a_call(), Attempt(CLAIM, 1), Streamed(CREATED._replace(body=b""))))
    flow.expect(Look)
    flow.give(None)
    assert flow.result.verdict == "outcome-unknown"
    assert flow.result.reply is not None


# --- Waiting ----------------------------------------------------------------------------------------------


def test_waiting_and_then_replaying() -> None:
    """A duplicate in waiting mode polls, ever more gently, until the answer is there."""
    flow, pauses = stepping(a_call(WAITING._replace(wait_for=10.0))), list[float]()
    for _ in range(7):
        flow.give(found(RUNNING))
        wait = flow.expect(Wait)
        assert wait.id == CLAIM.id
        pauses.append(wait.seconds)
        flow.give(wait.seconds)
        flow.expect(Reserve)
    flow.give(found(COMPLETED))
    assert flow.result.verdict == "replayed"
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25]


def test_waiting_ends_at_the_cap() -> None:
    """What really went by counts, and the last wait is no longer than what is left."""
    flow = stepping(a_call(WAITING))
    flow.give(found(RUNNING))
    flow.give(0.995)
    flow.give(found(RUNNING))
    assert flow.expect(Wait).seconds == pytest.approx(0.005)
    flow.give(0.006)
    flow.give(found(RUNNING))
    assert flow.result.verdict == "in-flight"


def test_no_room_to_wait() -> None:
    """Beyond the limit of waiters a duplicate gets its 409 at once (F46)."""
    flow = stepping(a_call(WAITING))
    flow.give(found(RUNNING))
    flow.expect(Wait)
    flow.give(None)
    assert flow.result.verdict == "in-flight"


def test_a_waiter_claims_what_was_released() -> None:
    """If the first one releases, one waiter claims and runs."""
    flow = stepping(a_call(WAITING))
    flow.give(found(RUNNING))
    flow.give(0.01)
    flow.expect(Reserve)
    flow.give(Reserved(1))
    flow.expect(Run)


@pytest.mark.parametrize("abandoned", ["hold", "retry"])
def test_a_waiter_judges_again(abandoned: str) -> None:
    """If the first one is abandoned meanwhile, the policy decides as for anybody else."""
    flow = stepping(a_call(WAITING._replace(abandoned=abandoned)))  # type: ignore[arg-type]
    flow.give(found(RUNNING))
    flow.give(0.01)
    flow.give(found(ABANDONED))
    if abandoned == "hold":
        assert flow.result.verdict == "outcome-unknown"
    else:
        flow.expect(TakeOver)


def test_a_mismatch_does_not_wait() -> None:
    """There is nothing to wait for: it will never be its answer."""
    flow = stepping(a_call(WAITING))
    flow.give(found(RUNNING._replace(fingerprint=b"other")))
    assert flow.result.verdict == "key-reused"


# --- Authorisation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [COMPLETED, FAILED])
def test_a_stored_answer_is_authorised_again(record: Record) -> None:
    """Whoever was let in then may not be let in now (I9, S2)."""
    flow = stepping(a_call(reauthorises=True))
    flow.give(found(record))
    flow.expect(Reauthorise)
    flow.give(True)
    assert flow.result.verdict == "replayed"
    flow = stepping(a_call(reauthorises=True))
    flow.give(found(record))
    flow.give(False)
    assert flow.result.verdict == "replay-forbidden"
    assert isinstance(flow.result.reply, Problem)


def test_what_is_no_replay_needs_no_authorisation() -> None:
    """Running is authorised by the application itself, and a 409 reveals no answer."""
    flow = running(a_call(reauthorises=True))
    flow.expect(Run)
    flow = stepping(a_call(reauthorises=True))
    flow.give(found(RUNNING))
    assert flow.result.verdict == "in-flight"


# --- Draining ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "policy", "verdict"),
    [
        (None, Policy(), "draining"),
        (COMPLETED, Policy(), "replayed"),
        (FAILED, Policy(), "replayed"),
        (FAILED, Policy(failed="conflict"), "previously-failed"),
        (FAILED, RETRY, "draining"),
        (ABANDONED, Policy(), "outcome-unknown"),
        (ABANDONED, RETRY, "draining"),
        (RUNNING, Policy(), "in-flight"),
        (COMPLETED._replace(fingerprint=b"other"), Policy(), "key-reused"),
    ],
)
def test_draining_looks_and_does_not_bid(there: Record | None, policy: Policy, verdict: str) -> None:
    """New claims get 503, replays go on, and nothing is written (F6)."""
    flow = stepping(a_call(policy, draining=True))
    assert flow.expect(Look).claim.id == CLAIM.id
    flow.give(found(there) if there else None)
    assert flow.result.verdict == verdict
    assert [type(step) for step in flow.asked] == [Look]


def test_draining_with_a_store_that_is_down() -> None:
    """Nothing was bid for, so there is nothing to forget."""
    flow = stepping(a_call(draining=True))
    flow.throw(DOWN)
    assert flow.result.verdict == "store-unavailable"
    assert [type(step) for step in flow.asked] == [Look]


def drained_meanwhile() -> Stepper[Result]:
    """A drain that begins between the bid and the handler."""
    drains = False
    flow = stepping(a_call()._replace(draining=lambda: drains))
    flow.expect(Reserve)
    drains = True
    flow.give(Reserved(1))
    flow.expect(Release)
    return flow


def test_a_claim_whose_handler_has_not_begun_is_released() -> None:
    """Otherwise the next server would find it abandoned, and hold what never ran."""
    flow = drained_meanwhile()
    flow.give(None)
    assert flow.result.verdict == "draining"


def test_a_claim_that_cannot_be_released_is_forgotten() -> None:
    """The keeper does it later."""
    flow = drained_meanwhile()
    flow.throw(DOWN)
    assert flow.expect(Forget).claim == CLAIM
    flow.give(None)
    assert flow.result.verdict == "draining"


def test_a_waiter_stops_waiting_for_a_drain() -> None:
    """It looks once more, and does not bid for what it waited for."""
    drains = False
    flow = stepping(a_call(WAITING)._replace(draining=lambda: drains))
    flow.give(found(RUNNING))
    flow.expect(Wait)
    drains = True
    flow.give(0.01)
    flow.expect(Look)
    flow.give(None)
    assert flow.result.verdict == "draining"
