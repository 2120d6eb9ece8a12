"""Random walks: a seed chooses everything that happens, and the same seed chooses the same again."""

from collections.abc import Sequence
from contextlib import closing
from itertools import repeat
from random import Random

from retrysafe.testing.linearize import History
from retrysafe.testing.simulate import histories, recovery
from retrysafe.testing.simulate.actions import Action, Kind, perform
from retrysafe.testing.simulate.promises import Violation, as_violation
from retrysafe.testing.simulate.setting import HOLD, LEASE, RETENTION
from retrysafe.testing.simulate.stage import ASKED, IDENTITIES, Stage
from retrysafe.testing.simulate.world import WORKERS, World

_USUAL: dict[Kind, int] = {
    "step": 240, "arrive": 48, "lose reply": 10, "lose request": 6, "delay": 8, "deliver": 10, "refuse": 6,
    "crash": 5, "crash after": 6, "cancel": 5, "cancel after": 5, "freeze": 8, "thaw": 10, "renew": 12,
    "forget": 10, "elapse": 22, "step clock": 4, "purge": 7, "outage": 4, "recover": 12, "release": 4,
    "resolve": 3, "lose lease": 2, "revoke": 2, "drain": 2,
}  # fmt: skip


def _mixture(usual: dict[Kind, int], steps: int) -> tuple[Kind, ...]:
    mixture: list[Kind] = []
    for kind, weight in usual.items():
        mixture.extend(repeat(kind, steps if kind == "step" else weight))
    return tuple(mixture)


MIXTURES = (_mixture(_USUAL, 700), _mixture(_USUAL, 240), _mixture(_USUAL, 90))
"""With few, some and many faults."""

_ELAPSE = (1.0, LEASE // 3, LEASE // 3, LEASE + 1, LEASE + 1, LEASE + 1, RETENTION - LEASE, RETENTION + 1,
           HOLD + LEASE)  # fmt: skip
_STEPS_OF_CLOCKS = (-3600.0, -LEASE, -1.0, 1.0, LEASE, 3600.0)

_OF_REQUESTS = frozenset(
    {"step", "lose reply", "lose request", "delay", "refuse", "crash after", "cancel", "cancel after"}
)


class Walk:
    """One schedule, chosen by a seed."""

    __slots__ = ("histories", "taken", "world")

    def __init__(self, stage: Stage) -> None:
        self.world = World(stage)
        self.taken: list[Action] = []
        """What has happened, in order: enough to run it again."""
        self.histories: list[History] = []
        """What clients saw, once all requests have ended."""

    def go(self, seed: int, *, gather: bool = False) -> None:
        """Run it to its end.  Raises `Violation`.  `gather`: also collect what clients saw."""
        try:
            self._go(seed, gather=gather)
        finally:
            self.world.close()

    def _go(self, seed: int, *, gather: bool) -> None:
        random = Random(seed).random
        world, taken = self.world, self.taken
        live = world.live
        mixture = MIXTURES[int(random() * 3)]
        choices = len(mixture)
        coming = 2 + int(random() * 5)
        arrived = 0
        for _ in range(12 + int(random() * 36)):
            kind = mixture[int(random() * choices)]
            if kind == "arrive" or not live:
                if arrived == coming:
                    if kind == "arrive" or kind in _OF_REQUESTS:
                        continue
                else:
                    kind = "arrive"
            if kind in _OF_REQUESTS:
                action = Action(kind, live[int(random() * len(live))].number)
            elif kind == "arrive":
                action = _arrival(arrived, random(), random(), random())
                arrived += 1
            else:
                action = _other(world, kind, random(), random())
            taken.append(action)
            if not perform(world, action):
                taken.pop()
        recovery.recover(world)
        if gather:
            self.histories = histories.gather(world)
        if seed & 1:
            recovery.expire(world)


def _arrival(number: int, who: float, what: float, where: float) -> Action:
    identity = 0 if who < 0.7 else int(who * 1000) % len(IDENTITIES)
    asked = 0 if what < 0.8 else int(what * 1000) % len(ASKED)
    return Action("arrive", number, (identity, asked, int(where * WORKERS)))


def _other(world: World, kind: Kind, one: float, other: float) -> Action:
    match kind:
        case "renew":
            keepers = [worker.number for worker in world.workers if worker.held] or [0]
            return Action(kind, keepers[int(one * len(keepers))])
        case "forget":
            keepers = [worker.number for worker in world.workers if worker.forgotten] or [0]
            return Action(kind, keepers[int(one * len(keepers))])
        case "elapse":
            return Action(kind, 0, (_ELAPSE[int(one * len(_ELAPSE))],))
        case "step clock":
            seconds = _STEPS_OF_CLOCKS[int(other * len(_STEPS_OF_CLOCKS))]
            return Action(kind, int(one * WORKERS), (seconds,))
        case "release" | "resolve" | "lose lease" | "revoke":
            return Action(kind, 0 if one < 0.8 else int(other * len(IDENTITIES)))
        case _:
            return Action(kind, int(one * WORKERS))


def replay(stage: Stage, schedule: Sequence[Action]) -> Violation | None:
    """Run a schedule again, leaving out actions that cannot happen; what it breaks, if anything."""
    try:
        with closing(World(stage)) as world:
            for action in schedule:
                perform(world, action)
            conclude(world)
    except Exception as error:  # noqa: BLE001 - a store may raise anything, and that is what is looked for
        return as_violation(error)
    return None


def conclude(world: World) -> None:
    """All that is checked when a schedule is over.  Raises `Violation`."""
    recovery.recover(world)
    seen = histories.gather(world)
    recovery.expire(world)
    histories.judge(seen, world.setting)
