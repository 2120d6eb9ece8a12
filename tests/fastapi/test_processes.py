"""Processes that are killed or frozen between two steps, of endpoints that claim themselves.

The same traps as for the middleware (`tests/faults`): a claim, its endpoint and its end are two halves here,
with the framework in between.
"""

from collections.abc import Iterator

import pytest

from retrysafe.testing.adapters.client import Reply, settled
from retrysafe.testing.adapters.suite import assert_problem, fresh
from tests.faults.test_freeze import assert_overtaken
from tests.faults.test_kill import LEASE, assert_in_between
from tests.faults.trapped import Trapped


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
    assert_in_between(api, "retry", trap, effects)


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
    assert_overtaken(api, trap)
