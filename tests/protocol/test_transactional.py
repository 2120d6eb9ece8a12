"""The flow of a call whose effects are in the store's own database, step by step."""

import asyncio

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.decisions import settle
from retrysafe._core.model import Reserved, Response
from retrysafe._core.problems import Problem
from retrysafe._core.protocol import once
from retrysafe._core.steps import (
    Call,
    CallBack,
    Commit,
    Forget,
    Look,
    Outcome,
    Raised,
    Release,
    Reserve,
    Responded,
    Result,
    RollBack,
    Run,
    TakeOver,
    ToFail,
    ToRelease,
    ToStore,
)
from retrysafe.errors import CommitRefused, NotDone
from retrysafe.policy import OutcomeRules, Policy
from tests.protocol.values import (
    ABANDONED,
    CLAIM,
    COMPLETED,
    CREATED,
    DOWN,
    RULES,
    RUNNING,
    Stepper,
    a_record,
    describe,
    found,
)

OURS = CLAIM._replace(mode="tx", hold=0.0)
POLICY = Policy(effects="database", failed="retry", abandoned="retry")
MINE = a_record(token=OURS.token)


def a_call(rules: OutcomeRules = RULES) -> Call:
    return Call(OURS, POLICY, rules, describe)


def running() -> Stepper[Result]:
    flow = Stepper(once(a_call()))
    flow.expect(Reserve)
    flow.give(Reserved(1))
    flow.expect(Run)
    return flow


def committing() -> Stepper[Result]:
    """A flow whose handler has succeeded."""
    flow = running()
    flow.give(Responded(CREATED))
    step = flow.expect(Commit)
    assert step.claim == OURS
    assert (step.final.state, step.final.response) == ("completed", CREATED)
    return flow


def fenced() -> Stepper[Result]:
    """A flow that found its record to be somebody else's, and looks whose."""
    flow = committing()
    flow.give(False)
    flow.expect(Look)
    return flow


def settled(
    outcome: Outcome, attempt: Attempt | None = None, rules: OutcomeRules = RULES
) -> ToStore | ToRelease:
    settlement = settle(outcome, attempt or Attempt(OURS, 1), a_call(rules))
    assert not isinstance(settlement, ToFail), "only a delivery's"
    return settlement


# --- What is kept


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 401, 403, 408, 413, 425, 429])
def test_what_did_not_succeed_is_undone(status: int) -> None:
    """Every 5xx, because it can be undone; and what a server answers that has not begun."""
    answer = Response(status, (), b"no")
    assert settled(Responded(answer)) == ToRelease(answer)


@pytest.mark.parametrize("status", [200, 201, 204, 302, 400, 404, 409, 422])
def test_what_settles_it_is_kept(status: int) -> None:
    """As in lease mode."""
    answer = Response(status, (), b"yes")
    settlement = settled(Responded(answer))
    assert isinstance(settlement, ToStore)
    assert (settlement.final.state, settlement.final.response) == ("completed", answer)
    assert settlement.reply == answer


def test_a_body_that_waits_on_disk_leaves_a_tombstone() -> None:
    """Its head stands for it."""
    settlement = settled(Responded(CREATED, omitted=True))
    assert isinstance(settlement, ToStore)
    assert settlement.final.omitted
    assert settlement.final.response.body == b""


def test_an_exception_is_undone_and_may_be_tried_again() -> None:
    """The failure is the client's to retry, and the exception the application's to log."""
    error = RuntimeError("broke")
    settlement = settled(Raised(error))
    assert isinstance(settlement, ToRelease)
    assert settlement.error is error
    assert settlement.reply.status == 500
    assert (b"x-should-retry", b"true") in settlement.reply.headers


def test_an_error_page_of_the_applications_is_sent() -> None:
    """As frameworks do, which answer first and raise then."""
    error, page = RuntimeError("broke"), Response(500, (), b"sorry")
    assert settled(Raised(error, page)) == ToRelease(page, error)


@pytest.mark.parametrize("error", [NotDone("no"), TimeoutError()])
def test_nothing_was_done_is_believed_whatever_was_given_out(error: Exception) -> None:
    """A derived key that was used already does no harm the next time."""
    attempt = Attempt(OURS, 1)
    attempt.derive("charge")
    settlement = settled(Raised(error), attempt, RULES._replace(retry_on=(TimeoutError,)))
    assert isinstance(settlement, ToRelease)
    assert settlement.reply.status == 503


def test_not_started_is_believed_after_a_derived_key() -> None:
    """The same for what is answered."""
    attempt = Attempt(OURS, 1)
    attempt.derive("charge")
    attempt.not_started()
    assert settled(Responded(CREATED), attempt) == ToRelease(CREATED)


# --- In which order


def test_committed() -> None:
    """Reserve, run, commit: and then the answer."""
    flow = committing()
    flow.give(True)
    assert flow.result == Result("completed", CREATED, attempt=1)


def test_rolled_back_then_released_then_answered() -> None:
    """The key is not free before everything is undone."""
    flow = running()
    flow.give(Responded(Response(500)))
    assert not flow.expect(RollBack).cut_off
    flow.give(None)
    flow.expect(Release)
    flow.give(None)
    assert flow.result == Result("released", Response(500), attempt=1)


def test_the_exception_is_passed_on() -> None:
    """For the application's log."""
    flow, error = running(), RuntimeError("broke")
    flow.give(Raised(error))
    flow.give(None)
    flow.give(None)
    assert flow.result.error is error


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt()])
def test_cut_off(error: BaseException) -> None:
    """What it did is known to be nothing: so it is undone, and the key let go of as soon as may be."""
    flow = running()
    flow.throw(error)
    assert flow.expect(RollBack).cut_off
    flow.give(None)
    flow.expect(Forget)
    with pytest.raises(type(error)):
        flow.give(None)


def test_closed() -> None:
    """A flow that nobody performs any more asks for nothing."""
    flow = running()
    flow.flow.close()
    assert isinstance(flow.step, Run)


@pytest.mark.parametrize(("passing", "status"), [(False, 500), (True, 503)])
def test_refused_by_the_database(passing: bool, status: int) -> None:
    """For certain nothing happened: released, and the client may try again."""
    flow, refusal = committing(), CommitRefused("a constraint", passing=passing)
    flow.throw(refusal)
    flow.expect(Release)
    flow.give(None)
    answer = flow.result
    assert (answer.verdict, answer.error) == ("released", refusal)
    assert isinstance(answer.reply, Response)
    assert answer.reply.status == status
    assert (b"x-should-retry", b"true") in answer.reply.headers


def lost() -> Stepper[Result]:
    """A flow that asked for a commit and never heard of it, up to where it has released and looks."""
    flow = committing()
    flow.throw(DOWN)
    flow.expect(RollBack)
    flow.give(None)
    flow.expect(Release)
    flow.give(None)
    flow.expect(Look)
    return flow


def test_lost_and_committed() -> None:
    """The record says so, under our own token: the client gets its answer."""
    flow = lost()
    flow.give(found(MINE._replace(state="completed", response=CREATED)))
    assert flow.result == Result("completed", CREATED, attempt=1)


@pytest.mark.parametrize("record", [None, RUNNING, COMPLETED])
def test_lost_and_not_committed(record: object) -> None:
    """The record is gone, or somebody else's: whatever theirs says, ours was not committed."""
    flow = lost()
    flow.give(None if record is None else found(record))  # type: ignore[arg-type]
    assert flow.result.verdict == "store-unavailable"
    assert flow.result.trouble is DOWN


@pytest.mark.parametrize("deaf", [Release, Look])
def test_lost_and_nobody_to_ask(deaf: type) -> None:
    """The release is made by and by, so the next attempt finds out."""
    flow = committing()
    flow.throw(DOWN)
    flow.give(None)
    while not isinstance(flow.step, deaf):
        flow.give(None)
    flow.throw(DOWN)
    flow.expect(Forget)
    flow.give(None)
    assert flow.result.verdict == "store-unavailable"


def test_overtaken_by_somebody_who_is_done() -> None:
    """Theirs counts."""
    flow = fenced()
    flow.give(found(COMPLETED))
    assert (flow.result.verdict, flow.result.reply) == ("replayed", COMPLETED)


@pytest.mark.parametrize("record", [RUNNING, ABANDONED])
def test_overtaken_by_somebody_who_is_not(record: object) -> None:
    """Theirs will count, or that of whoever comes after them: in a transaction nothing is unknown."""
    flow = fenced()
    flow.give(found(record))  # type: ignore[arg-type]
    assert flow.result.verdict == "in-flight"


def test_the_record_is_gone() -> None:
    """Whoever had it let it go: nothing was done, and the client may try again."""
    flow = fenced()
    flow.give(None)
    answer = flow.result
    assert answer.verdict == "released"
    assert isinstance(answer.reply, Response)
    assert answer.reply.status == 503


def test_the_record_is_there_and_was_not_found() -> None:
    """The transaction ran elsewhere: undone, released, and said in so many words."""
    flow = fenced()
    flow.give(found(MINE))
    flow.expect(Release)
    flow.give(None)
    assert "another database" in str(flow.result.error)
    assert isinstance(flow.result.reply, Response)
    assert flow.result.reply.status == 500


def test_the_outcome_of_an_overtaken_one_cannot_be_read() -> None:
    flow = fenced()
    flow.throw(DOWN)
    assert flow.result.verdict == "store-unavailable"


def test_an_abandoned_one_is_taken_over() -> None:
    """Its effects were rolled back with it, whatever the policy of this one is."""
    call = a_call()._replace(policy=POLICY._replace(abandoned="hold"))
    flow = Stepper(once(call))
    flow.give(found(ABANDONED._replace(mode="tx")))
    flow.expect(TakeOver)
    flow.give(Reserved(2))
    assert flow.expect(Run).attempt.number == 2


def test_callbacks_come_after_the_commit_and_before_the_answer() -> None:
    flow = running()
    flow.expect(Run).attempt.on_commit(lambda: None)
    flow.give(Responded(CREATED))
    flow.expect(Commit)
    flow.give(True)
    flow.expect(CallBack)
    flow.give(None)
    assert flow.result.verdict == "completed"


def test_no_callbacks_without_a_commit() -> None:
    """Not after a rollback, and not for an answer that somebody else gave."""
    undone, overtaken = [None, None], [False, found(COMPLETED)]
    for response, answers in ((Response(500), undone), (CREATED, overtaken)):
        flow = running()
        flow.expect(Run).attempt.on_commit(lambda: None)
        flow.give(Responded(response))
        for answer in answers:
            assert not isinstance(flow.step, CallBack)
            flow.give(answer)
        assert flow.result.verdict in ("released", "replayed")


def test_without_a_store_there_is_no_transaction() -> None:
    """A route that chose to run all the same runs as in lease mode: nothing can be undone."""
    call = a_call()._replace(policy=POLICY._replace(store_down="run"))
    flow = Stepper(once(call))
    flow.throw(DOWN)
    flow.give(None)
    flow.throw(DOWN)
    flow.expect(Forget)
    flow.give(None)
    assert not flow.expect(Run).attempt.leased
    error = RuntimeError("broke")
    flow.give(Raised(error))
    assert (flow.result.verdict, flow.result.stored, flow.result.error) == ("unprotected", False, error)


def test_a_problem_that_was_undone_says_so() -> None:
    """The same code, and another hint."""
    assert (b"x-should-retry", b"false") in describe(Problem("handler-failed", "x")).headers
    assert (b"x-should-retry", b"true") in describe(Problem("handler-failed", "x", undone=True)).headers
