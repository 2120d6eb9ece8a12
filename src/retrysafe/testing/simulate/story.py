"""A violation explained: the schedule that leads to it, shortened, and what happens in it step by step."""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from retrysafe.testing.simulate import histories, recovery
from retrysafe.testing.simulate.actions import MEANING, Action, Kind, perform
from retrysafe.testing.simulate.promises import Violation, alike, as_violation
from retrysafe.testing.simulate.request import SimulatedRequest
from retrysafe.testing.simulate.stage import Stage
from retrysafe.testing.simulate.walk import replay
from retrysafe.testing.simulate.world import START, World

_MEANING: dict[Kind, str] = {
    **MEANING,
    "cancel": "its task is cancelled",
    "cancel after": "its task is cancelled right after this was done",
}
_OF_BATCHES = frozenset(
    {
        "perform batch", "lose batch reply", "lose batch", "repeat batch", "delay batch", "refuse batch",
        "refuse row",
    }
)  # fmt: skip
_OF_WORKERS = frozenset({"crash", "freeze", "thaw", "renew", "forget", "step clock", "drain", *_OF_BATCHES})
_OF_IDENTITIES = frozenset({"release", "resolve", "lose lease", "revoke"})


class Trace(NamedTuple):
    """What happens in a schedule."""

    text: str
    """A line for each action, and how it ends."""
    violation: Violation | None


def explain(stage: Stage, schedule: Sequence[Action], violation: Violation) -> str:
    """What was broken, the story of it in as few actions as possible, and these actions as code."""
    shorter = shorten(stage, schedule, violation)
    played = trace(stage, shorter)
    listed = (
        "\n".join(f"    {action!r}," for action in shorter) or "    (empty: this happens without any action)"
    )
    same = alike(violation, played.violation)
    return (
        f"{violation}\n\n{'' if same else _OTHERWISE}{played.text}\n\n"
        f"The schedule ({len(shorter)} of {len(schedule)} actions):\n{listed}"
    )


_OTHERWISE = (
    "The same schedule, run again, ends in another way, so what follows is not what was seen. The store "
    "does not always do the same: does it count its calls, share state with other stores, draw random "
    "numbers, or use another clock than the one it is given?\n\n"
)


def shorten(stage: Stage, schedule: Sequence[Action], violation: Violation) -> list[Action]:
    """Leave out what is not needed to break the same promise: halves, quarters, at last single actions."""
    left = list(schedule)
    size = len(left) // 2
    while size:
        at = len(left) - size
        while at > -size:
            shorter = left[: max(at, 0)] + left[max(at, 0) + size :]
            if alike(violation, replay(stage, shorter)):
                left = shorter
            at -= size
        size //= 2
    return left


def trace(stage: Stage, schedule: Sequence[Action]) -> Trace:
    """Run a schedule again, and describe what happens."""
    lines: list[str] = []
    violation: Violation | None = None
    try:
        with closing(World(stage)) as world:
            _play(world, schedule, lines)
    except Exception as error:  # noqa: BLE001 - a store may raise anything, and it is reported
        violation = as_violation(error)
    lines.append(str(violation) if violation is not None else "No promise is broken.")
    return Trace("\n".join(lines), violation)


def _play(world: World, schedule: Sequence[Action], lines: list[str]) -> None:
    for action in schedule:
        request = world.requests.get(action.who)
        before = type(request.step).__name__ if request is not None else ""
        if action.kind in _OF_BATCHES:
            before = _in_flight(world, action)
        world.store_error = None
        try:
            possible = perform(world, action)
        except Exception as error:
            lines.append(_line(world, action, before, "" if isinstance(error, Violation) else _raises(error)))
            raise
        if possible:
            lines.append(_line(world, action, before, _raises(world.store_error)))
    world.store_error = None
    lines.append("All faults stop: every request comes to an end, and then each key is requested once more.")
    try:
        recovery.recover(world)
        seen = histories.gather(world)
        lines.append("All records expire, and each key is requested as if it were new.")
        recovery.expire(world)
        histories.judge(seen, world.setting)
    except Exception:
        for request in world.requests.values():
            lines.append(f"    {request} for {world.stage.identity(request.key.identity)}: {_ended(request)}")
        if world.store_error is not None:
            lines.append(
                f"    the last error of the store: {type(world.store_error).__name__}: {world.store_error}"
            )
        raise


def _in_flight(world: World, action: Action) -> str:
    """The calls that this action is about, as they are before it."""
    queue = world.workers[action.who].queue
    if queue is None or not queue.in_flight:
        return ""
    which: int = action.how[0] if action.how else 0
    return str(queue.in_flight[which % len(queue.in_flight)])


def _raises(error: Exception | None) -> str:
    return "" if error is None else f"; the store raises {type(error).__name__}: {error}"


def _line(world: World, action: Action, before: str, raises: str) -> str:
    at = f"{world.clock.now - START:8.0f} s  "
    kind = action.kind
    if kind == "arrive":
        identity, asked, worker = action.how
        stage = world.stage
        who = f"request {action.who} of {stage.identity(identity)} asks worker {worker}"
        return f"{at}{who} for {stage.describe(identity, int(asked))}"
    if kind == "elapse":
        return f"{at}{action.how[0]:.0f} seconds have passed"
    if kind in _OF_BATCHES:
        return f"{at}worker {action.who}: {_MEANING[kind]} ({before}){raises}"
    if kind in _OF_WORKERS:
        how = f", by {action.how[0]:+.0f} seconds" if action.how else ""
        return f"{at}worker {action.who}: {_MEANING[kind]}{how}{raises}"
    if kind in _OF_IDENTITIES:
        return f"{at}{world.stage.identity(action.who)}: {_MEANING[kind]}{raises}"
    request = world.requests.get(action.who)
    if request is None or kind in ("purge", "outage", "recover", "deliver"):
        return f"{at}{_MEANING[kind]}{raises}"
    if kind == "queue":
        return f"{at}{request}, {before}: it goes to the queue of worker {request.worker.number}"
    what = "" if kind == "step" else f": {_MEANING[kind]}"
    # What a store may not raise does not reach the flow: there is no next step.
    after = "" if raises and world.store_error is None else f"; {_ended(request)}"
    return f"{at}{request}, {before}{what}{raises}{after}"


def _ended(request: SimulatedRequest) -> str:
    if request.result is not None:
        return f"it received {request.result.verdict}"
    if request.queued is not None:
        return "it waits for the queue of its worker"
    if request.flow is None:
        return "its client receives nothing"
    return f"next is {type(request.step).__name__}"
