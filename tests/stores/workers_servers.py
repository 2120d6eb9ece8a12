"""Processes of the tests of stores on servers: each function is the whole life of one."""

import time
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Barrier
from unittest.mock import patch

from retrysafe import stores
from retrysafe._core.model import Reserved
from retrysafe.testing.stores import a_claim
from retrysafe.testing.stores.harness import ended
from tests.stores.rows import PATIENT


def claim_in_rounds(url: str, rounds: int, barrier: Barrier, pipe: Pipe) -> None:
    """Claim one key per round, all processes at the same moment; tell in which rounds it was ours."""
    barrier.wait()
    store = stores.open(url, deadline=PATIENT)
    mine: list[int] = []
    for round in range(rounds):
        barrier.wait()
        if store.reserve(a_claim(f"round {round}")) == Reserved(1):
            mine.append(round)
    store.close()
    pipe.send(mine)


def look_with_a_wrong_clock(url: str, shift: float, key: str, pipe: Pipe) -> None:
    """Tell what a worker whose clocks are wrong makes of a record, and whether it could take it over."""
    real = time.time
    with patch("time.time", lambda: real() + shift):
        store = stores.open(url, deadline=PATIENT)
        claim = a_claim(key)
        found = store.look(claim.id)
        assert found is not None
        taken = store.take_over(claim, found.record.token, "in_progress") == Reserved(2)
        mine = a_claim(f"{key} by {shift}")
        store.reserve(mine)
        own = store.look(mine.id)
        assert own is not None
        store.close()
    pipe.send((found.now, taken, own.record.created_at))


def tally_in_rounds(url: str, rounds: int, barrier: Barrier) -> None:
    """Count one of each verdict per round, as the keeper of a service does, all processes at once."""
    barrier.wait()
    keeper = stores.open(url, deadline=PATIENT).open_keeper()
    for _ in range(rounds):
        keeper.count(ended({"replayed": 2, "completed": 1}))
    keeper.close()
