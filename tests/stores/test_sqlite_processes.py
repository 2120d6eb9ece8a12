"""Several processes on one SQLite file: races, forks, frozen and killed writers, wrong clocks."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest

from retrysafe._core.model import Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.admin import Note
from retrysafe.stores.sql.sqlite import SQLiteStore, filelock
from retrysafe.stores.sql.sqlite.connection import Connection
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import the_record
from tests.stores import workers

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals"),
    # To fork a process that has threads is just what is tested.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A file that is sound when the test is over."""
    path = tmp_path / "keys.db"
    yield path
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_one_of_several_processes_gets_the_key(path: Path, method: str) -> None:
    """Fifty rounds, four processes that also make the file together: each key has exactly one holder."""
    context: BaseContext = multiprocessing.get_context(method)
    rounds, barrier = 50, context.Barrier(4)
    pipes, processes = [], []
    for _ in range(4):
        ours, theirs = context.Pipe(duplex=False)
        arguments = (str(path), rounds, barrier, theirs)
        processes.append(context.Process(target=workers.claim_in_rounds, args=arguments))  # type: ignore[attr-defined]
        pipes.append(ours)
    for process in processes:
        process.start()
    mine = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    assert sorted(round for rounds in mine for round in rounds) == list(range(rounds))


def test_a_fork_begins_anew(path: Path) -> None:
    """Children of a process whose writer and keeper are busy work at once, end well, and harm nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", workers.FORK, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_of_a_busy_event_loop(path: Path) -> None:
    """It waits for the commit that is under way; parent and children go on, each with a thread of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", workers.FORK_LOOP, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_of_a_stuck_parent_refuses(path: Path) -> None:
    """If a connection could not be closed before the fork, the child says so instead of harming the file."""
    store = SQLiteStore(path, deadline=20.0)
    store.reserve(a_claim())
    stuck = Connection(str(path), "reader", time.time, patience=0.05)
    with stuck.session():  # somebody uses it for longer than a fork would wait
        pid = os.fork()
        if pid == 0:
            try:
                store.reserve(a_claim("in the child"))
            except StoreUnavailable as error:
                os._exit(0 if "was forked while" in str(error) else 1)
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    stuck.close()
    assert store.reserve(a_claim("in the parent")) == Reserved(1)
    store.close()


def test_a_child_does_not_keep_the_parents_lock(tmp_path: Path) -> None:
    """A writer that forks and dies does not leave its file lock behind in its child."""
    lock = filelock.FileLock(str(tmp_path / "lock"))
    assert lock.try_acquire()
    ready, go_on = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    lock.close()  # as the parent's death would
    other = filelock.FileLock(str(tmp_path / "lock"))
    assert other.try_acquire()
    os.write(go_on[1], b"x")
    os.waitpid(pid, 0)
    other.close()
    for end in (*ready, *go_on):
        os.close(end)


def test_a_frozen_writer_stops_no_replay(path: Path) -> None:
    """While a process is stopped inside its transaction, replays go on, from stores that open only now too.

    Fresh claims are refused by the deadline, handled as not done, and succeed when the process goes on.
    """
    store = SQLiteStore(path, deadline=0.3)
    kept, fresh = a_claim("kept"), a_claim("fresh")
    store.reserve(kept)
    store.finish(kept, an_outcome())
    process = SPAWN.Process(target=workers.freeze_while_writing, args=(str(path),))
    process.start()
    assert process.pid is not None
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        late = SQLiteStore(path, deadline=0.3)
        for each in (store, late):
            start = time.monotonic()
            assert the_record(each, kept).response == an_outcome().response
            assert each.reserve(a_claim("kept")) != Reserved(1)
            assert time.monotonic() - start < 0.25
            with pytest.raises(StoreUnavailable, match="nothing was done"):
                each.reserve(fresh)
            keeper = each.open_keeper()
            with pytest.raises(StoreUnavailable):
                keeper.renew([fresh])
            keeper.close()
            assert time.monotonic() - start < 2.0
        late.close()
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.join()
    assert store.reserve(fresh) == Reserved(1)
    assert process.exitcode == 0
    store.close()


def test_a_killed_writer_takes_nothing_along(path: Path) -> None:
    """After kill -9 in full flow, every outcome that was acknowledged is there; three times over."""
    acknowledged: list[bytes] = []
    for _ in range(3):
        ours, theirs = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=workers.finish_forever, args=(str(path), theirs))
        process.start()
        theirs.close()
        acknowledged += [ours.recv_bytes() for _ in range(150)]
        process.kill()
        process.join()
        try:
            while True:
                acknowledged.append(ours.recv_bytes())
        except (EOFError, OSError):
            ours.close()
    store = SQLiteStore(path, deadline=20.0)
    assert len(acknowledged) >= 450
    for id in acknowledged:
        found = store.look(id)
        assert found is not None
        assert found.record.state == "completed"
    store.close()


def test_counts_of_several_processes_add_up(path: Path) -> None:
    """Four services count at once, on a file that they make together, and nothing is lost."""
    barrier = SPAWN.Barrier(4)
    processes = [
        SPAWN.Process(target=workers.count_in_rounds, args=(str(path), 25, barrier)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    admin = SQLiteStore(path, deadline=20.0).open_admin()
    assert admin.statistics().verdicts == {"completed": 100, "replayed": 200}
    admin.close()


def test_an_operator_and_a_successor_in_another_process(path: Path) -> None:
    """Thirty rounds: an abandoned record is resolved or taken over, never both, and the audit trail knows."""
    rounds, barrier = 30, SPAWN.Barrier(2)
    store = SQLiteStore(path, deadline=20.0)
    for round in range(rounds):
        store.reserve(a_claim(f"round {round}")._replace(lease=-1.0, hold=86400.0))
    admin = store.open_admin()
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=workers.take_over_in_rounds, args=(str(path), rounds, barrier, theirs))
    process.start()
    resolved: list[bool] = []
    for round in range(rounds):
        seen = the_record(store, a_claim(f"round {round}"))
        barrier.wait()
        resolved.append(admin.resolve(seen, an_outcome(), Note("ops", "it was paid")))
    taken = ours.recv()
    process.join()
    assert [not each for each in taken] == resolved
    assert {entry.key for entry in admin.audit()} == {
        f"round {round}" for round in range(rounds) if resolved[round]
    }
    states = [the_record(store, a_claim(f"round {round}")).state for round in range(rounds)]
    assert states == ["completed" if each else "in_progress" for each in resolved]
    admin.close()
    store.close()


@pytest.mark.parametrize("shift", [3600.0, -3600.0])
def test_a_wrong_wall_clock_changes_nothing(path: Path, shift: float) -> None:
    """A worker an hour off sees the same time as everybody, and takes no live lease away."""
    store = SQLiteStore(path)
    claim = a_claim("live")
    store.reserve(claim)
    ours, theirs = SPAWN.Pipe(duplex=False)
    arguments = (str(path), shift, "live", theirs)
    process = SPAWN.Process(target=workers.look_with_a_wrong_clock, args=arguments)
    process.start()
    now, taken, created_at = ours.recv()
    process.join()
    mine = store.look(claim.id)
    assert mine is not None
    assert abs(mine.now - now) < 30.0
    assert abs(mine.now - created_at) < 30.0
    assert taken is False
    store.close()
