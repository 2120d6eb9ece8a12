"""Calls in batches: what happens to a batch happens to all of its callers, and to none of the others."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

import pytest

from retrysafe.stores.queue import Call, Outcome
from retrysafe.testing.simulate import Setting, Stage, batches, simulate
from retrysafe.testing.simulate.actions import Action, Kind, perform
from retrysafe.testing.simulate.batches import Apply
from retrysafe.testing.simulate.recovery import expire, recover
from retrysafe.testing.simulate.story import trace
from retrysafe.testing.simulate.world import World

PREPARED = (
    *(Action("arrive", number, (number, 0, 0)) for number in range(3)),
    *(Action("queue", number) for number in range(3)),
    Action("perform batch", 0, (0,)),
)
"""The first call is performed alone; the other two, for other keys, are in flight together."""


def prepared() -> World:
    world = World(Stage(Setting()))
    for action in PREPARED:
        assert perform(world, action)
    return world


def steps(world: World) -> list[str]:
    return [
        "waits" if request.queued is not None else type(request.step).__name__
        for request in world.requests.values()
    ]


def test_a_batch_is_performed() -> None:
    with closing(prepared()) as world:
        queue = world.workers[0].queue
        assert queue is not None
        assert [len(exchange.calls) for exchange in queue.in_flight] == [2]
        assert steps(world) == ["Run", "waits", "waits"]
        assert perform(world, Action("perform batch", 0, (0,)))
        assert steps(world) == ["Run", "Run", "Run"]


@pytest.mark.parametrize(
    ("kind", "how", "held", "then"),
    [
        ("lose batch reply", (), 3, ["Run", "Reserve", "Reserve"]),
        ("lose batch", (), 1, ["Run", "Reserve", "Reserve"]),
        ("delay batch", (), 1, ["Run", "Reserve", "Reserve"]),
        ("repeat batch", (1,), 3, ["Run", "waits", "waits"]),
        ("repeat batch", (0,), 1, ["Run", "waits", "waits"]),
        ("refuse batch", (1,), 1, ["Run", "waits", "waits"]),
        ("refuse row", (0,), 2, None),
    ],
)
def test_what_becomes_of_a_batch_concerns_all_its_callers(
    kind: Kind, how: tuple[int, ...], held: int, then: list[str] | None
) -> None:
    """How many keys are held after it, and what its callers do; faults stop, and every key is served."""
    with closing(prepared()) as world:
        assert perform(world, Action(kind, 0, (0, *how)))
        found = [world.store.look(request.claim.id) for request in world.requests.values()]
        assert sum(one is not None for one in found) == held
        assert then is None or steps(world) == then
        if kind == "refuse row":
            assert sorted(steps(world)) == ["Run", "Run", "waits"]
        recover(world)
        expire(world)


def test_a_crash_loses_what_is_in_flight_or_not() -> None:
    for action, held in ((Action("crash", 0), 1), (Action("crash after", 1), 3)):
        with closing(prepared()) as world:
            assert perform(world, action)
            assert not world.live
            claims = [request.claim for request in world.requests.values()]
            assert sum(world.store.look(claim.id) is not None for claim in claims) == held


def test_a_cancelled_caller_leaves_its_call_in_the_batch() -> None:
    with closing(prepared()) as world:
        cancelled = world.requests[1]
        assert perform(world, Action("cancel", 1))
        assert cancelled.flow is None
        assert perform(world, Action("perform batch", 0, (0,)))
        assert world.store.look(cancelled.claim.id) is not None, "it was sent, so it is performed"
        assert steps(world)[2] == "Run"
        recover(world)
        assert world.store.look(cancelled.claim.id) is not None, "served again, and not held by the first"


def test_equal_keys_are_never_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any schedule; and there are batches of several calls."""
    sizes: list[int] = []
    real = batches.perform

    def noted(calls: Sequence[Call], apply: Apply) -> list[Outcome]:
        ids = [queued.request.claim.id for queued, _ in map(batches.parts, calls)]
        assert ids == sorted(set(ids))
        sizes.append(len(ids))
        return real(calls, apply)

    monkeypatch.setattr(batches, "perform", noted)
    simulate(schedules=1_000)
    assert sum(size > 1 for size in sizes) > 50


def test_a_story_says_who_was_in_a_batch() -> None:
    told = trace(Stage(Setting()), [*PREPARED, Action("lose batch reply", 0, (0,))]).text
    assert "request 1, Reserve: it goes to the queue of worker 0" in told
    assert "its reply is lost with the connection (Reserve of request " in told
    assert "No promise is broken." in told


def test_inside_an_event_loop() -> None:
    """A test that is a coroutine may simulate, too."""

    async def run() -> None:
        simulate(schedules=50)
        await asyncio.sleep(0)

    asyncio.run(run())
