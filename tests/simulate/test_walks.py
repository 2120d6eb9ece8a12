"""Random schedules: none breaks a promise, and not because nothing happened in them."""

from collections import Counter

import pytest

from retrysafe.testing.simulate import SETTINGS, Simulation, simulate
from retrysafe.testing.simulate.actions import MEANING
from retrysafe.testing.simulate.sqlite import emptied
from retrysafe.testing.simulate.walk import Walk

SCHEDULES = 48_000
ON_SQLITE = 2_000
CHUNKS = 8
ALWAYS = 1
"""Chunks that `make test` walks: everything that can happen does in each, and the others are more of it."""

VERDICTS = {
    "completed", "draining", "failed", "in-flight", "key-reused", "outcome-unknown", "previously-failed",
    "released", "replay-forbidden", "replayed", "store-unavailable", "unprotected", "unstored",
}  # fmt: skip


@pytest.mark.parametrize(
    "chunk",
    [pytest.param(chunk, marks=() if chunk < ALWAYS else pytest.mark.full) for chunk in range(CHUNKS)],
)
def test_schedules_on_the_model(chunk: int) -> None:
    """I1 to I16 and I22, by seed; what clients saw in a part of them is checked for being linearizable."""
    size = SCHEDULES // CHUNKS
    seen = simulate(schedules=size, seed=chunk * size)
    faults, verdicts = Counter[str](), Counter[str]()
    for one in seen.values():
        faults += one.faults
        verdicts += one.verdicts
    assert sum(one.schedules for one in seen.values()) == size
    assert all(one.schedules >= size // len(SETTINGS) for one in seen.values())
    # Not one of the things that can happen is missing, nor one of the things that can be said.
    assert set(faults) == set(MEANING)
    assert set(verdicts) == VERDICTS
    assert sum(one.histories for one in seen.values()) > size // 8


@pytest.mark.parametrize("chunk", [0, pytest.param(1, marks=pytest.mark.full)])
def test_schedules_on_sqlite(chunk: int) -> None:
    """The same with the real store: its file, its statements, and transactions that carry effects."""
    size = ON_SQLITE // 2
    seen = simulate(emptied, schedules=size, seed=1_000_000 + chunk * size)
    assert sum(one.schedules for one in seen.values()) == size


def test_together_they_are_fifty_thousand() -> None:
    assert SCHEDULES + ON_SQLITE == 50_000


@pytest.mark.parametrize("seed", range(len(SETTINGS)))
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    """On the model and on SQLite alike: what happens does not depend on anything but the seed."""
    runs: list[tuple[object, object]] = []
    for store in (None, None, emptied):
        walk = Walk(Simulation(store).stage(seed))
        walk.go(seed)
        received = [
            (request.number, request.result.verdict if request.result else None)
            for request in walk.world.requests.values()
        ]
        runs.append((walk.taken, received))
    assert runs[0] == runs[1] == runs[2]


def test_other_seeds_give_other_runs() -> None:
    stage = Simulation().stage(0)
    schedules: set[object] = set()
    for seed in range(200):
        walk = Walk(stage)
        walk.go(seed)
        schedules.add(tuple(walk.taken))
    assert len(schedules) > 195
