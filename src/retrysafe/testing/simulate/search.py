"""Exhaustive search: every schedule within a bound, over the same steps as the random walks.

Generators cannot be copied, so a branch is played again from the start.  A state that was seen before is not
followed twice: a flow is a function of the replies that it received, so the same past has the same future.
A store is compared by what `look` returns for the key.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from retrysafe._core.steps import Commit, Finish, Release, Reserve, Step
from retrysafe.testing.simulate import recovery
from retrysafe.testing.simulate.actions import Action, Kind, perform
from retrysafe.testing.simulate.batches import QUEUED
from retrysafe.testing.simulate.promises import Violation, as_violation
from retrysafe.testing.simulate.setting import LEASE
from retrysafe.testing.simulate.stage import ASKED, IDENTITIES, Stage
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
    batches: bool = False
    """Whether all attempts are at one worker, and their calls go through its queue."""
    repeated_batches: int = 0
    """How often a batch that was performed is sent again."""
    refused_batches: int = 0
    """How often a batch is refused as a whole."""
    asked: tuple[int, ...] = (0,)
    """What each attempt asks for; attempts beyond the last one ask for the same as it."""
    identities: tuple[int, ...] = (0,)
    """Whose key each attempt has, in the same way."""

    def check(self) -> None:
        """Raise `ValueError` for a bound that is not valid."""
        if self.attempts < 1:
            raise ValueError(f"Bound(attempts={self.attempts}): attempts must be 1 or more")
        for name, count in self._asdict().items():
            if isinstance(count, int) and count < 0:
                raise ValueError(f"Bound({name}={count}): {name} must be 0 or more")
        for name, numbers, known in (
            ("asked", self.asked, ASKED),
            ("identities", self.identities, IDENTITIES),
        ):
            if not numbers or not set(numbers) <= set(range(len(known))):
                raise ValueError(
                    f"Bound({name}={numbers}): expected at least one number, each from 0 to "
                    f"{len(known) - 1}, which is an entry of retrysafe.testing.simulate.stage.{name.upper()}"
                )
        if not self.batches and (self.repeated_batches or self.refused_batches):
            raise ValueError("Bound: without batches=True no batch can be repeated or refused")

    def __str__(self) -> str:
        counts = {
            name.replace("_", " "): count
            for name, count in self._asdict().items()
            if isinstance(count, int) and name != "batches"
        }
        listed = ", ".join(
            f"{count} {_ONE.get(name, name.removesuffix('s')) if count == 1 else name}"
            for name, count in counts.items()
            if count
        )
        return f"{listed}, in batches" if self.batches else listed


_ONE = {
    "crashes": "crash", "lost replies": "lost reply", "repeated batches": "repeated batch",
    "refused batches": "refused batch",
}  # fmt: skip


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
    """Follow every schedule to its end, and check that every key recovers.  Raises `Refuted`, or `ValueError`
    for a bound that is not valid.

    `at_the_end` is called with each different world that a schedule ends in, before it recovers.
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
                "the setting's store returned the same object for two worlds, and a search uses many worlds "
                "at once: return a new store each time"
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
            except Exception as error:  # noqa: BLE001 - a store may raise anything, and its schedule is reported
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
        """Everything that may happen next.  Equal requests arrive in the order of their numbers."""
        used: dict[Kind, int] = {kind: sum(action.kind == kind for action in path) for kind in _LIMITED}
        bound = self._bound
        found: list[list[Action]] = []
        for request in world.live:
            if world.waits_for(request) is not None:
                continue
            if request.queued is None:
                found += self._next_actions(request.number, request.worker.number, type(request.step), used)
            elif used["cancel"] < bound.cancellations:
                found.append([Action("cancel", request.number)])
        found += self._next_of_batches(world, used)
        coming: set[tuple[int, int]] = set()
        for number in range(bound.attempts):
            asked = bound.asked[min(number, len(bound.asked) - 1)]
            identity = bound.identities[min(number, len(bound.identities) - 1)]
            if number not in world.requests and (identity, asked) not in coming:
                coming.add((identity, asked))
                worker = 0 if bound.batches else number % WORKERS
                arrival = Action("arrive", number, (identity, asked, worker))
                found += [[arrival, *then] for then in self._next_actions(number, worker, Reserve, used)]
        if not found:
            return found
        running = [
            key
            for key in world.keys.values()
            if key.standing == "running" and not key.lapsed(world.clock.now)
        ]
        if running and used["elapse"] < bound.lapses:
            found.append([Action("elapse", 0, (LEASE + 1,))])
        if running and used["lose lease"] < bound.lost_leases and running[0].until is not None:
            found.append([Action("lose lease", running[0].identity)])
        return found

    def _next_actions(
        self, who: int, worker: int, step: type[Step | None], used: Mapping[Kind, int]
    ) -> Iterator[list[Action]]:
        """What may happen to one request that is about to make a step."""
        bound = self._bound
        if bound.batches and step in QUEUED:
            # What may happen to it is what happens to its batch.
            yield [Action("queue", who)]
            return
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

    def _next_of_batches(self, world: World, used: Mapping[Kind, int]) -> Iterator[list[Action]]:
        """What may happen to that which queues have in flight."""
        bound = self._bound
        for worker in world.workers:
            in_flight = worker.queue.in_flight if worker.queue is not None else []
            for number, exchange in enumerate(in_flight):
                yield [Action("perform batch", worker.number, (number,))]
                if used["crash"] + used["crash after"] < bound.crashes:
                    yield [Action("crash", worker.number)]
                    waiting = [one.request for one in exchange.queued() if one.request.queued is one]
                    if waiting:
                        yield [Action("crash after", waiting[0].number)]
                if used["lose reply"] + used["lose batch reply"] < bound.lost_replies:
                    yield [Action("lose batch reply", worker.number, (number,))]
                if used["lose request"] + used["lose batch"] < bound.lost_requests:
                    yield [Action("lose batch", worker.number, (number,))]
                if used["repeat batch"] < bound.repeated_batches:
                    yield [Action("repeat batch", worker.number, (number, 1))]
                if used["refuse batch"] < bound.refused_batches:
                    yield [Action("refuse batch", worker.number, (number, 1))]


_LIMITED: tuple[Kind, ...] = (
    "crash", "crash after", "lose reply", "lose request", "cancel", "cancel after", "elapse", "lose lease",
    "lose batch reply", "lose batch", "repeat batch", "refuse batch",
)  # fmt: skip


def _ids(world: World) -> Iterator[bytes]:
    for request in world.requests.values():
        yield request.claim.id
        if request.part is not None:
            yield request.part.claim.id


def _state(world: World, path: list[Action]) -> object:
    """All that the next actions depend on, or that it follows from."""
    now = world.clock.now
    return (
        now,
        tuple(sorted(action.kind for action in path if action.kind in _LIMITED)),
        tuple([key.snapshot() for key in world.keys.values()]),
        tuple([world.store.look(id) for id in dict.fromkeys(_ids(world))]),
        tuple(
            [
                (
                    request.number,
                    request.digest,
                    request.flow is None,
                    request.settled_window,
                    request.window,
                    request.cancelled,
                    request.stranded,
                    request.within,
                )
                for request in sorted(world.requests.values(), key=lambda request: request.number)
            ]
        ),
        tuple(
            [
                (
                    tuple([(token, held[1].lease_ends) for token, held in worker.held.items()]),
                    tuple([request.number for request in worker.forgotten]),
                    () if worker.queue is None else tuple(worker.queue.history),
                )
                for worker in world.workers
            ]
        ),
    )
