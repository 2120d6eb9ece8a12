"""SIGKILL between any two steps of a request: what a retry is told then, and how often the effect happened.

The traps are those of `launcher.py`.  Where a worker was killed decides what may be known: before its
reservation nothing happened, after its `Finish` everything is stored, and in between nobody knows.
"""

import pytest

from retrysafe.testing.adapters.client import Reply, settled
from retrysafe.testing.adapters.crash import DISCONNECTED, Lease
from retrysafe.testing.adapters.suite import assert_problem, assert_replay, fresh
from tests.faults.conftest import StartTrapped
from tests.faults.trapped import Trapped

LEASE = 1.2

BEFORE_THE_CLAIM = ["kill before Identify", "kill after ReadBody", "kill before Reserve"]

IN_BETWEEN = {
    "kill after Reserve": 0,
    "kill before Run": 0,
    "kill before Effect": 0,
    "kill after Effect": 1,
    "kill after Run": 1,
    "kill before Finish": 1,
}
"""And how many effects had happened."""

AFTER_THE_END = ["kill after Finish", "kill before Send"]


@pytest.fixture(params=["hold", "retry"])
def abandoned(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def api(start_trapped: StartTrapped, kind: str, abandoned: str) -> Trapped:
    return start_trapped(kind, workers=3, lease=LEASE, abandoned=abandoned, max_response=512)


@pytest.mark.parametrize("trap", BEFORE_THE_CLAIM)
def test_before_the_claim(api: Trapped, trap: str) -> None:
    """F1: nothing is stored, and the retry runs normally, at once."""
    key, label = fresh(), fresh("label")
    assert api.killed("/charges", trap, key=key, label=label) is None
    answer = api.post("/charges", key=key, label=label)
    assert (answer.status, answer.replayed) == (201, False)
    assert api.effects(label) == 1


@pytest.mark.parametrize(("trap", "effects"), IN_BETWEEN.items(), ids=IN_BETWEEN)
def test_in_between(api: Trapped, abandoned: str, trap: str, effects: int) -> None:
    """F2, F3, F4: in flight until the lease ends; then unknown, or taken over and run again."""
    assert_in_between(api, abandoned, trap, effects)


def assert_in_between(api: Trapped, abandoned: str, trap: str, effects: int) -> None:
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return api.post("/charges", key=key, label=label)

    since = Lease(LEASE)
    assert api.killed("/charges", trap, key=key, label=label) is None
    since.assert_in_flight(send)
    assert api.effects(label) == effects
    after = settled(send)
    if abandoned == "hold":
        assert_problem(after, 409, "outcome-unknown")
        assert after.header("x-should-retry") == "false"
        assert send().code == "outcome-unknown"
        assert api.effects(label) == effects
    else:
        assert (after.status, after.replayed) == (201, False)
        assert_replay(after, send())
        assert api.effects(label) == effects + 1


@pytest.mark.parametrize("trap", AFTER_THE_END)
def test_after_the_end(api: Trapped, trap: str) -> None:
    """F5: the answer was stored but never sent; every retry gets the very same bytes, and nothing runs."""
    key, label = fresh(), fresh("label")
    assert api.killed("/charges", trap, key=key, label=label) is None
    first, second = (api.post("/charges", key=key, label=label) for _ in range(2))
    assert (first.status, first.replayed) == (201, True)
    assert (second.status, second.replayed) == (201, True)
    assert first.body == second.body
    for name in ("Location", "ETag", "Content-Type", "Original-Request-Id"):
        assert first.header(name) == second.header(name) is not None
    assert first.headers("Link") == second.headers("Link")
    assert first.document["label"] == label
    assert api.effects(label) == 1


@pytest.mark.parametrize("trap", ["kill before Checkpoint", "kill after Checkpoint", "kill before Finish"])
def test_around_a_checkpoint(api: Trapped, abandoned: str, trap: str) -> None:
    """F2-F4 for an answer that flows: once it may have begun to leave, nobody runs it again."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return api.post("/stream", key=key, label=label, chunks=60)

    since = Lease(LEASE)
    api.killed("/stream", trap, key=key, label=label, chunks=60)
    since.assert_in_flight(send)
    after = settled(send)
    if trap == "kill before Checkpoint" and abandoned == "retry":
        assert (after.status, after.replayed) == (200, False)
        assert api.effects(label) == 2
    else:
        assert_problem(after, 409, "outcome-unknown")
        assert api.effects(label) == 1


def test_the_end_of_a_flowing_answer(api: Trapped) -> None:
    """I6: whoever has heard all of an answer is never told that it is in flight or unknown.

    So the last byte must not leave before the end is stored: a worker that dies in between leaves its client
    with half an answer, and not with a whole one that nobody knows of.
    """
    key, label = fresh(), fresh("label")
    heard = api.killed("/stream", "kill before Finish", key=key, label=label, chunks=60)
    assert heard is None


def test_a_stored_tombstone(api: Trapped) -> None:
    """F5 for an answer that flowed: its tombstone is there, and nothing runs again."""
    key, label = fresh(), fresh("label")
    api.killed("/stream", "kill after Finish", key=key, label=label, chunks=60)
    answer = api.post("/stream", key=key, label=label, chunks=60)
    assert (answer.status, answer.replayed, answer.body) == (200, True, b"")
    assert answer.header("Idempotency-Body") == "omitted"
    assert api.effects(label) == 1


@pytest.mark.parametrize("trap", ["kill before Release", "kill after Release"])
def test_around_a_release(api: Trapped, abandoned: str, trap: str) -> None:
    """F4 where nothing happened: released, the key is free; not yet, it is as for any other death."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return api.post("/notdone", key=key, label=label, times=1)

    since = Lease(LEASE)
    api.killed("/notdone", trap, key=key, label=label, times=1)
    if trap == "kill before Release":
        since.assert_in_flight(send)
        after = settled(send)
        if abandoned == "hold":
            assert_problem(after, 409, "outcome-unknown")
            assert api.effects(label) == 0
            return
    else:
        after = send()
    assert (after.status, after.replayed) == (201, False)
    assert api.effects(label) == 1


@pytest.mark.parametrize("trap", ["kill before TakeOver", "kill after TakeOver"])
def test_killed_twice(start_trapped: StartTrapped, trap: str) -> None:
    """F2 for the successor: one that dies while it takes over is taken over itself, and one run remains."""
    api = start_trapped(workers=3, lease=LEASE, abandoned="retry", max_response=512)
    key, label = fresh(), fresh("label")
    api.killed("/charges", "kill before Effect", key=key, label=label)

    def send() -> Reply:
        return api.post("/charges", key=key, label=label)

    abandoned_at_last(api, key, label, trap)
    after = settled(send)
    assert (after.status, after.replayed) == (201, False)
    assert_replay(after, send())
    assert api.effects(label) == 1


def abandoned_at_last(api: Trapped, key: str, label: str, trap: str) -> None:
    """Retry with a trap at the take-over, until the lease has ended and there is one."""

    def refused() -> Reply:
        answer = api.post("/charges", key=key, label=label, fields=[("Trap", trap)])
        assert answer.code == "in-flight", answer
        return answer

    with pytest.raises(DISCONNECTED):
        settled(refused)
    api.fallen(trap)
