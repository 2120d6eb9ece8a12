"""A violation for people: the schedule that leads to it, shortened, and what happens in it step by step."""

from collections.abc import Sequence

from retrysafe.testing.simulate import aftermath
from retrysafe.testing.simulate.actions import MEANING, Action
from retrysafe.testing.simulate.happenings import perform
from retrysafe.testing.simulate.promises import Promise, Violation
from retrysafe.testing.simulate.stage import ASKED, IDENTITIES, Stage
from retrysafe.testing.simulate.visit import Visit
from retrysafe.testing.simulate.walk import replay
from retrysafe.testing.simulate.world import START, World

_OF_WORKERS = frozenset({"crash", "freeze", "thaw", "renew", "forget", "step clock", "drain"})
_OF_IDENTITIES = frozenset({"release", "resolve", "lose lease", "revoke"})


def shorten(stage: Stage, schedule: Sequence[Action], promise: Promise) -> list[Action]:
    """Leave out what is not needed to break the same promise: halves, quarters, at last single actions."""
    left = list(schedule)
    size = len(left) // 2
    while size:
        at = len(left) - size
        while at > -size:
            shorter = left[: max(at, 0)] + left[max(at, 0) + size :]
            found = replay(stage, shorter)
            if found is not None and found.promise == promise:
                left = shorter
            at -= size
        size //= 2
    return left


def tell(stage: Stage, schedule: Sequence[Action]) -> str:
    """What happens in a schedule, a line for each thing, and how it ends."""
    world = World(stage)
    lines: list[str] = []
    violation: Violation | None = None
    for action in schedule:
        visit = world.visits.get(action.who)
        before = type(visit.step).__name__ if visit is not None else ""
        try:
            possible = perform(world, action)
        except Violation as found:
            violation, possible = found, True
        if possible:
            lines.append(_line(world, action, before))
        if violation is not None:
            break
    if violation is None:
        violation = _peace(world, lines)
    lines.append(str(violation) if violation is not None else "No promise is broken.")
    return "\n".join(lines)


def _peace(world: World, lines: list[str]) -> Violation | None:
    try:
        aftermath.recover(world)
        lines.append("All faults stop, everybody comes to an end, and new requests are answered.")
        aftermath.expire(world)
    except Violation as found:
        for visit in world.visits.values():
            lines.append(f"    {visit} for {IDENTITIES[visit.account.identity]}: {_ended(visit)}")
        return found
    return None


def _line(world: World, action: Action, before: str) -> str:
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
        return f"{at}worker {action.who}: {MEANING[kind]}{how}"
    if kind in _OF_IDENTITIES:
        return f"{at}{IDENTITIES[action.who]}: {MEANING[kind]}"
    visit = world.visits.get(action.who)
    if visit is None or kind in ("purge", "outage", "mend", "deliver"):
        return f"{at}{MEANING[kind]}"
    what = "" if kind == "step" else f": {MEANING[kind]}"
    return f"{at}{visit}, {before}{what}; {_ended(visit)}"


def _ended(visit: Visit) -> str:
    if visit.answer is not None:
        return f"it is told {visit.answer.verdict}"
    if visit.flow is None:
        return "nobody will hear of it"
    return f"next is {type(visit.step).__name__}"
