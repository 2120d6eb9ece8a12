"""SIGSTOP between any two steps, beyond the lease, then SIGCONT: a zombie can tell no lie and do no harm.

Killing alone would not find a missing fence: whoever is dead writes nothing.  A worker that wakes up after
its lease goes on as if nothing had happened, and that is when every write has to be turned away.
"""

import os
import signal
import time

import pytest

from retrysafe.testing.adapters.client import PATIENCE, Reply, eventually, settled
from retrysafe.testing.adapters.crash import Lease
from retrysafe.testing.adapters.suite import assert_problem, assert_replay, fresh
from tests.faults.conftest import StartTrapped
from tests.faults.trapped import Trapped

LEASE = 1.2

BEFORE_THE_END = [
    "stop after Reserve",
    "stop before Run",
    "stop before Effect",
    "stop after Effect",
    "stop after Run",
    "stop before Finish",
]


@pytest.fixture
def retrying(start_trapped: StartTrapped, kind: str) -> Trapped:
    return start_trapped(kind, workers=3, lease=LEASE, abandoned="retry", max_response=512)


@pytest.fixture
def holding(start_trapped: StartTrapped, kind: str) -> Trapped:
    return start_trapped(kind, workers=3, lease=LEASE, abandoned="hold", max_response=512)


@pytest.mark.parametrize("trap", BEFORE_THE_END)
def test_overtaken(retrying: Trapped, trap: str) -> None:
    """F7, F23: another process takes over; the zombie's own result is fenced, and its client is not told it.

    It gets what its successor stored: the same status and the same bytes.
    """
    assert_overtaken(retrying, trap)


def assert_overtaken(api: Trapped, trap: str) -> None:
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return api.post("/charges", key=key, label=label)

    since = Lease(LEASE)
    with api.frozen("/charges", trap, key=key, label=label) as zombie:
        since.assert_in_flight(send)
        successor = settled(send)
        assert (successor.status, successor.replayed) == (201, False)
        assert_replay(successor, send())
    told = zombie.result(PATIENCE)
    assert_replay(successor, told)
    assert_replay(successor, send())
    assert api.effects(label) <= 2


def test_overtaken_by_one_that_is_not_done(retrying: Trapped) -> None:
    """F7: where its successor has not finished, the zombie's client gets a 409, and not its own result."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return retrying.post("/charges", key=key, label=label)

    trap = "stop before Finish"
    with retrying.frozen("/charges", trap, key=key, label=label) as zombie:
        there = "stop before Effect"
        with retrying.frozen("/charges", there, persistent=True, key=key, label=label) as successor:
            os.kill(retrying.fallen(trap)[-1], signal.SIGCONT)
            told = zombie.result(PATIENCE)
            assert told.status == 409
            assert told.code in ("in-flight", "outcome-unknown")
    answer = successor.result(PATIENCE)
    assert (answer.status, answer.replayed) == (201, False)
    assert_replay(answer, send())
    assert retrying.effects(label) == 2


@pytest.mark.parametrize("trap", BEFORE_THE_END)
def test_held(holding: Trapped, trap: str) -> None:
    """F7, I13: under `hold` nobody overtakes a sleeper: unknown while it sleeps, and when it has woken up
    and finished, its answer is everybody's answer.  The handler ran once."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return holding.post("/charges", key=key, label=label)

    since = Lease(LEASE)
    with holding.frozen("/charges", trap, key=key, label=label) as zombie:
        since.assert_in_flight(send)
        assert_problem(settled(send), 409, "outcome-unknown")
    told = zombie.result(PATIENCE)
    assert (told.status, told.replayed) == (201, False)
    assert_replay(told, send())
    assert holding.effects(label) == 1


@pytest.mark.parametrize("trap", ["stop after Finish", "stop before Send"])
def test_after_the_end(retrying: Trapped, trap: str) -> None:
    """F7: a worker that sleeps on a stored answer keeps nobody waiting, and wakes up to the same answer."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return retrying.post("/charges", key=key, label=label)

    with retrying.frozen("/charges", trap, key=key, label=label) as zombie:
        replay = send()
        assert (replay.status, replay.replayed) == (201, True)
    told = zombie.result(PATIENCE)
    assert told.essence == replay.essence
    assert retrying.effects(label) == 1


@pytest.mark.parametrize("trap", ["stop before Checkpoint", "stop after Checkpoint"])
def test_around_a_checkpoint(retrying: Trapped, trap: str) -> None:
    """F7 for an answer that flows: fenced before its first byte, or never overtaken after it."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return retrying.post("/stream", key=key, label=label, chunks=60)

    since = Lease(LEASE)
    with retrying.frozen("/stream", trap, key=key, label=label, chunks=60) as zombie:
        since.assert_in_flight(send)
        after = settled(send)
    told = zombie.result(PATIENCE)
    if trap == "stop before Checkpoint":
        assert (after.status, after.replayed) == (200, False)
        assert (told.status, told.replayed, told.body) == (200, True, b"")
        assert retrying.effects(label) == 2
    else:
        assert_problem(after, 409, "outcome-unknown")
        assert (told.status, len(told.body.splitlines())) == (200, 60)
        assert retrying.effects(label) == 1
    # Its last byte leaves just before its end is stored.
    replay = eventually(send, lambda answer: answer.status != 409)
    assert (replay.status, replay.header("Idempotency-Body")) == (200, "omitted")


def test_a_release_comes_too_late(retrying: Trapped) -> None:
    """F7: a zombie that wants to free its key cannot free its successor's."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return retrying.post("/notdone", key=key, label=label, times=1)

    with retrying.frozen("/notdone", "stop before Release", key=key, label=label, times=1) as zombie:
        successor = settled(send)
        assert (successor.status, successor.replayed) == (201, False)
    assert zombie.result(PATIENCE).code == "not-done"
    assert_replay(successor, send())
    assert retrying.effects(label) == 1


def test_frozen_for_less_than_a_lease(start_trapped: StartTrapped, kind: str) -> None:
    """F23: a worker that sleeps through a renewal but not through its lease loses nothing."""
    lease = 6.0
    api = start_trapped(kind, workers=2, lease=lease, abandoned="retry")
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return api.post("/charges", key=key, label=label)

    since = Lease(lease)
    with api.frozen("/charges", "stop after Effect", key=key, label=label) as sleeper:
        while since.elapsed < lease / 3 + 0.2:
            since.assert_in_flight(send)
            time.sleep(0.2)
    told = sleeper.result(PATIENCE)
    assert (told.status, told.replayed) == (201, False)
    assert_replay(told, send())
    assert api.effects(label) == 1


def test_a_slow_handler_keeps_its_lease(retrying: Trapped) -> None:
    """F23: the keeper renews, so a handler may run for several leases and nobody takes over."""
    key, label = fresh(), fresh("label")

    def send() -> Reply:
        return retrying.lasting(key=key, label=label, seconds=2.5 * LEASE)

    running = retrying.running(send, label)
    answer = settled(send)
    assert_replay(running.result(PATIENCE), answer)
    assert retrying.effects(label) == 1


def test_frozen_inside_a_commit(start_trapped: StartTrapped) -> None:
    """F8: a worker frozen with SQLite's write lock keeps everybody from writing, but nobody waiting.

    New keys are 503 with `Retry-After` after the store's deadline, replays go on, and when it wakes up its
    commit counts: nobody could overtake it.
    """
    api = start_trapped(workers=3, lease=LEASE, abandoned="retry", max_response=512)
    known, key, label = fresh(), fresh(), fresh("label")
    first = api.post("/charges", key=known, label=label)

    def send() -> Reply:
        return api.post("/charges", key=key, label=label)

    with api.frozen("/charges", "stop before Commit", key=key, label=label) as sleeper:
        began = time.monotonic()
        refused = api.post("/charges", key=fresh(), label=label)
        assert time.monotonic() - began < PATIENCE / 2
        assert_problem(refused, 503, "store-unavailable")
        assert int(refused.header("Retry-After") or 0) >= 1
        assert_replay(first, api.post("/charges", key=known, label=label))
    told = sleeper.result(PATIENCE)
    assert (told.status, told.replayed) == (201, False)
    assert_replay(told, send())
    assert api.effects(label) == 2
