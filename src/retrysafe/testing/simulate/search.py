"""Exhaustive search: every schedule within a bound, over the same steps as the random walks.

Generators cannot be copied, so a branch is played again from the start.  A state that was seen before is not
followed twice: a flow is a function of what it was answered, so the same past lies behind the same future.
A store is compared by what it says of the key.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from retrysafe._core.steps import Commit, Finish, Release, Reserve, Step
from retrysafe.testing.simulate import recovery
from retrysafe.testing.simulate.actions import Action, Kind, perform
from retrysafe.testing.simulate.promises import Violation, as_violation
from retrysafe.testing.simulate.setting import LEASE
from retrysafe.testing.simulate.stage import ASKED, Stage
from retrysafe.testing.simulate.world import STORE_STEPS, WORKERS, World, quiet


class Bound(NamedTuple):
    """How much may happen in one schedule, at most."""

    attempts: int = 3
    crashes: int = 1
    lost_replies: int = 1
    lapses: int = 1
    """How often all leases may end."""
    lost_requests: int = 0
    cancellations: int = 0
    lost_leases: int = 0
    """How often a running record's lease may be lost in the store."""
    asked: tuple[int, ...] = (0,)
    """What the attempts ask for, each in its turn; the last one counts for those that follow."""

    def check(self) -> None:
        """Raise `ValueError` for a bound within which there is nothing to search, or nothing sensible."""
        if self.attempts < 1:
            raise ValueError(f"Bound(attempts={self.attempts}) leaves nothing to search: 1 or more")
        for name, count in self._asdict().items():
            if name != "asked" and count < 0:
                raise ValueError(f"Bound({name}={count}): a number of times, 0 or more")
        if not self.asked or not set(self.asked) <= set(range(len(ASKED))):
            raise ValueError(
                f"Bound(asked={self.asked}): at least one number from 0 to {len(ASKED) - 1}, "
                "each of which stands for something to ask for"
            )

    def __str__(self) -> str:
        counts = {name.replace("_", " "): count for name, count in self._asdict().items() if name != "asked"}
        return ", ".join(
            f"{count} {_ONE.get(name, name.removesuffix('s')) if count == 1 else name}"
            for name, count in counts.items()
            if count
        )


_ONE = {"crashes": "crash", "lost replies": "lost reply"}


class Found(NamedTuple):
    """How far a search went."""

    schedules: int
    states: int


class Refuted(AssertionError):
    """A schedule breaks a promise."""

    def __init__(self, violation: Violation, schedule: list[Action]) -> None:
        super().__init__(str(violation))
        self.violation = violation
        self.schedule = schedule


def search(stage: Stage, bound: Bound, at_the_end: Callable[[World], None] = lambda _: None) -> Found:
    """Follow every schedule to its end, and see that everything recovers.  Raises `Refuted`, or `ValueError`
    for a bound that makes no sense.

    `at_the_end` is shown each different world that a schedule ends in, before it recovers.
    """
    bound.check()
    with quiet():
        return _Search(stage, bound, at_the_end).run()


class _Search:
    def __init__(self, stage: Stage, bound: Bound, at_the_end: Callable[[World], None]) -> None:
        self._stage = stage
        self._bound = bound
        self._at_the_end = at_the_end
        self._known: dict[object, int] = {}
        self._open: set[World] = set()

    def run(self) -> Found:
        try:
            return Found(self._follow([], self._begin([])), len(self._known))
        finally:
            while self._open:
                self._close(next(iter(self._open)))

    def _close(self, world: World) -> None:
        self._open.remove(world)
        world.close()

    def _begin(self, path: list[Action]) -> World:
        world = World(self._stage)
        if any(other.store is world.store for other in self._open):
            raise ValueError(
                "the setting's store gave the same object to two worlds, and a search goes on in many at "
                "once: let it make another one each time"
            )
        self._open.add(world)
        world.remembers = True
        for action in path:
            perform(world, action)
        return world

    def _follow(self, path: list[Action], world: World) -> int:
        """How many schedules begin like this."""
        state = _state(world, path)
        known = self._known.get(state)
        if known is not None:
            self._close(world)
            return known
        choices = self._choices(world, path)
        if not choices:
            self._end(world, path)
            self._close(world)
            self._known[state] = 1
            return 1
        schedules = 0
        for number, choice in enumerate(choices):
            longer = [*path, *choice]
            there = world if number == len(choices) - 1 else self._begin(path)
            try:
                for action in choice:
                    perform(there, action)
            except Exception as error:  # noqa: BLE001 - a store may raise anything, and its schedule is wanted
                violation = as_violation(error)
                raise Refuted(violation, longer) from violation.__cause__
            schedules += self._follow(longer, there)
        self._known[state] = schedules
        return schedules

    def _end(self, world: World, path: list[Action]) -> None:
        self._at_the_end(world)
        try:
            recovery.recover(world)
            recovery.expire(world)
        except Exception as error:  # noqa: BLE001 - the same
            violation = as_violation(error)
            raise Refuted(violation, path) from violation.__cause__

    def _choices(self, world: World, path: list[Action]) -> list[list[Action]]:
        """Everything that may happen next.  Requests that are alike come in the order of their numbers."""
        used: dict[Kind, int] = {kind: sum(action.kind == kind for action in path) for kind in _LIMITED}
        bound = self._bound
        found: list[list[Action]] = []
        for visit in world.live:
            found += self._befalls(visit.number, visit.worker.number, type(visit.step), used)
        coming: set[int] = set()
        for number in range(bound.attempts):
            asked = bound.asked[min(number, len(bound.asked) - 1)]
            if number not in world.visits and asked not in coming:
                coming.add(asked)
                worker = number % WORKERS
                arrival = Action("arrive", number, (0, asked, worker))
                found += [[arrival, *then] for then in self._befalls(number, worker, Reserve, used)]
        if not found:
            return found
        running = [
            account
            for account in world.accounts.values()
            if account.standing == "running" and not account.lapsed(world.clock.now)
        ]
        if running and used["elapse"] < bound.lapses:
            found.append([Action("elapse", 0, (LEASE + 1,))])
        if running and used["lose lease"] < bound.lost_leases and running[0].until is not None:
            found.append([Action("lose lease", running[0].identity)])
        return found

    def _befalls(
        self, who: int, worker: int, step: type[Step | None], used: Mapping[Kind, int]
    ) -> Iterator[list[Action]]:
        """What may become of one request that is about to make a step."""
        bound = self._bound
        yield [Action("step", who)]
        if used["crash"] + used["crash after"] < bound.crashes:
            yield [Action("crash", worker)]
            if step in (Finish, Commit, Release):
                # Of other steps it is the same as a crash before the next one.
                yield [Action("crash after", who)]
        if step in STORE_STEPS:
            if used["lose reply"] < bound.lost_replies:
                yield [Action("lose reply", who)]
            if used["lose request"] < bound.lost_requests:
                yield [Action("lose request", who)]
        if used["cancel"] + used["cancel after"] < bound.cancellations:
            yield [Action("cancel", who)]
            yield [Action("cancel after", who)]


_LIMITED: tuple[Kind, ...] = (
    "crash", "crash after", "lose reply", "lose request", "cancel", "cancel after", "elapse", "lose lease",
)  # fmt: skip


def _state(world: World, path: list[Action]) -> object:
    """All that what comes next depends on, or what that follows from."""
    now = world.clock.now
    return (
        now,
        tuple(sorted(action.kind for action in path if action.kind in _LIMITED)),
        tuple([account.state() for account in world.accounts.values()]),
        tuple([world.store.look(visit.claim.id) for visit in world.visits.values()][:1]),
        tuple(
            [
                (
                    visit.number,
                    visit.heard,
                    visit.flow is None,
                    visit.late,
                    visit.window,
                    visit.cancelled,
                    visit.stranded,
                )
                for visit in sorted(world.visits.values(), key=lambda visit: visit.number)
            ]
        ),
        tuple(
            [
                (
                    tuple([(token, held[1].lease_ends) for token, held in worker.held.items()]),
                    tuple([visit.number for visit in worker.forgotten]),
                )
                for worker in world.workers
            ]
        ),
    )
