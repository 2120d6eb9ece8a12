"""The flows, interrupted or closed at every one of their steps."""

import asyncio
from collections.abc import Callable

import pytest

from retrysafe._core.model import Reserved
from retrysafe._core.protocol import once
from retrysafe._core.steps import (
    Finish,
    Flow,
    Forget,
    Look,
    Pause,
    Persist,
    Raised,
    Reauthorise,
    Release,
    Reserve,
    Responded,
    Result,
    Run,
    Step,
    TakeOver,
    Wait,
)
from retrysafe.errors import NotDone
from retrysafe.policy import Policy
from tests.protocol.values import (
    ABANDONED,
    COMPLETED,
    CREATED,
    DOWN,
    RETRY,
    RUNNING,
    WAITING,
    Stepper,
    a_call,
    found,
)

# --- Interrupted at every step ----------------------------------------------------------------------------


def _drained(steps: int) -> Flow[Result]:
    calls = 0

    def draining() -> bool:
        nonlocal calls
        calls += 1
        return calls > steps

    return once(a_call()._replace(draining=draining))


PATHS: dict[str, tuple[Callable[[], Flow[Result]], list[object]]] = {
    "runs": (lambda: once(a_call()), [Reserved(1), Responded(CREATED), True]),
    "takes over": (lambda: once(a_call(RETRY)), [found(ABANDONED), Reserved(2), Responded(CREATED), True]),
    "replays": (lambda: once(a_call(reauthorises=True)), [found(COMPLETED), True]),
    "waits": (lambda: once(a_call(WAITING)), [found(RUNNING), 0.01, Reserved(1), Responded(CREATED), True]),
    "retries its bid": (lambda: once(a_call()), [DOWN, None, Reserved(1), Responded(CREATED), True]),
    "retries its take-over": (
        lambda: once(a_call(RETRY)),
        [found(ABANDONED), DOWN, None, Reserved(2), Responded(CREATED), True],
    ),
    "is refused": (lambda: once(a_call()), [DOWN, None, DOWN, None]),
    "runs unprotected": (
        lambda: once(a_call(Policy(store_down="run"))),
        [DOWN, None, DOWN, None, Responded(CREATED)],
    ),
    "retries its finish": (lambda: once(a_call()), [Reserved(1), Responded(CREATED), DOWN, True, True]),
    "is fenced": (lambda: once(a_call()), [Reserved(1), Responded(CREATED), False, found(COMPLETED)]),
    "releases": (lambda: once(a_call()), [Reserved(1), Raised(NotDone()), None]),
    "forgets": (lambda: once(a_call()), [Reserved(1), Raised(NotDone()), DOWN, None]),
    "is drained": (lambda: _drained(1), [Reserved(1), None]),
    "is drained and forgets": (lambda: _drained(1), [Reserved(1), DOWN, None]),
    "looks": (lambda: once(a_call(draining=True)), [found(COMPLETED)]),
}
POINTS = [(name, at) for name, (_, answers) in PATHS.items() for at in range(len(answers))]


def played(name: str, steps: int) -> Stepper[Result]:
    """One of the paths, up to the step that is then interrupted."""
    make, answers = PATHS[name]
    flow = Stepper(make())
    for answer in answers[:steps]:
        if isinstance(answer, Exception):
            flow.throw(answer)
        else:
            flow.give(answer)
    return flow


def test_the_paths_lead_somewhere() -> None:
    """Each of them is a whole flow, and together they make every step that `once` can make."""
    made: set[type[Step]] = set()
    for name, (_, answers) in PATHS.items():
        flow = played(name, len(answers))
        assert flow.result.verdict
        made.update(type(step) for step in flow.asked)
    assert made == {
        Reserve, TakeOver, Look, Run, Finish, Release, Forget, Persist, Pause, Wait, Reauthorise
    }  # fmt: skip


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, asyncio.CancelledError, SystemExit, MemoryError])
@pytest.mark.parametrize(("name", "at"), POINTS)
def test_an_interruption_leaves_no_claim_that_nobody_ran(
    name: str, at: int, interruption: type[BaseException]
) -> None:
    """Whatever is thrown at whichever step: it comes out again, and an unrun claim is forgotten.

    Once the handler has begun, nobody knows how far it came, and the claim is left to lapse; unless it is
    known that nothing happened, because then it was to be released.
    """
    flow = played(name, at)
    interrupted = flow.step
    bid = any(isinstance(step, Reserve | TakeOver) for step in flow.asked)
    # What a store has told to be somebody else's was never ours.
    others = isinstance(interrupted, Reauthorise | Wait)
    ran = any(isinstance(step, Run) for step in flow.asked)
    already = any(isinstance(step, Forget) for step in flow.asked)
    seen = len(flow.asked)
    caught: BaseException | None = None
    try:
        flow.throw(interruption())
        while not flow._ended:
            flow.expect(Forget)
            flow.give(None)
    except BaseException as error:  # noqa: BLE001 - it is what the test is about
        caught = error
    assert isinstance(caught, interruption), "the interruption was swallowed"
    assert all(isinstance(step, Forget) for step in flow.asked[seen:])
    forgotten = already or any(isinstance(step, Forget) for step in flow.asked[seen:])
    if bid and not others and (not ran or isinstance(interrupted, Release)):
        assert forgotten, (
            f"interrupted at {type(interrupted).__name__}, the claim is neither run nor forgotten"
        )
    if ran and not isinstance(interrupted, Release) and not already:
        assert not forgotten, "what may have happened must not be forgotten"


@pytest.mark.parametrize(("name", "at"), POINTS)
def test_a_flow_can_be_closed_at_every_step(name: str, at: int) -> None:
    """`close()` raises `GeneratorExit` inside: nothing is asked for any more, and nothing is raised."""
    flow = played(name, at)
    flow.flow.close()
    with pytest.raises(StopIteration):
        next(flow.flow)
