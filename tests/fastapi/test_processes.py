"""Processes that are killed or frozen between two steps, of endpoints that claim themselves.

The same traps as for the middleware (`tests/faults`): a claim, its endpoint and its end are two halves here,
with the framework in between.
"""

from collections.abc import Iterator

import pytest

from retrysafe.testing.adapters.client import PATIENCE, Reply, settled
from retrysafe.testing.adapters.crash import Lease
from retrysafe.testing.adapters.suite import assert_problem, assert_replay, fresh
from tests.faults.trapped import Trapped

LEASE = 1.2


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trapped]:
    folder = tmp_path_factory.mktemp("trapped")
    found = Trapped.start(folder, "fastapi", workers=3, lease=LEASE, abandoned="retry", max_response=512)
    yield found
    found.end()


@pytest.mark.parametrize(
    ("trap", "effects"),
    [("kill after Reserve", 0), ("kill after Run", 0), ("kill after Effect", 1), ("kill before Finish", 1)],
)
def test_killed(api: Trapped, trap: str, effects: int) -> None:
    """In flight until the lease ends; then taken over, and run again."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return api.post("/charges", key=key, label=label)

    since = Lease(LEASE)
    assert api.killed("/charges", trap, key=key, label=label) is None
    since.assert_in_flight(send)
    assert api.effects(label) == effects
    after = settled(send)
    assert (after.status, after.replayed) == (201, False)
    assert_replay(after, send())
    assert api.effects(label) == effects + 1


@pytest.mark.parametrize(("trap", "replayed"), [("kill before Reserve", False), ("kill after Finish", True)])
def test_killed_outside_of_its_claim(api: Trapped, trap: str, replayed: bool) -> None:
    """Before it nothing was done, after it all is stored: the retry knows at once."""
    key, label = fresh(), fresh("label")
    assert api.killed("/charges", trap, key=key, label=label) is None
    retry = api.post("/charges", key=key, label=label)
    assert (retry.status, retry.replayed, api.effects(label)) == (201, replayed, 1)


def test_killed_when_bytes_have_left(api: Trapped) -> None:
    """What flowed is not run again, under either policy."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return api.post("/stream", key=key, label=label, chunks=60)

    api.killed("/stream", "kill after Checkpoint", key=key, label=label, chunks=60)
    assert_problem(settled(send), 409, "outcome-unknown")
    assert api.effects(label) == 1


@pytest.mark.parametrize("trap", ["stop after Reserve", "stop after Effect", "stop before Finish"])
def test_frozen_and_overtaken(api: Trapped, trap: str) -> None:
    """Beyond its lease another process takes over; it wakes up, and its client gets what that one stored."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return api.post("/charges", key=key, label=label)

    since = Lease(LEASE)
    with api.frozen("/charges", trap, key=key, label=label) as zombie:
        since.assert_in_flight(send)
        successor = settled(send)
        assert (successor.status, successor.replayed) == (201, False)
    assert_replay(successor, zombie.result(PATIENCE))
    assert_replay(successor, send())
