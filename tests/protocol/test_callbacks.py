"""The flows of the callback door: in worlds of which every step fails once, and step by step."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from retrysafe import scopes
from retrysafe._core.model import Claim, Found, Inbox, Record, Reserved, Response
from retrysafe._core.protocol import accept, once, take_turn, work
from retrysafe._core.steps import (
    Call,
    CanTakeOver,
    Commit,
    Finish,
    Flow,
    Forget,
    Look,
    Pause,
    Raised,
    Receipt,
    Release,
    Reserve,
    Responded,
    Result,
    RollBack,
    Run,
    TakeOver,
)
from retrysafe.errors import CommitRefused, NotDone
from retrysafe.policy import Options, Policy, Retries, Wire, compile_rules
from retrysafe.testing.simulate.callbacks import CALLBACKS, CallbackSetting, CallbackStage, recovery
from retrysafe.testing.simulate.callbacks.walk import happen
from retrysafe.testing.simulate.callbacks.world import Task, World
from retrysafe.testing.simulate.setting import LEASE
from tests.protocol.values import (
    CLAIM,
    CREATED,
    DOWN,
    NOW,
    RULES,
    Stepper,
    a_record,
    describe,
    found,
)

STAGES = {setting.name: CallbackStage(setting) for setting in CALLBACKS}
_FULL = pytest.mark.full

FAULTS = (
    "lose request",
    "lose reply",
    "delay",
    "refuse",
    "crash",
    "crash after",
    "cancel",
    "cancel after",
)

LONGEST = 14
"""Steps of two deliveries and a worker without faults, at most."""

# --- Every step fails -----------------------------------------------------------------------------------


class Played:
    """Two deliveries of one event, step by step in turn, and then workers; some of the steps fail."""

    def __init__(self, setting: CallbackSetting, faults: dict[int, str], *, lapse: int | None = None) -> None:
        self.steps = 0
        self._faults = faults
        self._lapse = lapse
        with closing(World(STAGES[setting.name])) as world:
            world.deliver(0, 0, 0)
            world.deliver(0, 0, 1)
            self._until_idle(world)
            if setting.kept != "inline":
                for due in world.look():
                    world.work(due, 2)
                self._until_idle(world)
            recovery.recover(world)
            self.world = world

    def _until_idle(self, world: World) -> None:
        while world.live:
            for task in list(world.live):
                if task.flow is not None:
                    self._step(world, task)

    def _step(self, world: World, task: Task) -> None:
        self.steps += 1
        if self.steps == self._lapse:
            world.clock.now += LEASE + 1
        kind = self._faults.get(self.steps, "step")
        if not happen(world, task, kind) and task.flow is not None:
            world.turn(task)


@pytest.mark.parametrize("setting", CALLBACKS, ids=lambda setting: setting.name)
def test_any_step_fails_in_any_way(setting: CallbackSetting) -> None:
    """Once, with leases that last and that end there: nothing is lost, and nothing acknowledged too early."""
    for kind in FAULTS:
        for at in range(1, LONGEST + 1):
            Played(setting, {at: kind})
            for lapse in (at, at + 1):
                Played(setting, {at: kind}, lapse=lapse)


@pytest.mark.parametrize("setting", CALLBACKS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("stride", [31, pytest.param(1, marks=_FULL)])
def test_any_two_steps_fail_in_any_way(setting: CallbackSetting, stride: int) -> None:
    """The same twice; of all pairs some, and in `make test-all` every one."""
    pairs = [
        {first: one, second: other}
        for first in range(1, LONGEST)
        for second in range(first + 1, LONGEST + 1)
        for one in FAULTS
        for other in FAULTS
    ]
    for pair in pairs[len(setting.name) % stride :: stride]:
        Played(setting, pair)


def test_the_paths_lead_somewhere() -> None:
    """Without a fault the event is handled once, by whom it should be."""
    for setting in CALLBACKS:
        if setting.handler == "succeeds":
            played = Played(setting, {})
            [run] = played.world.events[0].runs
            assert run.owner.startswith("work" if setting.kept == "inbox" else "delivery")
            assert played.world.events[0].acknowledged
            assert 4 <= played.steps <= LONGEST


# --- Every order ----------------------------------------------------------------------------------------


def _orders(setting: CallbackSetting, fault: str | None) -> Iterator[World]:
    """All orders in which two deliveries make their steps, with one fault at most."""
    paths: list[list[tuple[int, str]]] = [[]]
    while paths:
        path = paths.pop()
        world = World(STAGES[setting.name])
        tasks = [world.deliver(0, 0, 0), world.deliver(0, 0, 1)]
        for number, kind in path:
            happen(world, tasks[number], kind)
        ready = [number for number, task in enumerate(tasks) if task.flow is not None]
        if not ready:
            yield world
            continue
        world.close()
        for number in ready:
            paths.append([*path, (number, "step")])
            if fault is not None and all(kind == "step" for _, kind in path):
                paths.append([*path, (number, fault)])


_ORDERED = [
    setting
    for setting in CALLBACKS
    if setting.handler in ("succeeds", "raises", "declines") and setting.patient
] + [setting for setting in CALLBACKS if setting.kept != "inline" and setting.handler == "raises"]


@pytest.mark.parametrize("setting", _ORDERED, ids=lambda setting: setting.name)
@pytest.mark.parametrize("fault", [None, "crash", "lose reply", "cancel"])
def test_every_order_of_two_deliveries(setting: CallbackSetting, fault: str | None) -> None:
    number = 0
    for world in _orders(setting, fault):
        with closing(world):
            recovery.recover(world)
        number += 1
    assert number >= 2


# --- Step by step ---------------------------------------------------------------------------------------

RETRIES = Retries(attempts=3, first=5.0)
OURS = CLAIM._replace(door="callback", hold=0.0)
REPEATABLE = Policy(effects="repeatable", failed="retry", abandoned="retry")
HOLD = Policy(effects="outside", failed="replay", abandoned="hold")
IN_DATABASE = Policy(effects="database", failed="retry", abandoned="retry")

RECEIVED = OURS._replace(lease=0.0, inbox=Inbox(b"payload", 0.0, never_released=True))
STORED = OURS._replace(inbox=Inbox(b"payload", 0.0))
AT_WORK = OURS._replace(inbox=Inbox(None, 0.0, never_released=True))
WAITING = a_record(lease_until=NOW, updated_at=NOW)
"""Received, and not begun."""
DIED = a_record(lease_until=NOW, updated_at=NOW - 30, attempt=2)
FAILED = a_record(state="failed", response=Response(500), attempt=2)
HANDLED = a_record(state="completed", response=Response(200))


def a_call(claim: Claim, policy: Policy = REPEATABLE, *, draining: bool = False) -> Call:
    if policy.effects == "database":
        claim = claim._replace(mode="tx")
    return Call(
        claim, policy, RULES, describe, lambda: draining, receipt=Receipt((("status", "ok"),), RETRIES)
    )


def accepting(policy: Policy = REPEATABLE) -> Stepper[Result]:
    flow = Stepper(accept(a_call(RECEIVED, policy)))
    flow.expect(Reserve)
    return flow


def a_turn(attempt: int, policy: Policy = REPEATABLE, *, died: bool = False) -> Stepper[Result]:
    flow = Stepper(take_turn(a_call(AT_WORK, policy), CanTakeOver(b"theirs", "failed"), died=died))
    flow.expect(TakeOver)
    flow.give(Reserved(attempt))
    return flow


def _undoing(flow: Stepper[Result]) -> list[object]:
    return [step for step in flow.asked if isinstance(step, Release | Forget)]


ACCEPTED: dict[str, list[object]] = {
    "accepted": [Reserved(1)],
    "accepted at the second try": [DOWN, None, Reserved(1)],
    "accepted before": [found(WAITING)],
    "accepted before, and its worker died": [found(DIED), found(DIED)],
    "accepted before, and failed": [found(FAILED), found(FAILED)],
    "handled by a delivery, which died": [found(DIED), Reserved(3)],
    "accepted before, in vain": [
        found(a_record(state="failed", response=Response(500), attempt=4)),
        Reserved(5),
    ],
    "handled before": [found(HANDLED)],
    "another payload": [found(a_record(fingerprint=b"another"))],
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_nothing_is_released_by_accepting(name: str) -> None:
    """Whatever breaks it off at whichever step: another delivery may have been acknowledged because of it."""
    for at in range(len(ACCEPTED[name])):
        for error in (DOWN, asyncio.CancelledError(), KeyboardInterrupt(), None):
            flow = accepting()
            for answer in ACCEPTED[name][:at]:
                flow.throw(answer) if isinstance(answer, Exception) else flow.give(answer)
            try:
                if error is None:
                    flow.flow.close()
                while error is not None and not flow._ended:
                    if error is DOWN and isinstance(flow.step, Pause):
                        flow.give(None)
                    else:
                        flow.throw(error)
            except BaseException as raised:
                if raised is not error:
                    raise
            else:
                assert error in (DOWN, None)
            if error is DOWN:
                assert flow.result.verdict == "store-unavailable"
            assert _undoing(flow) == []


def test_it_is_accepted_once_it_is_stored_and_not_before() -> None:
    flow = accepting()
    assert not flow._ended
    flow.give(Reserved(1))
    assert flow.result.verdict == "accepted"
    flow = accepting()
    flow.give(found(WAITING._replace(token=RECEIVED.token)))
    assert flow.result.verdict == "accepted", "its own bid, of which the acknowledgement was lost"


def test_what_was_tried_in_vain_and_comes_again_is_tried_again() -> None:
    """It is received anew, and a worker then handles it, whatever the number of its attempts."""
    flow = accepting()
    flow.give(found(a_record(state="failed", response=Response(500), attempt=4)))
    assert flow.expect(TakeOver).claim.inbox == RECEIVED.inbox
    flow.give(Reserved(5))
    assert flow.result.verdict == "accepted"
    a_turn(6).expect(Run)


def test_what_was_received_and_not_begun_waits() -> None:
    """Only a delivery that stores its payload leaves a record so: nothing is asked of the store."""
    for there in (
        WAITING,
        WAITING._replace(lease_until=NOW + 1, updated_at=NOW + 1),
    ):  # a moment after this bid
        flow = accepting()
        flow.give(found(there))
        assert flow.result.verdict == "waiting"


@pytest.mark.parametrize("there", [DIED, FAILED], ids=["died", "failed"])
def test_what_a_worker_handles_is_not_received_anew(there: Record) -> None:
    """The store knows whether one does, now or later; then it keeps what is there, and its pauses."""
    flow = accepting()
    flow.give(found(there))
    step = flow.expect(TakeOver)
    assert (step.previous, step.state) == (there.token, there.state)
    assert step.claim.inbox is not None
    assert step.claim.inbox.is_only_stored
    flow.give(found(there))
    assert flow.result.verdict == "waiting"


@pytest.mark.parametrize("there", [DIED._replace(attempt=1), FAILED], ids=["died", "failed"])
def test_what_no_worker_would_handle_is_received_anew(there: Record) -> None:
    """Left by a service that stored no payload, or settled by an operator; acknowledged, it would be lost."""
    flow = accepting()
    flow.give(found(there))
    flow.expect(TakeOver)
    flow.give(Reserved(there.attempt + 1))
    assert flow.result.verdict == "accepted"


def test_what_changes_meanwhile_is_looked_at_again() -> None:
    """Another worker has failed with it since: it is not known of this failure whether one handles it."""
    flow = accepting()
    flow.give(found(FAILED))
    flow.expect(TakeOver)
    flow.give(found(FAILED._replace(token=b"another", attempt=3)))
    assert flow.expect(TakeOver).previous == b"another"
    flow.give(found(HANDLED))
    assert flow.result.verdict == "replayed"


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_delivery_that_handles_it_itself_has_no_payload(attempt: int) -> None:
    """Of a release of the service that is no inbox: it is refused until that is over.  A worker has one."""
    flow = accepting()
    flow.give(found(a_record(lease_until=NOW + 30, attempt=attempt)))
    assert flow.result.verdict == ("in-flight" if attempt == 1 else "waiting")
    assert _undoing(flow) == []


def test_what_an_operator_redrives_is_handled() -> None:
    """However often it was tried: it has failed, and is due because the operator says so."""
    for attempt in (5, 50):
        flow = a_turn(attempt)
        flow.expect(Run)
        flow.give(Raised(ValueError("still broken")))
        final = flow.expect(Finish).final
        assert (final.state, final.due_in) == ("failed", None), "and not again by itself"


def test_what_kills_its_workers_is_given_up() -> None:
    """After as many attempts as it may have."""
    a_turn(4, died=True).expect(Run)
    flow = a_turn(5, died=True)
    final = flow.expect(Finish).final
    assert (final.state, final.due_in) == ("failed", None)
    assert ("error", "its workers died") in final.details
    flow.give(True)
    assert flow.result.verdict == "failed"


def test_a_failure_is_tried_again_after_longer_and_longer() -> None:
    pauses: list[float | None] = []
    for attempt in range(1, 5):
        flow = a_turn(attempt + 1)
        flow.give(Raised(ValueError()))
        pauses.append(flow.expect(Finish).final.due_in)
    assert pauses == [10.0, 20.0, None, None]


@pytest.mark.parametrize("policy", [REPEATABLE, HOLD, IN_DATABASE], ids=lambda policy: policy.effects)
def test_what_was_not_done_is_tried_again_under_any_policy(policy: Policy) -> None:
    """It was acknowledged, and nothing happened: that repeating would be unsafe is said of what was done."""
    flow = a_turn(2, policy)
    flow.give(Raised(NotDone("not now", retry_after=7)))
    if policy is IN_DATABASE:
        flow.expect(RollBack)
        flow.give(None)
    final = flow.expect(Finish).final
    assert (final.state, final.due_in) == ("failed", 7)


@pytest.mark.parametrize(
    ("retry_after", "due_in"), [(float("inf"), 86400.0), (1e300, 86400.0), (-1.0, 0.0), (float("nan"), 10.0)]
)
def test_not_done_says_when_within_reason(retry_after: float, due_in: float) -> None:
    """What is no time, or none that a database has, would leave it to no worker."""
    flow = a_turn(2, REPEATABLE._replace(retention=86400.0))
    flow.give(Raised(NotDone(retry_after=retry_after)))
    assert flow.expect(Finish).final.due_in == due_in


def test_under_hold_a_worker_does_not_begin_again() -> None:
    """What may have been done waits for an operator."""
    flow = a_turn(2, HOLD)
    flow.give(Raised(ValueError()))
    assert flow.expect(Finish).final.due_in is None


@pytest.mark.parametrize(
    ("said", "due_in", "hold"),
    [
        ({"effects": "repeatable"}, 0.0, 0.0),
        ({"effects": "database"}, 0.0, 0.0),
        ({"effects": "outside", "unknown_retention": 7200.0}, None, 7200.0),
    ],
    ids=["repeatable", "database", "outside"],
)
def test_a_worker_claims_for_the_same_event(said: Options, due_in: float | None, hold: float) -> None:
    """The first attempt's record goes on, under a lease of the worker's own.  If the worker dies, it is due
    again, unless what was begun must not be."""
    flow = _worked(FAILED, said)
    claim, previous, state = flow.expect(TakeOver)
    assert (previous, state) == (FAILED.token, "failed")
    assert (claim.id, claim.token, claim.request_id) == (FAILED.id, b"worker's", FAILED.request_id)
    assert claim.inbox == Inbox(None, due_in, never_released=True)
    assert (claim.hold, claim.details) == (hold, (("status", "processing"),))
    assert claim.mode == ("tx" if said.get("effects") == "database" else "lease")


@pytest.mark.parametrize(
    ("there", "ends"), [(DIED, Finish), (FAILED, Run), (WAITING, Run)], ids=["died", "failed", "received"]
)
def test_only_deaths_count_against_a_payload(there: Record, ends: type[Run | Finish]) -> None:
    """One that failed is due after a pause or by an operator; one that was received had no attempt."""
    flow = _worked(there, {"effects": "repeatable"})
    flow.expect(TakeOver)
    flow.give(Reserved(RETRIES.attempts + 2))
    flow.expect(ends)


def _worked(there: Record, said: Options) -> Stepper[Result]:
    given = Receipt((("status", "ok"),), RETRIES)
    rules = compile_rules({"scope": scopes.service("jobs"), **said}, Wire())
    details = (("status", "processing"),)
    return Stepper(work(there, details, given, rules, describe, b"worker's", lambda: False, b"secret"))


def test_made_anew_by_a_worker_is_released_even_if_the_store_fails() -> None:
    """A record without a payload would have deliveries acknowledged that no worker handles."""
    flow = a_turn(1)
    flow.expect(Release)
    flow.throw(DOWN)
    flow.expect(Forget)
    flow.give(None)
    assert flow.result.verdict == "gone"


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt()])
@pytest.mark.parametrize("claim", [STORED, AT_WORK], ids=["delivery", "worker"])
def test_a_stored_payload_outlives_a_cancellation(claim: Claim, error: BaseException) -> None:
    """What was written is rolled back; the record stays until its lease ends, and then a worker has it."""
    flow = Stepper(_begin(a_call(claim, IN_DATABASE)))
    flow.give(Reserved(2))
    flow.expect(Run)
    flow.throw(error)
    assert flow.expect(RollBack).cut_off
    with pytest.raises(type(error)):
        flow.give(None)
    assert _undoing(flow) == []


def _begin(call: Call) -> Flow[Result]:
    assert call.claim.inbox is not None
    if call.claim.inbox.never_released:
        return take_turn(call, CanTakeOver(b"theirs", "in_progress"), died=True)
    return once(call)


def test_without_a_payload_a_cancellation_is_forgotten() -> None:
    flow = Stepper(once(a_call(OURS, IN_DATABASE)))
    flow.give(Reserved(1))
    flow.throw(asyncio.CancelledError())
    flow.give(None)
    flow.expect(Forget)


@pytest.mark.parametrize("claim", [STORED, AT_WORK], ids=["delivery", "worker"])
def test_a_commit_whose_result_is_lost_keeps_the_payload(claim: Claim) -> None:
    """It is noted as failed, which a commit that arrives later finds; or is completed already."""
    flow = Stepper(_begin(a_call(claim, IN_DATABASE)))
    flow.give(Reserved(2))
    flow.give(Responded(CREATED))
    flow.expect(Commit)
    flow.throw(DOWN)
    flow.expect(RollBack)
    flow.give(None)
    final = flow.expect(Finish).final
    assert final.state == "failed"
    assert final.due_in is not None
    flow.give(False)
    flow.expect(Look)
    flow.give(Found(a_record(state="completed", token=claim.token, response=Response(200)), NOW))
    assert flow.result.verdict == "completed"
    assert _undoing(flow) == []


def test_a_failure_in_a_transaction_leaves_a_record_and_no_effect() -> None:
    """First it is rolled back, then noted; the sender is told that it failed."""
    flow = Stepper(once(a_call(OURS, IN_DATABASE)))
    flow.give(Reserved(1))
    flow.give(Raised(ValueError("broke")))
    flow.expect(RollBack)
    flow.give(None)
    final = flow.expect(Finish).final
    assert (final.state, dict(final.details)["error"]) == ("failed", "ValueError: broke")
    flow.give(True)
    assert flow.result.verdict == "failed"
    assert isinstance(flow.result.reply, Response)
    assert flow.result.reply.status == 500


def test_a_transaction_in_another_database_is_noted_as_failed() -> None:
    """And not taken for one whose workers died."""
    flow = a_turn(2, IN_DATABASE)
    flow.give(Responded(CREATED))
    flow.expect(Commit)
    flow.give(False)
    flow.expect(Look)
    flow.give(found(a_record(token=AT_WORK.token, attempt=2)))
    final = flow.expect(Finish).final
    assert "another database" in dict(final.details)["error"]
    assert final.due_in == 10.0


def test_a_refused_commit_is_noted_as_failed() -> None:
    flow = Stepper(once(a_call(OURS, IN_DATABASE)))
    flow.give(Reserved(1))
    flow.give(Responded(CREATED))
    flow.throw(CommitRefused("a constraint"))
    assert flow.expect(Finish).final.state == "failed"


@pytest.mark.parametrize(
    "outcome", [Raised(NotDone("no")), Responded(Response(429))], ids=["raises", "responds"]
)
def test_a_refusal_does_not_take_the_payload_of_an_earlier_failure(outcome: object) -> None:
    """Its sender may not come back: a worker tries again, as it would have without this delivery."""
    flow = Stepper(once(a_call(STORED)))
    flow.give(found(a_record(state="failed", response=Response(500))))
    flow.expect(TakeOver)
    flow.give(Reserved(2))
    flow.give(outcome)
    final = flow.expect(Finish).final
    assert (final.state, final.due_in is None) == ("failed", False)


def test_a_refusal_at_first_is_released() -> None:
    """Nothing was begun, and its sender is told so."""
    flow = Stepper(once(a_call(STORED)))
    flow.give(Reserved(1))
    flow.give(Raised(NotDone("no")))
    flow.expect(Release)


def test_a_cancelled_take_over_does_not_take_the_payload_of_an_earlier_failure() -> None:
    for policy in (REPEATABLE, HOLD._replace(failed="retry")):
        claim = STORED if policy is REPEATABLE else STORED._replace(inbox=Inbox(b"payload", None))
        flow = Stepper(once(a_call(claim, policy)))
        flow.give(found(a_record(state="failed", response=Response(500))))
        flow.expect(TakeOver)
        with pytest.raises(asyncio.CancelledError):
            flow.throw(asyncio.CancelledError())
        assert _undoing(flow) == []


def test_a_server_that_drains_leaves_what_it_has_just_taken_over() -> None:
    """A worker has it when the lease has ended."""
    calls = 0

    def draining() -> bool:
        nonlocal calls
        calls += 1
        return calls > 1

    flow = Stepper(once(a_call(STORED)._replace(draining=draining)))
    flow.give(found(a_record(state="failed", response=Response(500))))
    flow.give(Reserved(2))
    assert flow.result.verdict == "draining"
    assert _undoing(flow) == []
