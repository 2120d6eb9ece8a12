"""A violation for people: the schedule that leads to it, shortened, and what happens in it step by step."""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from retrysafe.testing.simulate import histories, recovery
from retrysafe.testing.simulate.actions import MEANING, Action, Kind, perform
from retrysafe.testing.simulate.promises import Violation, alike, as_violation
from retrysafe.testing.simulate.request import Visit
from retrysafe.testing.simulate.stage import ASKED, IDENTITIES, Stage
from retrysafe.testing.simulate.walk import replay
from retrysafe.testing.simulate.world import START, World

_MEANING: dict[Kind, str] = {
    **MEANING,
    "cancel": "its task is cancelled",
    "cancel after": "its task is cancelled right after this was done",
}
_OF_WORKERS = frozenset({"crash", "freeze", "thaw", "renew", "forget", "step clock", "drain"})
_OF_IDENTITIES = frozenset({"release", "resolve", "lose lease", "revoke"})


class Told(NamedTuple):
    """A schedule, played again."""

    text: str
    """What happens in it, a line for each thing, and how it ends."""
    violation: Violation | None


def explain(stage: Stage, schedule: Sequence[Action], violation: Violation) -> str:
    """What was broken, the story of it in as few actions as possible, and these actions as code."""
    shorter = shorten(stage, schedule, violation)
    told = tell(stage, shorter)
    listed = (
        "\n".join(f"    {action!r}," for action in shorter) or "    nothing at all has to happen for this"
    )
    same = alike(violation, told.violation)
    return (
        f"{violation}\n\n{'' if same else _OTHERWISE}{told.text}\n\n"
        f"The schedule ({len(shorter)} of {len(schedule)} actions):\n{listed}"
    )


_OTHERWISE = (
    "Played again, the same schedule ends in another way, so what follows is not what was seen. The store "
    "does not always do the same: does it count its calls, keep anything that outlives it, draw random "
    "numbers, or go by another clock than the one it is given?\n\n"
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


def tell(stage: Stage, schedule: Sequence[Action]) -> Told:
    """Play a schedule again, and tell what happens."""
    lines: list[str] = []
    violation: Violation | None = None
    try:
        with closing(World(stage)) as world:
            _play(world, schedule, lines)
    except Exception as error:  # noqa: BLE001 - a store may raise anything, and that is what is told
        violation = as_violation(error)
    lines.append(str(violation) if violation is not None else "No promise is broken.")
    return Told("\n".join(lines), violation)


def _play(world: World, schedule: Sequence[Action], lines: list[str]) -> None:
    for action in schedule:
        visit = world.visits.get(action.who)
        before = type(visit.step).__name__ if visit is not None else ""
        world.trouble = None
        try:
            possible = perform(world, action)
        except Exception as error:
            lines.append(_line(world, action, before, "" if isinstance(error, Violation) else _raises(error)))
            raise
        if possible:
            lines.append(_line(world, action, before, _raises(world.trouble)))
    world.trouble = None
    lines.append("All faults stop: everybody comes to an end, and then somebody asks for each key once more.")
    try:
        recovery.recover(world)
        seen = histories.gather(world)
        lines.append("All records expire, and somebody asks for each key as if it were new.")
        recovery.expire(world)
        histories.judge(seen, world.setting)
    except Exception:
        for visit in world.visits.values():
            lines.append(f"    {visit} for {IDENTITIES[visit.account.identity]}: {_ended(visit)}")
        if world.trouble is not None:
            lines.append(
                f"    the last trouble of the store: {type(world.trouble).__name__}: {world.trouble}"
            )
        raise


def _raises(error: Exception | None) -> str:
    return "" if error is None else f"; the store raises {type(error).__name__}: {error}"


def _line(world: World, action: Action, before: str, raises: str) -> str:
    at = f"{world.clock.now - START:8.0f} s  "
    kind = action.kind
    if kind == "arrive":
        identity, asked, worker = action.how
        who = f"request {action.who} of {IDENTITIES[identity]} asks worker {worker}"
        return f"{at}{who} for {ASKED[int(asked)]}"
    if kind == "elapse":
        return f"{at}{action.how[0]:.0f} seconds have passed"
    if kind in _OF_WORKERS:
        how = f", by {action.how[0]:+.0f} seconds" if action.how else ""
        return f"{at}worker {action.who}: {_MEANING[kind]}{how}{raises}"
    if kind in _OF_IDENTITIES:
        return f"{at}{IDENTITIES[action.who]}: {_MEANING[kind]}{raises}"
    visit = world.visits.get(action.who)
    if visit is None or kind in ("purge", "outage", "mend", "deliver"):
        return f"{at}{_MEANING[kind]}{raises}"
    what = "" if kind == "step" else f": {_MEANING[kind]}"
    # What a store may not raise is not told to the flow: there is no next step.
    after = "" if raises and world.trouble is None else f"; {_ended(visit)}"
    return f"{at}{visit}, {before}{what}{raises}{after}"


def _ended(visit: Visit) -> str:
    if visit.answer is not None:
        return f"it is told {visit.answer.verdict}"
    if visit.flow is None:
        return "nobody will hear of it"
    return f"next is {type(visit.step).__name__}"
