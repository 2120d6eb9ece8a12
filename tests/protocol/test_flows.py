"""The flows, stepped by hand: in order, when the store is down, and when they are overtaken."""

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Final, Header, Record, Reserved, Response
from retrysafe._core.problems import Problem
from retrysafe._core.steps import (
    Finish,
    Forget,
    Look,
    Pause,
    Persist,
    Raised,
    Release,
    Reserve,
    Responded,
    Result,
    Run,
    TakeOver,
)
from retrysafe.errors import NotDone, SchemaMismatch, StoreError, UnreadableRecord
from retrysafe.policy import Policy
from tests.protocol.values import (
    ABANDONED,
    BROKE,
    CLAIM,
    COMPLETED,
    CREATED,
    DOWN,
    FAILED,
    NOW,
    RETRY,
    RUNNING,
    Stepper,
    a_call,
    a_record,
    ended,
    found,
    running,
    stepping,
)

# --- In order ---------------------------------------------------------------------------------------------


def test_the_first_time() -> None:
    """Reserve, run, finish, and only then an answer."""
    flow = ended()
    finish = flow.expect(Finish)
    assert finish.claim == CLAIM
    assert (finish.final.state, finish.final.response.body) == ("completed", b"made")
    flow.give(True)
    assert flow.result == Result("completed", CREATED, attempt=1)
    assert [type(step) for step in flow.asked] == [Reserve, Run, Finish]


def test_the_attempt_knows_its_number_and_secret() -> None:
    """The handler sees which execution it is, and derives keys with the application's secret."""
    flow = stepping(a_call()._replace(secret=b"s" * 16))
    flow.give(Reserved(3))
    attempt = flow.expect(Run).attempt
    assert (attempt.number, attempt.claim) == (3, CLAIM)
    assert attempt.derive("charge") == Attempt(CLAIM, 1, b"s" * 16).derive("charge")
    flow.give(Responded(CREATED))
    flow.give(True)
    assert flow.result.attempt == 3


@pytest.mark.parametrize(
    ("record", "policy", "verdict"),
    [
        (RUNNING, Policy(), "in-flight"),
        (COMPLETED, Policy(), "replayed"),
        (FAILED, Policy(), "replayed"),
        (FAILED, Policy(failed="conflict"), "previously-failed"),
        (ABANDONED, Policy(), "outcome-unknown"),
        (COMPLETED._replace(fingerprint=b"other"), Policy(), "key-reused"),
    ],
)
def test_a_duplicate_takes_one_step(record: Record, policy: Policy, verdict: str) -> None:
    """One round trip to the store, and the handler is not reached."""
    flow = stepping(a_call(policy))
    flow.give(found(record))
    assert flow.result.verdict == verdict
    assert [type(step) for step in flow.asked] == [Reserve]


def test_a_replay_is_the_record() -> None:
    """The record itself is handed on; rendering it is the exchange's business."""
    flow = stepping()
    flow.give(found(COMPLETED._replace(attempt=2)))
    assert flow.result == Result("replayed", COMPLETED._replace(attempt=2), attempt=2)


@pytest.mark.parametrize("record", [FAILED, ABANDONED])
def test_taking_over(record: Record) -> None:
    """What may run again is taken over under the token that was seen."""
    flow = stepping(a_call(RETRY))
    flow.give(found(record))
    take_over = flow.expect(TakeOver)
    assert take_over == (CLAIM, b"theirs", record.state)
    flow.give(Reserved(2))
    assert flow.expect(Run).attempt.number == 2


@pytest.mark.parametrize(
    ("meanwhile", "verdict"),
    [(RUNNING._replace(token=b"third"), "in-flight"), (COMPLETED._replace(token=b"third"), "replayed")],
)
def test_whoever_loses_a_take_over_looks_again(meanwhile: Record, verdict: str) -> None:
    """Another one was faster: what it made of the key is judged anew."""
    flow = stepping(a_call(RETRY))
    flow.give(found(ABANDONED))
    flow.expect(TakeOver)
    flow.give(found(meanwhile))
    assert flow.result.verdict == verdict


def test_a_loser_may_take_over_the_winner() -> None:
    """Each take-over names the token that was seen last."""
    flow = stepping(a_call(RETRY))
    flow.give(found(ABANDONED))
    flow.give(found(FAILED._replace(token=b"third")))
    assert flow.expect(TakeOver).previous == b"third"


def test_a_failure_that_became_final_meanwhile_is_not_taken_over() -> None:
    """The owner of an abandoned attempt may still finish it; its failure is then the last word (I1).

    With abandoned="retry" and failed="replay", a take-over that was decided on while the attempt was
    abandoned must not replace the failure that its owner was told about.
    """
    from retrysafe.stores.memory import MemoryStore

    now = NOW
    store = MemoryStore(lambda: now)
    call = a_call(Policy(failed="replay", abandoned="retry"))
    theirs = CLAIM._replace(token=b"theirs")
    store.reserve(theirs)
    now += CLAIM.lease
    flow = stepping(call)
    flow.give(store.reserve(CLAIM))
    take_over = flow.expect(TakeOver)
    assert store.finish(theirs, Final("failed", BROKE)) is True
    flow.give(store.take_over(*take_over))
    assert flow.result.verdict == "replayed"


@pytest.mark.parametrize(
    "bad",
    [
        (b"x-evil", b"a\r\nset-cookie: s=1"),
        (b"x\r\nset-cookie", b"s=1"),
        (b"x-nul", b"\x00"),
        (b"", b"x"),
        (b"set-cookie", b"s=1"),
        (b"transfer-encoding", b"chunked"),
    ],
)
def test_what_is_replayed_is_checked_again(bad: Header) -> None:
    """A store is not a trusted place: what was changed there must not split an answer (S10, CWE-113)."""
    flow = stepping(a_call())
    flow.give(found(a_record(state="completed", response=Response(200, ((b"etag", b'"1"'), bad)))))
    assert flow.result.verdict == "store-unavailable"
    assert flow.result.trouble is not None


# --- What is let go ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Raised(NotDone()), Responded(Response(429))])
def test_nothing_happened(outcome: Raised | Responded) -> None:
    """The key is freed before the client is told that it is."""
    flow = running()
    flow.give(outcome)
    assert flow.expect(Release).claim == CLAIM
    flow.give(None)
    assert flow.result.verdict == "released"
    assert isinstance(flow.result.reply, Response)
    assert flow.result.stored


@pytest.mark.parametrize("error", [DOWN, UnreadableRecord("damaged"), SchemaMismatch("old")])
def test_a_release_that_fails_is_left_to_the_keeper(error: StoreError) -> None:
    """The client need not wait for it."""
    flow = running()
    flow.give(Raised(NotDone()))
    flow.expect(Release)
    flow.throw(error)
    assert flow.expect(Forget).claim == CLAIM
    flow.give(None)
    assert flow.result.verdict == "released"


# --- A store that is down ---------------------------------------------------------------------------------


def test_a_bid_is_made_twice() -> None:
    """One lost acknowledgement is no reason to refuse: the token makes the second bid the same one (F11)."""
    flow = stepping()
    first = flow.expect(Reserve)
    flow.throw(DOWN)
    flow.expect(Pause)
    flow.give(None)
    assert flow.expect(Reserve) == first
    flow.give(Reserved(1))
    flow.expect(Run)


def test_a_bid_recognises_itself() -> None:
    """A store that shows the record instead of confirming the bid shows our own token (I16)."""
    flow = stepping()
    flow.throw(DOWN)
    flow.give(None)
    flow.give(found(RUNNING._replace(token=CLAIM.token)))
    assert flow.expect(Run).attempt.number == 1


def test_a_take_over_is_made_twice() -> None:
    """The same holds for the second kind of bid."""
    flow = stepping(a_call(RETRY))
    flow.give(found(ABANDONED))
    first = flow.expect(TakeOver)
    flow.throw(DOWN)
    flow.expect(Pause)
    flow.give(None)
    assert flow.expect(TakeOver) == first
    flow.give(found(RUNNING._replace(token=CLAIM.token, attempt=2)))
    assert flow.expect(Run).attempt.number == 2


@pytest.mark.parametrize("before", ["reserve", "take over"])
def test_a_store_that_stays_silent(before: str) -> None:
    """503, the handler has not run, and a bid that may have arrived is forgotten (F10, I12)."""
    flow = stepping(a_call(RETRY))
    if before == "take over":
        flow.give(found(ABANDONED))
    flow.throw(DOWN)
    flow.give(None)
    flow.throw(DOWN)
    assert flow.expect(Forget).claim == CLAIM
    flow.give(None)
    assert flow.result.verdict == "store-unavailable"
    assert isinstance(flow.result.reply, Problem)
    assert not any(isinstance(step, Run) for step in flow.asked)


@pytest.mark.parametrize("error", [UnreadableRecord("damaged"), SchemaMismatch("of another version")])
@pytest.mark.parametrize("store_down", ["refuse", "run"])
def test_a_damaged_record_is_never_absent(error: StoreError, store_down: str) -> None:
    """503 at once, and not run even where an unreachable store would be no obstacle (I20, F42)."""
    flow = stepping(a_call(Policy(store_down=store_down)))  # type: ignore[arg-type]
    flow.throw(error)
    flow.expect(Forget)
    flow.give(None)
    assert flow.result.verdict == "store-unavailable"
    assert not any(isinstance(step, Run) for step in flow.asked)


def test_a_store_that_comes_back_damaged() -> None:
    """Silent at first and unreadable afterwards is still refused."""
    flow = stepping()
    flow.throw(DOWN)
    flow.give(None)
    flow.throw(UnreadableRecord("damaged"))
    flow.expect(Forget)
    flow.give(None)
    assert flow.result.verdict == "store-unavailable"


def unprotected() -> Stepper[Result]:
    flow = stepping(a_call(Policy(store_down="run")))
    flow.throw(DOWN)
    flow.give(None)
    flow.throw(DOWN)
    flow.expect(Forget)
    flow.give(None)
    flow.expect(Run)
    return flow


def test_running_all_the_same_is_marked() -> None:
    """Fail open is a choice; the answer says that it is not stored, and nothing is written (I12)."""
    flow = unprotected()
    flow.give(Responded(CREATED))
    assert flow.result[:4] == ("unprotected", CREATED, False, None)
    assert not any(isinstance(step, Finish | Release) for step in flow.asked)


def test_running_all_the_same_may_fail() -> None:
    """Its exception is raised again for the log, like any other; a `NotDone` is none."""
    error = RuntimeError()
    flow = unprotected()
    flow.give(Raised(error))
    assert (flow.result.verdict, flow.result.stored, flow.result.error) == ("unprotected", False, error)
    flow = unprotected()
    flow.give(Raised(NotDone()))
    assert (flow.result.verdict, flow.result.stored, flow.result.error) == ("unprotected", False, None)


# --- Keeping ----------------------------------------------------------------------------------------------


def test_finishing_is_tried_for_as_long_as_the_lease_lasts() -> None:
    """Pauses grow and stay bounded; the write is the same every time (F12, F13)."""
    flow = ended()
    first, pauses = flow.expect(Finish), list[float]()
    for _ in range(8):
        assert flow.expect(Finish) == first
        flow.throw(DOWN)
        persist = flow.expect(Persist)
        assert persist.claim == CLAIM
        pauses.append(persist.pause)
        flow.give(True)
    flow.give(True)
    assert flow.result == Result("completed", CREATED, attempt=1)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_the_client_gets_the_truth_unstored() -> None:
    """When the lease is over, the answer is sent and marked; the record lapses and is never released."""
    flow = ended()
    flow.throw(DOWN)
    flow.expect(Persist)
    flow.give(False)
    assert flow.result[:3] == ("unstored", CREATED, False)
    assert not any(isinstance(step, Release | Forget) for step in flow.asked)


def test_a_failure_may_be_unstored_too() -> None:
    """The error still reaches the log."""
    error = RuntimeError()
    flow = running()
    flow.give(Raised(error))
    flow.throw(DOWN)
    flow.give(False)
    assert (flow.result.verdict, flow.result.stored, flow.result.error) == ("unstored", False, error)


def test_a_raised_failure_is_stored_and_raised_again() -> None:
    """The answer carries the error for whoever drives the flow."""
    error = RuntimeError()
    flow = running()
    flow.give(Raised(error))
    assert flow.expect(Finish).final.state == "failed"
    flow.give(True)
    assert (flow.result.verdict, flow.result.error) == ("failed", error)


# --- Fenced -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now_there", "verdict"),
    [
        (COMPLETED, "replayed"),
        (FAILED, "replayed"),
        (RUNNING, "in-flight"),
        (ABANDONED, "outcome-unknown"),
        (COMPLETED._replace(fingerprint=b"other"), "key-reused"),
        (COMPLETED._replace(token=CLAIM.token), "outcome-unknown"),
        (None, "outcome-unknown"),
    ],
)
@pytest.mark.parametrize("abandoned", ["hold", "retry"])
def test_a_zombie_never_delivers_its_own_result(
    now_there: Record | None, verdict: str, abandoned: str
) -> None:
    """An owner that was overtaken tells what its successor made of the key (F7)."""
    flow = ended(a_call(Policy(abandoned=abandoned)))  # type: ignore[arg-type]
    flow.give(False)
    assert flow.expect(Look).claim.id == CLAIM.id
    flow.give(found(now_there) if now_there else None)
    assert flow.result.verdict == verdict
    assert flow.result.reply != CREATED


@pytest.mark.parametrize(
    ("policy", "verdict"), [("conflict", "previously-failed"), ("retry", "outcome-unknown")]
)
def test_a_zombie_whose_successor_failed(policy: str, verdict: str) -> None:
    """It does not run again, whatever the policy for newcomers."""
    flow = ended(a_call(Policy(failed=policy)))  # type: ignore[arg-type]
    flow.give(False)
    flow.give(found(FAILED))
    assert flow.result.verdict == verdict


def test_a_zombie_that_cannot_look() -> None:
    """503: whatever the successor made of it, it is not known here. Its error still reaches the log."""
    error = RuntimeError()
    flow = running()
    flow.give(Raised(error))
    flow.give(False)
    flow.expect(Look)
    flow.throw(DOWN)
    assert (flow.result.verdict, flow.result.error) == ("store-unavailable", error)
