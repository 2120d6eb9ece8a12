"""The two drivers: the same flow, blocking and awaiting, from the claim to the answer."""

import asyncio
import time
from collections.abc import Awaitable, Iterator
from typing import get_args

import pytest

from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Attempt, current
from retrysafe._core.model import Claim, Final, Reservation
from retrysafe._core.steps import (
    Call,
    Flow,
    Outcome,
    Pause,
    Raised,
    Responded,
    Result,
    Run,
    Step,
    Wait,
    ask,
)
from retrysafe._runtime.drive_async import _PERFORM_ASYNC, drive_async
from retrysafe._runtime.drive_sync import _PERFORM, drive_sync
from retrysafe._runtime.runtime import Runtime
from retrysafe.errors import NotDone, StoreUnavailable
from retrysafe.events import Observers
from retrysafe.policy import OutcomeRules, Policy
from tests.core.driving import (
    CREATED,
    AsyncPerformer,
    Drive,
    Flaky,
    Performer,
    a_flow,
    awaiting,
    created,
    describe,
)
from tests.core.values import a_claim, eventually, no_leaked_threads


@pytest.fixture(params=["blocking", "awaiting"])
def driving(request: pytest.FixtureRequest) -> Drive:
    return drive_sync if request.param == "blocking" else awaiting


@pytest.fixture
def store() -> Flaky:
    return Flaky()


@pytest.fixture
def runtime(store: Flaky) -> Iterator[Runtime]:
    runtime = Runtime(store, Observers(None), b"secret")
    with no_leaked_threads():
        yield runtime
        runtime.close()


# --- Every step has somebody who performs it


def test_both_drivers_know_every_step() -> None:
    """A step that one of them cannot perform would be found by the first request that needs it."""
    assert set(_PERFORM) == set(_PERFORM_ASYNC) == set(get_args(Step))


# --- End to end


def test_once_and_again(driving: Drive, runtime: Runtime) -> None:
    """The first time runs, the second replays what was stored."""
    performer = Performer(created)
    first: Result = driving(a_flow(), runtime, performer)
    second: Result = driving(a_flow(), runtime, performer)
    assert (first.verdict, first.reply, first.attempt) == ("completed", CREATED, 1)
    assert second.verdict == "replayed"
    assert second.reply.response == CREATED  # type: ignore[union-attr]
    assert performer.runs == 1


def test_the_lease_is_kept_while_the_handler_runs(driving: Drive, runtime: Runtime) -> None:
    """The keeper holds the attempt that the handler is given."""
    held: list[bool] = []
    claim = a_claim()

    def run(attempt: Attempt) -> Outcome:
        held.append(runtime.leases.lasts(attempt.claim, 0.0))
        return Responded(CREATED)

    driving(a_flow(claim), runtime, Performer(run))
    assert held == [True]


def test_a_failure_is_kept(driving: Drive, runtime: Runtime) -> None:
    """And carried out, for whoever logs it."""
    error = RuntimeError()
    answer: Result = driving(a_flow(), runtime, Performer(lambda _: Raised(error)))
    assert (answer.verdict, answer.error) == ("failed", error)


def test_a_released_key_runs_again(driving: Drive, runtime: Runtime) -> None:
    """After `NotDone`, the next request is the first one."""
    driving(a_flow(), runtime, Performer(lambda _: Raised(NotDone())))
    assert driving(a_flow(), runtime, Performer(created)).verdict == "completed"


def test_a_lost_bid_is_made_again(driving: Drive, runtime: Runtime, store: Flaky) -> None:
    """One failure of the store is not the client's business."""
    store.trouble = [StoreUnavailable("once")]
    assert driving(a_flow(), runtime, Performer(created)).verdict == "completed"
    assert store.calls == ["reserve", "reserve", "finish"]


def test_a_store_that_is_down_refuses(driving: Drive, runtime: Runtime, store: Flaky) -> None:
    """503, the handler has not run, and the bid is forgotten."""
    store.trouble = [StoreUnavailable("once"), StoreUnavailable("twice")]
    performer = Performer(created)
    assert driving(a_flow(), runtime, performer).verdict == "store-unavailable"
    assert performer.runs == 0


def test_finishing_persists(driving: Drive, runtime: Runtime, store: Flaky) -> None:
    """While the lease lasts, the outcome is written until it is written."""
    claim = a_claim()

    def run(_: Attempt) -> Outcome:
        store.trouble = [StoreUnavailable("once"), StoreUnavailable("twice")]
        return Responded(CREATED)

    assert driving(a_flow(claim), runtime, Performer(run)).verdict == "completed"
    assert store.calls == ["reserve", "finish", "finish", "finish"]


def test_finishing_gives_up_with_the_lease(driving: Drive, runtime: Runtime, store: Flaky) -> None:
    """Then the client gets its real answer, unstored."""

    def run(attempt: Attempt) -> Outcome:
        store.trouble = [StoreUnavailable("down")] * 99
        attempt.lost = True  # as if the lease had ended
        return Responded(CREATED)

    answer: Result = driving(a_flow(), runtime, Performer(run))
    assert (answer.verdict, answer.stored, answer.reply) == ("unstored", False, CREATED)


def test_waiting_for_the_first(driving: Drive, runtime: Runtime, store: Flaky) -> None:
    """A duplicate in waiting mode polls and replays; and leaves the waiting room."""
    first = a_claim()
    store.reserve(first)
    looks = 0

    class Patient(Performer):
        pass

    reserve = store.reserve

    def finishing(claim: Claim) -> Reservation:
        nonlocal looks
        looks += 1
        if looks == 3:
            store.finish(first, Final("completed", CREATED))
        return reserve(claim)

    store.reserve = finishing  # type: ignore[method-assign]
    policy = Policy(in_flight="wait", wait_for=30.0)
    answer: Result = driving(a_flow(policy=policy), runtime, Patient(created))
    assert answer.verdict == "replayed"
    assert looks == 3
    assert not runtime.wait_limit._waiting


def test_waiting_answers_what_went_by(driving: Drive, runtime: Runtime) -> None:
    """By a clock that does not jump; `None` where the room is full."""

    def flow() -> Flow[float | None]:
        return (yield from ask(Wait(b"id", 0.01)))

    went_by = driving(flow(), runtime, Performer(created))
    assert went_by >= 0.009
    while runtime.wait_limit.enter(b"id"):
        pass
    assert driving(flow(), runtime, Performer(created)) is None


def test_pausing(driving: Drive, runtime: Runtime) -> None:
    """It takes at least as long as it should."""

    def flow() -> Flow[None]:
        yield from ask(Pause(0.02))

    began = time.monotonic()
    driving(flow(), runtime, Performer(created))
    assert time.monotonic() - began >= 0.019


class Sudden(BaseException):
    """Neither an outcome nor trouble with the store."""


def test_what_hands_raise_goes_through_the_flow(driving: Drive, runtime: Runtime) -> None:
    """The flow knows what it means; here it means that nobody knows, and it comes out again."""
    claim = a_claim()

    def run(_: Attempt) -> Outcome:
        raise Sudden

    with pytest.raises(Sudden):
        driving(a_flow(claim), runtime, Performer(run))
    found = runtime.store.look(claim.id)
    assert found is not None
    assert found.record.state == "in_progress"


def test_interrupted_at_the_bid(driving: Drive, runtime: Runtime, store: Flaky) -> None:
    """A bid that may have been applied is released by the keeper."""
    claim = a_claim()
    reserve = store.reserve

    def interrupted(claim: Claim) -> Reservation:
        reserve(claim)
        raise Sudden

    store.reserve = interrupted  # type: ignore[method-assign]
    with pytest.raises(Sudden):
        driving(a_flow(claim), runtime, Performer(created))
    eventually(lambda: store.look(claim.id) is None)


def test_the_attempt_is_current_where_hands_say_so(runtime: Runtime) -> None:
    """Performer that enter the attempt make it visible below."""
    seen: list[Attempt] = []

    class Entering(AsyncPerformer):
        async def run(self, step: Run) -> Outcome:
            attempts.enter(step.attempt)
            seen.append(await asyncio.to_thread(current))
            return Responded(CREATED)

    asyncio.run(drive_async(a_flow(), runtime, Entering(Performer(created))))
    assert len(seen) == 1


def test_an_unprotected_run_holds_no_lease(driving: Drive, runtime: Runtime) -> None:
    """There is none to renew: the store never confirmed it."""
    attempt = Attempt(a_claim(), 1, leased=False)
    call = Call(attempt.claim, Policy(), OutcomeRules(), describe)
    held: list[bool] = []

    def flow() -> Flow[Outcome]:
        return (yield from ask(Run(attempt, call)))

    def run(attempt: Attempt) -> Outcome:
        held.append(attempt.claim.token in runtime.leases._held)
        return Responded(CREATED)

    driving(flow(), runtime, Performer(run))
    assert held == [False]


def test_async_steps_are_awaitable(runtime: Runtime) -> None:
    """Each of them, or the driver could not await it."""
    assert all(callable(perform) for perform in _PERFORM_ASYNC.values())
    waiting: Awaitable[object] = _PERFORM_ASYNC[Pause](
        Pause(0.0), runtime, AsyncPerformer(Performer(created))
    )

    async def wait() -> None:
        await waiting

    asyncio.run(wait())
