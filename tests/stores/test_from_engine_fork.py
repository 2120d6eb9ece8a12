"""Stores on SQLAlchemy's connections in a process that forks."""

import subprocess
import sys

import pytest

FORK = """
import asyncio, os, sys, threading, time
from retrysafe import stores
from retrysafe._core.model import Reserved
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.engines import engine_for

store = stores.from_engine(engine_for(sys.argv[1], sys.argv[2]), deadline=20.0)
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

async def work_async():
    n = 0
    while not enough.is_set():
        claim = a_claim(f"coroutine {(n := n + 1)}")
        assert await store.aio.reserve(claim) == Reserved(1)
        assert await store.aio.finish(claim, an_outcome())
        finished.append(claim)

workers = [threading.Thread(target=work), threading.Thread(target=lambda: asyncio.run(work_async()))]
for worker in workers:
    worker.daemon = True
    worker.start()
while len(finished) < 20:
    time.sleep(0.001)
for child in range(2):
    pid = os.fork()
    if pid == 0:
        # The workers and their threads did not come along; what they used must not be touched.
        claim, other = a_claim(f"child {child}"), a_claim(f"child coroutine {child}")
        assert store.reserve(claim) == Reserved(1)
        assert asyncio.run(store.aio.reserve(other)) == Reserved(1)
        assert keeper.renew([claim, other]) == [True, True]
        assert store.finish(claim, an_outcome())
        assert asyncio.run(store.aio.finish(other, an_outcome()))
        assert store.look(finished[0].id) is not None
        if child % 2:
            keeper.close()
            store.close()
        sys.exit(0)  # and not os._exit: every object is finalised, as in a worker that ends well
    assert os.waitpid(pid, 0)[1] == 0
enough.set()
for worker in workers:
    worker.join()
assert all(store.look(claim.id).record.state == "completed" for claim in finished[-50:])
keeper.close()
store.close()
"""

FORK_WHILE_CONNECTING = """
import os, sys, threading
from sqlalchemy import NullPool, event
from retrysafe import stores
from retrysafe._core.model import Reserved
from retrysafe.testing.stores import a_claim
from tests.stores.engines import engine_for

parent = os.getpid()
connecting, forked = threading.Event(), threading.Event()

@event.listens_for(NullPool, "connect")
def hold(*_):
    # SQLAlchemy has taken a lock of the engine for the time of the first connection.
    if os.getpid() == parent:
        connecting.set()
        forked.wait(60)

store = stores.from_engine(engine_for(sys.argv[1], sys.argv[2]), deadline=20.0)
keeper = store.open_keeper()
claim = a_claim("child")
worker = threading.Thread(target=keeper.renew, args=([claim],))
worker.start()
assert connecting.wait(60)
if (pid := os.fork()) == 0:
    assert store.reserve(claim) == Reserved(1)
    assert keeper.renew([claim]) == [True]
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
forked.set()
worker.join()
keeper.close()
store.close()
"""


def run(script: str, database: str, driver: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, database, driver],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("driver", ["asyncpg", "pg8000"])
def test_a_fork_begins_anew(database: str, driver: str) -> None:
    """Children of a process whose threads, loops and keeper are busy work at once, and harm nothing."""
    run(FORK, database, driver)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("driver", ["asyncpg", "pg8000"])
def test_a_child_waits_for_no_connection_of_its_parent(database: str, driver: str) -> None:
    """A thread that was connecting at the fork does not come along; its locks are not waited for."""
    run(FORK_WHILE_CONNECTING, database, driver)
