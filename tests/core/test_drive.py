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
    Answered,
    Flow,
    Outcome,
    Pause,
    Raised,
    Run,
    Step,
    Wait,
    ask,
)
from retrysafe._core.verdicts import Answer
from retrysafe._runtime.drive_async import _PERFORM_ASYNC, drive_async
from retrysafe._runtime.drive_sync import _PERFORM, drive
from retrysafe._runtime.runtime import Engine
from retrysafe.errors import NotDone, StoreUnavailable
from retrysafe.events import Observers
from retrysafe.policy import Policy
from tests.core.driving import CREATED, AsyncHands, Drive, Flaky, Hands, a_flow, awaiting, created
from tests.core.values import a_claim, eventually, no_leaked_threads


@pytest.fixture(params=["blocking", "awaiting"])
def driving(request: pytest.FixtureRequest) -> Drive:
    return drive if request.param == "blocking" else awaiting


@pytest.fixture
def store() -> Flaky:
    return Flaky()


@pytest.fixture
def engine(store: Flaky) -> Iterator[Engine]:
    engine = Engine(store, Observers(None), b"secret")
    with no_leaked_threads():
        yield engine
        engine.close()


# --- Every step has somebody who performs it


def test_both_drivers_know_every_step() -> None:
    """A step that one of them cannot perform would be found by the first request that needs it."""
    assert set(_PERFORM) == set(_PERFORM_ASYNC) == set(get_args(Step))


# --- End to end


def test_once_and_again(driving: Drive, engine: Engine) -> None:
    """The first time runs, the second replays what was stored."""
    hands = Hands(created)
    first: Answer = driving(a_flow(), engine, hands)
    second: Answer = driving(a_flow(), engine, hands)
    assert (first.verdict, first.reply, first.attempt) == ("completed", CREATED, 1)
    assert second.verdict == "replayed"
    assert second.reply.response == CREATED  # type: ignore[union-attr]
    assert hands.runs == 1


def test_the_lease_is_kept_while_the_handler_runs(driving: Drive, engine: Engine) -> None:
    """The keeper holds the attempt that the handler is given."""
    held: list[bool] = []
    claim = a_claim()

    def run(attempt: Attempt) -> Outcome:
        held.append(engine.keeper.lasts(attempt.claim, 0.0))
        return Answered(CREATED)

    driving(a_flow(claim), engine, Hands(run))
    assert held == [True]


def test_a_failure_is_kept(driving: Drive, engine: Engine) -> None:
    """And carried out, for whoever logs it."""
    error = RuntimeError()
    answer: Answer = driving(a_flow(), engine, Hands(lambda _: Raised(error)))
    assert (answer.verdict, answer.error) == ("failed", error)


def test_a_released_key_runs_again(driving: Drive, engine: Engine) -> None:
    """After `NotDone`, the next request is the first one."""
    driving(a_flow(), engine, Hands(lambda _: Raised(NotDone())))
    assert driving(a_flow(), engine, Hands(created)).verdict == "completed"


def test_a_lost_bid_is_made_again(driving: Drive, engine: Engine, store: Flaky) -> None:
    """One failure of the store is not the client's business."""
    store.trouble = [StoreUnavailable("once")]
    assert driving(a_flow(), engine, Hands(created)).verdict == "completed"
    assert store.calls == ["reserve", "reserve", "finish"]


def test_a_store_that_is_down_refuses(driving: Drive, engine: Engine, store: Flaky) -> None:
    """503, the handler has not run, and the bid is forgotten."""
    store.trouble = [StoreUnavailable("once"), StoreUnavailable("twice")]
    hands = Hands(created)
    assert driving(a_flow(), engine, hands).verdict == "store-unavailable"
    assert hands.runs == 0


def test_finishing_persists(driving: Drive, engine: Engine, store: Flaky) -> None:
    """While the lease lasts, the outcome is written until it is written."""
    claim = a_claim()

    def run(_: Attempt) -> Outcome:
        store.trouble = [StoreUnavailable("once"), StoreUnavailable("twice")]
        return Answered(CREATED)

    assert driving(a_flow(claim), engine, Hands(run)).verdict == "completed"
    assert store.calls == ["reserve", "finish", "finish", "finish"]


def test_finishing_gives_up_with_the_lease(driving: Drive, engine: Engine, store: Flaky) -> None:
    """Then the client gets its real answer, unstored."""

    def run(attempt: Attempt) -> Outcome:
        store.trouble = [StoreUnavailable("down")] * 99
        attempt.lost = True  # as if the lease had ended
        return Answered(CREATED)

    answer: Answer = driving(a_flow(), engine, Hands(run))
    assert (answer.verdict, answer.stored, answer.reply) == ("unstored", False, CREATED)


def test_waiting_for_the_first(driving: Drive, engine: Engine, store: Flaky) -> None:
    """A duplicate in waiting mode polls and replays; and leaves the waiting room."""
    first = a_claim()
    store.reserve(first)
    looks = 0

    class Patient(Hands):
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
    answer: Answer = driving(a_flow(policy=policy), engine, Patient(created))
    assert answer.verdict == "replayed"
    assert looks == 3
    assert not engine.waiting._waiting


def test_waiting_answers_what_went_by(driving: Drive, engine: Engine) -> None:
    """By a clock that does not jump; `None` where the room is full."""

    def flow() -> Flow[float | None]:
        return (yield from ask(Wait(b"id", 0.01)))

    went_by = driving(flow(), engine, Hands(created))
    assert went_by >= 0.009
    while engine.waiting.enter(b"id"):
        pass
    assert driving(flow(), engine, Hands(created)) is None


def test_pausing(driving: Drive, engine: Engine) -> None:
    """It takes at least as long as it should."""

    def flow() -> Flow[None]:
        yield from ask(Pause(0.02))

    began = time.monotonic()
    driving(flow(), engine, Hands(created))
    assert time.monotonic() - began >= 0.019


class Sudden(BaseException):
    """Neither an outcome nor trouble with the store."""


def test_what_hands_raise_goes_through_the_flow(driving: Drive, engine: Engine) -> None:
    """The flow knows what it means; here it means that nobody knows, and it comes out again."""
    claim = a_claim()

    def run(_: Attempt) -> Outcome:
        raise Sudden

    with pytest.raises(Sudden):
        driving(a_flow(claim), engine, Hands(run))
    found = engine.store.look(claim.id)
    assert found is not None
    assert found.record.state == "in_progress"


def test_interrupted_at_the_bid(driving: Drive, engine: Engine, store: Flaky) -> None:
    """A bid that may have been applied is released by the keeper."""
    claim = a_claim()
    reserve = store.reserve

    def interrupted(claim: Claim) -> Reservation:
        reserve(claim)
        raise Sudden

    store.reserve = interrupted  # type: ignore[method-assign]
    with pytest.raises(Sudden):
        driving(a_flow(claim), engine, Hands(created))
    eventually(lambda: store.look(claim.id) is None)


def test_the_attempt_is_current_where_hands_say_so(engine: Engine) -> None:
    """Hands that enter the attempt make it visible below."""
    seen: list[Attempt] = []

    class Entering(AsyncHands):
        async def run(self, attempt: Attempt) -> Outcome:
            attempts.enter(attempt)
            seen.append(await asyncio.to_thread(current))
            return Answered(CREATED)

    asyncio.run(drive_async(a_flow(), engine, Entering(Hands(created))))
    assert len(seen) == 1


def test_an_unprotected_run_holds_no_lease(driving: Drive, engine: Engine) -> None:
    """There is none to renew: the store never confirmed it."""
    attempt = Attempt(a_claim(), 1, leased=False)
    held: list[bool] = []

    def flow() -> Flow[Outcome]:
        return (yield from ask(Run(attempt)))

    def run(attempt: Attempt) -> Outcome:
        held.append(attempt.claim.token in engine.keeper._held)
        return Answered(CREATED)

    driving(flow(), engine, Hands(run))
    assert held == [False]


def test_async_steps_are_awaitable(engine: Engine) -> None:
    """Each of them, or the driver could not await it."""
    assert all(callable(perform) for perform in _PERFORM_ASYNC.values())
    waiting: Awaitable[object] = _PERFORM_ASYNC[Pause](Pause(0.0), engine, AsyncHands(Hands(created)))

    async def wait() -> None:
        await waiting

    asyncio.run(wait())
