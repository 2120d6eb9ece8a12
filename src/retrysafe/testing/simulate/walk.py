"""Random walks: a seed chooses everything that happens, and the same seed chooses the same again."""

from collections.abc import Sequence
from contextlib import closing
from itertools import repeat
from random import Random

from retrysafe.testing.linearize import History
from retrysafe.testing.simulate import histories, recovery
from retrysafe.testing.simulate.actions import Action, Kind, perform
from retrysafe.testing.simulate.batches import QUEUED
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

_OF_BATCHES: dict[Kind, int] = {
    "perform batch": 40, "lose batch reply": 10, "lose batch": 5, "repeat batch": 8, "delay batch": 6,
    "refuse batch": 8, "refuse row": 8, "time out": 8,
}  # fmt: skip


def _mixture(usual: dict[Kind, int], steps: int) -> tuple[Kind, ...]:
    mixture: list[Kind] = []
    for kind, weight in usual.items():
        mixture.extend(repeat(kind, steps if kind == "step" else weight))
    return tuple(mixture)


MIXTURES = (_mixture(_USUAL, 700), _mixture(_USUAL, 240), _mixture(_USUAL, 90))
"""With few, some and many faults."""

BATCHED = tuple(_mixture({**_USUAL, **_OF_BATCHES}, steps) for steps in (700, 240, 90))
"""The same where calls go through the queues of workers."""

_BATCHED_SEEDS = frozenset({3, 6})
"""Of eight seeds in a row, those in whose schedules they do."""

_JOIN = 0.9
"""How often a call joins those that wait, before what is in flight has its reply: a lone one is not new."""

_ELAPSE = (1.0, LEASE // 3, LEASE // 3, LEASE + 1, LEASE + 1, LEASE + 1, RETENTION - LEASE, RETENTION + 1,
           HOLD + LEASE)  # fmt: skip
_STEPS_OF_CLOCKS = (-3600.0, -LEASE, -1.0, 1.0, LEASE, 3600.0)

_OF_REQUESTS = frozenset(
    {
        "step", "lose reply", "lose request", "delay", "refuse", "crash after", "cancel", "cancel after",
        "time out",
    }
)  # fmt: skip


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
        # A statement that waits for another transaction has a connection of its own, and no batch.
        nested = world.setting.door == "nested"
        batched = seed % 8 in _BATCHED_SEEDS and not nested
        mixture = (BATCHED if batched else MIXTURES)[int(random() * 3)]
        choices = len(mixture)
        coming = (4 if batched else 2) + int(random() * 5)
        crowd = 4 if batched else 1
        arrived = 0
        for _ in range((2 if batched else 1) * (12 + int(random() * 36))):
            kind = mixture[int(random() * choices)]
            if kind == "arrive" or len(live) < crowd:
                if arrived < coming:
                    kind = "arrive"
                elif kind == "arrive" or (not live and kind in _OF_REQUESTS):
                    continue
            if kind in _OF_REQUESTS:
                action = Action(kind, live[int(random() * len(live))].number)
                if batched and kind == "step":
                    action = _in_a_queue(world, action.who, random())
            elif kind == "arrive":
                action = _arrival(arrived, random(), random(), random(), together=batched, nested=nested)
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


def _arrival(number: int, who: float, what: float, where: float, *, together: bool, nested: bool) -> Action:
    """`together`: more of them at one worker, and for different keys, so that they share batches.

    `nested`: more of them for different keys, so that they share a part.
    """
    identity = 0 if who < (0.3 if together or nested else 0.7) else int(who * 1000) % len(IDENTITIES)
    asked = 0 if what < 0.8 else int(what * 1000) % len(ASKED)
    return Action("arrive", number, (identity, asked, int((where**3 if together else where) * WORKERS)))


def _in_a_queue(world: World, number: int, chance: float) -> Action:
    """The next step of a request whose calls go through a queue."""
    request = world.requests[number]
    worker = request.worker
    if request.queued is None and type(request.step) not in QUEUED:
        return Action("step", number)
    ready = [
        one.number
        for one in world.live
        if one.worker is worker and one.queued is None and type(one.step) in QUEUED
    ]
    if ready and (chance < _JOIN or worker.queue is None or not worker.queue.in_flight):
        return Action("queue", ready[int(chance * 1000) % len(ready)])
    return Action("perform batch", worker.number, (int(chance * 1000) % 3,))


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
        case (
            "perform batch"
            | "lose batch reply"
            | "lose batch"
            | "repeat batch"
            | "delay batch"
            | "refuse batch"
            | "refuse row"
        ):
            busy = [worker for worker in world.workers if worker.queue and worker.queue.in_flight]
            which = int(other * 1000)
            how: tuple[int, ...] = (which % 3,)
            if kind in ("repeat batch", "refuse batch"):
                how = which % 3, which // 3 % 2
            elif kind == "refuse row":
                how = which % 3, which // 3 % 4
            return Action(kind, busy[int(one * len(busy))].number if busy else 0, how)
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
