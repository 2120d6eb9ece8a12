"""Processes of the SQLite tests: each function is the whole life of one."""

import os
import signal
import sqlite3
import sys
import time
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Barrier
from unittest.mock import patch

from retrysafe._core.model import Reservation, Reserved
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import ended


def claim_in_rounds(path: str, rounds: int, barrier: Barrier, pipe: Pipe) -> None:
    """Claim one key per round, all processes at the same moment; tell in which rounds it was ours."""
    barrier.wait()
    store = SQLiteStore(path, deadline=20.0)
    mine: list[int] = []
    for round in range(rounds):
        barrier.wait()
        if store.reserve(a_claim(f"round {round}")) == Reserved(1):
            mine.append(round)
    store.close()
    pipe.send(mine)


def freeze_while_writing(path: str) -> None:
    """Begin to write, and be stopped in the middle of it."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA wal_autocheckpoint = 0")
    other.execute("BEGIN IMMEDIATE")
    os.kill(os.getpid(), signal.SIGSTOP)
    other.execute("COMMIT")
    other.close()


def finish_forever(path: str, pipe: Pipe) -> None:
    """Finish keys until killed, and say of each that it was acknowledged."""
    store = SQLiteStore(path, deadline=20.0)
    for n in range(sys.maxsize):
        claim = a_claim(f"{os.getpid()} {n}")
        store.reserve(claim)
        if store.finish(claim, an_outcome(b"x" * 2000)):
            pipe.send_bytes(claim.id)


def look_with_a_wrong_clock(path: str, shift: float, key: str, pipe: Pipe) -> None:
    """Tell what a worker whose wall clock is wrong makes of a record, and whether it could take it over."""
    real = time.time
    with patch("time.time", lambda: real() + shift):
        store = SQLiteStore(path)
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


def count_in_rounds(path: str, rounds: int, barrier: Barrier) -> None:
    """Count one of each verdict per round, as the keeper of a service does, all processes at once."""
    barrier.wait()
    keeper = SQLiteStore(path, deadline=20.0).open_keeper()
    for _ in range(rounds):
        keeper.count(ended({"completed": 1, "replayed": 2}))
    keeper.close()


def take_over_in_rounds(path: str, rounds: int, barrier: Barrier, pipe: Pipe) -> None:
    """Succeed the abandoned attempt of each round; tell with what luck."""
    store = SQLiteStore(path, deadline=20.0)
    answers: list[Reservation] = []
    for round in range(rounds):
        claim = a_claim(f"round {round}")
        found = store.look(claim.id)
        assert found is not None
        barrier.wait()
        answers.append(store.take_over(claim, found.record.token, "in_progress"))
    store.close()
    pipe.send([isinstance(answer, Reserved) for answer in answers])


FORK = """
import os, sys, threading, time
from retrysafe._core.model import Reserved
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import ended

store = SQLiteStore(sys.argv[1], deadline=20.0)
keeper = store.open_keeper()
finished = []
enough = threading.Event()

def work():
    while not enough.is_set():
        claim = a_claim(f"parent {len(finished)}")
        store.reserve(claim)
        keeper.renew([claim])
        assert store.finish(claim, an_outcome())
        finished.append(claim)

worker = threading.Thread(target=work, daemon=True)
worker.start()
while len(finished) < 20:
    time.sleep(0.001)
for child in range(6):
    pid = os.fork()
    if pid == 0:
        # The worker and the writer did not come along; what they used must not be touched.
        claim = a_claim(f"child {child}")
        assert store.reserve(claim) == Reserved(1)
        assert store.finish(claim, an_outcome())
        assert store.look(finished[0].id) is not None
        if child % 2:
            store.close()
        sys.exit(0)  # and not os._exit: every object is finalised, as in a worker that ends well
    assert os.waitpid(pid, 0)[1] == 0
enough.set()
worker.join()
assert all(store.look(claim.id).record.state == "completed" for claim in finished)
assert all(store.look(a_claim(f"child {n}").id).record.state == "completed" for n in range(6))
keeper.close()
store.close()
"""


FORK_LOOP = """
import asyncio, os, sys
from retrysafe._core.model import Found, Reserved
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import ended

store = SQLiteStore(sys.argv[1], deadline=20.0)
finished = []

async def work(name):
    for n in range(30):
        claim = a_claim(f"{name} {n}")
        assert await store.aio.reserve(claim) == Reserved(1)
        assert await store.aio.finish(claim, an_outcome())
        finished.append(claim)

async def child(number):
    # The thread of the parent's loop did not come along, and this loop has another one.
    claim = a_claim(f"child {number}")
    assert await store.aio.reserve(claim) == Reserved(1)
    assert await store.aio.finish(claim, an_outcome())
    assert isinstance(await store.aio.reserve(a_claim(finished[0].key)), Found)

async def parent():
    tasks = [asyncio.ensure_future(work(f"worker {n}")) for n in range(8)]
    children = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0.01)
        if len(children) < 6 and finished:  # most probably while a commit is under way
            pid = os.fork()
            if pid == 0:
                asyncio.run(child(len(children)))
                os._exit(0)  # the parent's loop is left alone: its selector is shared
            children.append(pid)
    await asyncio.gather(*tasks)
    assert len(children) == 6
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    for claim in finished:
        assert (await store.aio.look(claim.id)).record.state == "completed"
    for n in range(6):
        assert (await store.aio.look(a_claim(f"child {n}").id)).record.state == "completed"

asyncio.run(parent())
store.close()
"""
