"""Commits of the SQLite store: batches, deadlines, trouble, threads and event loops."""

import asyncio
import gc
import logging
import random
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from retrysafe._core.model import Claim, Found, Purged, Reservation, Reserved
from retrysafe.errors import StoreUnavailable, UnreadableRecord
from retrysafe.stores.queue import Call, Outcome, Row
from retrysafe.stores.sql import cleanup, operations
from retrysafe.stores.sql.sqlite import SQLiteStore, connection
from retrysafe.stores.sql.sqlite.connection import Connection
from retrysafe.testing import ManualClock
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import ended, the_record

PATIENCE = 30.0
"""Seconds for what should take none, on a machine that is busy."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    """An open store that is patient with a slow machine."""
    store = SQLiteStore(path, deadline=20.0)
    store.look(b"nothing")
    yield store
    store.close()


@pytest.fixture
def hasty(path: Path) -> Iterator[SQLiteStore]:
    """An open store whose callers give up soon."""
    store = SQLiteStore(path, deadline=0.3)
    store.look(b"nothing")
    yield store
    store.close()


@contextmanager
def write_lock(path: Path) -> Generator[None]:
    """Somebody else is writing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls each transaction had."""
    sizes: list[int] = []
    outcomes = Connection._outcomes

    def spy(self: Connection, calls: Sequence[Call | None]) -> list[Outcome]:
        if self.role == "writer":
            sizes.append(len(calls))
        return outcomes(self, calls)

    monkeypatch.setattr(Connection, "_outcomes", spy)
    return sizes


class Held:
    """Threads that are about to commit, and wait until they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, thread: str = "") -> None:
        self.reached = threading.Semaphore(0)
        self.go_on = threading.Event()
        execute = Connection.execute

        def held(self_: Connection, sql: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
            if sql == "COMMIT" and threading.current_thread().name.startswith(thread):
                self.reached.release()
                assert self.go_on.wait(PATIENCE)
            return execute(self_, sql, arguments)

        monkeypatch.setattr(Connection, "execute", held)


def test_equal_keys_at_once(store: SQLiteStore, path: Path) -> None:
    """Fifty claims for one key that have all looked and found nothing: one is fresh, the others find it."""

    async def crowd() -> Counter[type]:
        with write_lock(path):
            tasks = [asyncio.ensure_future(store.aio.reserve(a_claim())) for _ in range(50)]
            await asyncio.sleep(0.05)
        return Counter(type(answer) for answer in await asyncio.gather(*tasks))

    assert asyncio.run(crowd()) == {Reserved: 1, Found: 49}


@pytest.mark.parametrize("half", ["blocking", "aio"])
def test_one_commit_for_all_that_arrive_together(
    store: SQLiteStore, path: Path, batches: list[int], half: str
) -> None:
    """Coroutines in the batch that waits for the lock, threads in the one after it."""
    claims = [a_claim(f"key {n}") for n in range(50)]

    async def crowd() -> list[Reservation]:
        with write_lock(path):
            tasks = [asyncio.ensure_future(store.aio.reserve(claim)) for claim in claims]
            await asyncio.sleep(0.05)
        return await asyncio.gather(*tasks)

    if half == "aio":
        asyncio.run(store.aio.look(b"nothing"))
        batches.clear()
        assert asyncio.run(crowd()) == [Reserved(1)] * 50
        assert 50 in batches
        return
    with ThreadPoolExecutor(50) as pool, write_lock(path):
        futures = [pool.submit(store.reserve, claim) for claim in claims]
        waiting = store._sqlite.queue._pending
        until = time.monotonic() + PATIENCE
        while len(waiting._others) < 49:
            assert time.monotonic() < until
            time.sleep(0.001)
    assert [future.result() for future in futures] == [Reserved(1)] * 50
    assert batches[-2:] == [1, 49]


def test_a_lone_job_waits_for_nobody(store: SQLiteStore, tmp_path: Path) -> None:
    """One caller at a time pays about what a commit costs; nothing is collected by waiting."""

    def median(step: object) -> float:
        times: list[float] = []
        for n in range(40):
            start = time.perf_counter()
            step(n)  # type: ignore[operator]
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    with closing(sqlite3.connect(tmp_path / "plain.db", isolation_level=None)) as plain:
        plain.execute("PRAGMA journal_mode = WAL")
        plain.execute("PRAGMA synchronous = FULL")
        plain.execute("CREATE TABLE t (a)")
        bare = median(lambda n: plain.execute("INSERT INTO t VALUES (?)", (n,)))
    assert median(lambda n: store.reserve(a_claim(f"key {n}"))) < 4 * bare + 0.01


@pytest.mark.parametrize("half", ["blocking", "aio"])
def test_giving_up_in_time_means_that_nothing_was_done(hasty: SQLiteStore, path: Path, half: str) -> None:
    """While somebody sits on the write lock a claim fails by its deadline, and is not made up for later."""
    claim = a_claim()
    with write_lock(path):
        start = time.monotonic()
        with pytest.raises(StoreUnavailable, match="nothing was done"):
            hasty.reserve(claim) if half == "blocking" else asyncio.run(hasty.aio.reserve(claim))
        assert time.monotonic() - start < 1.0
    assert hasty.reserve(a_claim("another")) == Reserved(1), "it works again"
    assert hasty.look(claim.id) is None


def test_a_cancelled_job_that_was_not_begun_is_not_done(store: SQLiteStore, path: Path) -> None:
    """Its caller went away while somebody else was writing: the claim is not made for nobody."""
    claim = a_claim()

    async def cancel() -> None:
        with write_lock(path):
            task = asyncio.ensure_future(store.aio.reserve(claim))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancel())
    store.release(a_claim("another"))  # whatever came before has been committed
    assert store.look(claim.id) is None


@pytest.mark.parametrize(
    ("claim", "age"),
    [
        (a_claim()._replace(lease=7200.0), 7000.0),
        (a_claim()._replace(hold=7200.0), 7000.0),
        (a_claim(), 3599.0),
    ],
    ids=["running", "held", "abandoned"],
)
def test_the_writer_judges_for_itself(path: Path, claim: Claim, age: float) -> None:
    """What a reader saw may be over by then; nobody is replaced whom the writer does not find expired."""
    clock = ManualClock()
    store = SQLiteStore(path, deadline=20.0, clock=clock)
    store.reserve(claim)
    clock.elapse(age)
    found = past_the_reader(store)
    assert isinstance(found, Found)
    assert found.record.token == claim.token
    clock.elapse(7200.0)
    assert past_the_reader(store) == Reserved(1)
    store.close()


def past_the_reader(store: SQLiteStore) -> Reservation:
    claim = a_claim()
    return store._sqlite.queue.perform(operations.reserve(claim), claim.id)


def test_giving_up_too_late_is_said_to_be_too_late(
    hasty: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is being done when its caller gives up is not known to be done, and may be."""
    claim = a_claim()
    with monkeypatch.context() as patch:
        held = Held(patch)
        with pytest.raises(StoreUnavailable, match="not known"):
            asyncio.run(hasty.aio.reserve(claim))
        held.go_on.set()
    hasty.release(a_claim("another"))  # whatever came before has been committed
    assert hasty.reserve(claim) == Reserved(1), "it recognises itself"
    assert the_record(hasty, claim).attempt == 1


def test_a_slow_disk_holds_up_one_thread(hasty: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that commits.  Those that wait for it give up in time, and know that nothing was done."""
    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        held = Held(patch)
        first = pool.submit(hasty.reserve, a_claim("first"))
        assert held.reached.acquire(timeout=PATIENCE)
        second = pool.submit(hasty.reserve, a_claim("second"))
        with pytest.raises(StoreUnavailable, match="nothing was done"):
            second.result(PATIENCE)
        assert not first.done()
        held.go_on.set()
        assert first.result(PATIENCE) == Reserved(1)
    assert hasty.look(a_claim("second").id) is None


def test_one_bad_job_does_not_spoil_the_commit(store: SQLiteStore, path: Path, batches: list[int]) -> None:
    """A damaged record and a claim that cannot be stored fail alone; their neighbours succeed."""
    damaged, unstorable = a_claim("damaged"), a_claim("unstorable")._replace(fingerprint=object())  # type: ignore[arg-type]
    store.reserve(damaged)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE retrysafe_records SET scope = 'nonsense'")

    async def crowd() -> list[object]:
        with write_lock(path):
            claims = [a_claim("a"), unstorable, a_claim("b")]
            tasks = [asyncio.ensure_future(store.aio.reserve(claim)) for claim in claims]
            tasks.append(asyncio.ensure_future(store.aio.take_over(a_claim("damaged"), b"x", "in_progress")))
            tasks.append(asyncio.ensure_future(store.aio.reserve(a_claim("c"))))
            await asyncio.sleep(0.05)
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    batches.clear()
    a, bad, b, unreadable, c = asyncio.run(crowd())
    assert [a, b, c] == [Reserved(1)] * 3
    assert isinstance(bad, StoreUnavailable)
    assert isinstance(unreadable, UnreadableRecord)
    assert 5 in batches


def test_a_failed_commit_fails_everybody(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer is given before the commit, so a commit that fails is nobody's success."""
    execute = Connection.execute
    broken = threading.Event()
    broken.set()

    def fail(self: Connection, sql: str, arguments: object = None) -> object:
        if sql == "COMMIT" and broken.is_set():
            raise StoreUnavailable("the disk is on fire")
        return execute(self, sql, arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "execute", fail)

    async def crowd() -> list[object]:
        with write_lock(path):
            tasks = [asyncio.ensure_future(store.aio.reserve(a_claim(f"key {n}"))) for n in range(5)]
            await asyncio.sleep(0.05)
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    errors = asyncio.run(crowd())
    assert [type(error) for error in errors] == [StoreUnavailable] * 5
    assert len(set(map(id, errors))) == 5, "each caller raises an exception of its own"
    broken.clear()
    assert [store.reserve(a_claim(f"key {n}")) for n in range(5)] == [Reserved(1)] * 5


def test_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are refused and replays go on; what was acknowledged is there, and space heals it."""
    usual = connection.PRAGMAS["writer"]
    monkeypatch.setitem(connection.PRAGMAS, "writer", (*usual, "max_page_count = 60"))
    store = SQLiteStore(path)
    kept: list[Claim] = []

    def fill(name: str) -> None:
        while True:
            claim = a_claim(f"{name} {len(kept)}")
            assert store.reserve(claim) == Reserved(1)
            assert store.finish(claim, an_outcome(b"x" * 5000))
            kept.append(claim)

    with pytest.raises(StoreUnavailable, match="full"):
        fill("key")
    assert kept
    with pytest.raises(StoreUnavailable, match="full"):
        fill("another")
    assert {the_record(store, claim).state for claim in kept} == {"completed"}
    monkeypatch.setitem(connection.PRAGMAS, "writer", usual)
    store.close()
    assert store.reserve(a_claim("at last")) == Reserved(1)
    store.close()


@pytest.mark.parametrize("half", ["blocking", "aio"])
def test_no_space_for_a_commit(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    """A batch that does not fit is taken apart: what there is space for is stored."""
    execute = Connection.execute

    def fail(self: Connection, sql: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
        if (arguments or {}).get("target") == "/large":
            self.is_large = True  # type: ignore[attr-defined]
        if sql == "COMMIT" and getattr(self, "is_large", False):
            raise connection.OutOfSpace("the disk is full")
        return execute(self, sql, arguments)

    monkeypatch.setattr(Connection, "execute", fail)
    claims = [a_claim("a"), a_claim("b")._replace(target="/large"), a_claim("c")]

    async def crowd() -> list[object]:
        return await asyncio.gather(*map(store.aio.reserve, claims), return_exceptions=True)

    if half == "aio":
        a, b, c = asyncio.run(crowd())
        assert (a, c) == (Reserved(1), Reserved(1))
        assert isinstance(b, StoreUnavailable)
        assert "full" in str(b)
    else:
        with pytest.raises(StoreUnavailable, match="full"):
            store.reserve(claims[1])
        assert store.reserve(claims[0]) == Reserved(1)


def test_a_thread_that_fails_hangs_no_coroutine(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller gets an error at once, long before the deadline, and the next one is served."""
    execute = Connection.execute

    def die(self: Connection, sql: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
        if sql == "COMMIT":
            raise SystemExit
        return execute(self, sql, arguments)

    async def calls() -> None:
        await store.aio.look(b"nothing")
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "execute", die)
            start = time.monotonic()
            with pytest.raises(StoreUnavailable, match="SystemExit"):
                await store.aio.reserve(a_claim())
            assert time.monotonic() - start < 5.0
        assert await store.aio.reserve(a_claim()) == Reserved(1)

    asyncio.run(calls())


def test_cancelling_at_random_leaks_nothing(store: SQLiteStore) -> None:
    """Every key can be claimed afterwards, and no thread stays behind when the loop has ended."""
    chance = random.Random(7)

    async def storm() -> None:
        for _ in range(5):
            claims = [a_claim(f"key {n}") for n in range(60)]
            tasks = [asyncio.ensure_future(store.aio.reserve(claim)) for claim in claims]
            chance.shuffle(tasks)
            for task in tasks:
                if chance.random() < 0.3:
                    await asyncio.sleep(chance.random() * 0.002)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for claim in claims:
                found = await store.aio.reserve(claim)
                if isinstance(found, Found):  # an earlier round's claim was committed after all
                    claim = claim._replace(token=found.record.token)
                await store.aio.release(claim)
                assert await store.aio.look(claim.id) is None

    others = threads()
    asyncio.run(storm())
    wait_until(lambda: not threads() - others)


def threads() -> set[threading.Thread]:
    """Those of executors."""
    return {thread for thread in threading.enumerate() if thread.name == "retrysafe-sqlite"}


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.mark.parametrize("end", ["dropped", "closed"])
def test_a_store_that_is_gone_leaves_no_thread(path: Path, end: str) -> None:
    """Without `close`, too: the thread does not refer to the store, nor outlive it."""
    others = threads()
    with asyncio.Runner() as runner:
        store: SQLiteStore | None = SQLiteStore(path)
        assert store is not None
        runner.run(store.aio.reserve(a_claim()))
        assert len(threads() - others) == 1
        if end == "closed":
            store.close()
        store = None
        gc.collect()
        wait_until(lambda: not threads() - others)


def test_a_cancelled_loop_leaves_the_store_usable(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends while its thread commits: that goes on, and the next loop has the connection's lock."""
    held = Held(monkeypatch)

    async def leave() -> None:
        asyncio.ensure_future(store.aio.reserve(a_claim("left")))  # noqa: RUF006 - it is cancelled with its loop
        assert await asyncio.to_thread(held.reached.acquire, timeout=PATIENCE)

    asyncio.run(leave())
    held.go_on.set()
    assert asyncio.run(store.aio.reserve(a_claim("next"))) == Reserved(1)
    assert isinstance(store.look(a_claim("left").id), Found), "it was committed"
    store.close()


# --- what an event loop waits for


@contextmanager
def lag() -> Generator[list[float]]:
    """The longest time for which the running loop did nothing else, in the end."""
    loop, worst = asyncio.get_running_loop(), [0.0]

    async def watch() -> None:
        before = loop.time()
        while True:
            await asyncio.sleep(0.001)
            now = loop.time()
            worst[0] = max(worst[0], now - before - 0.001)
            before = now

    task = asyncio.ensure_future(watch())
    try:
        yield worst
    finally:
        task.cancel()


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "not yet open"])
def test_a_locked_file_does_not_hold_up_a_loop(path: Path, is_open: bool) -> None:
    """Another process writes for longer than the deadline: claims fail in time, replays do not wait."""
    store = SQLiteStore(path, deadline=0.5)
    kept = a_claim("kept")
    store.reserve(kept)
    store.finish(kept, an_outcome())

    async def crowd() -> float:
        if is_open:
            await store.aio.look(b"nothing")
        with lag() as worst:
            await asyncio.sleep(0.01)
            start = time.monotonic()
            tasks = [asyncio.ensure_future(store.aio.reserve(a_claim(f"key {n}"))) for n in range(100)]
            await asyncio.sleep(0)
            assert isinstance(await store.aio.reserve(a_claim("kept")), Found)
            if is_open:
                assert time.monotonic() - start < 0.4
            errors = await asyncio.gather(*tasks, return_exceptions=True)
            assert time.monotonic() - start < 1.5
        assert {type(error) for error in errors} == {StoreUnavailable}
        assert all("nothing was done" in str(error) for error in errors)
        return worst[0]

    with another_process(WRITES_UNTIL_TOLD, path):
        # The best of three: the machine may have been busy.
        assert min(asyncio.run(crowd()) for _ in range(3)) < 0.05
    assert store.reserve(a_claim("key 1")) == Reserved(1)
    store.close()


WRITES_UNTIL_TOLD = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("PRAGMA wal_autocheckpoint = 0")
other.execute("BEGIN IMMEDIATE")
print("ready", flush=True)
sys.stdin.read()
other.execute("ROLLBACK")
"""


@contextmanager
def another_process(program: str, path: Path) -> Generator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield


def test_a_slow_flush_does_not_hold_up_a_loop(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one commit is on its way to the disk, the loop goes on, and so do its replays."""
    kept = a_claim("kept")
    store.reserve(kept)
    store.finish(kept, an_outcome())

    async def meanwhile() -> None:
        await store.aio.look(b"nothing")
        held = Held(monkeypatch)
        task = asyncio.ensure_future(store.aio.reserve(a_claim()))
        assert await asyncio.to_thread(held.reached.acquire, timeout=PATIENCE)
        assert isinstance(await store.aio.reserve(a_claim("kept")), Found)
        assert not task.done()
        held.go_on.set()
        assert await task == Reserved(1)

    asyncio.run(meanwhile())


def test_what_runs_on_the_thread_of_a_loop(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of a connection that is open; nothing else."""
    ran: dict[str, set[str]] = {}
    execute, open = Connection.execute, Connection._open

    def note(what: str) -> None:
        ran.setdefault(threading.current_thread().name, set()).add(what)

    def noted(self: Connection, sql: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
        note(sql.split()[0])
        return execute(self, sql, arguments)

    def opened(self: Connection) -> None:
        note("opening")
        open(self)

    store.close()
    monkeypatch.setattr(Connection, "execute", noted)
    monkeypatch.setattr(Connection, "_open", opened)

    async def calls() -> None:
        for name, body in (("first", b"short"), ("second", b"x" * 100_000)):
            claim = a_claim(name)
            assert await store.aio.reserve(claim) == Reserved(1)
            assert await store.aio.finish(claim, an_outcome(body))
            assert await store.aio.look(claim.id) is not None
        purge = operations.purge(10)
        assert (await store._sqlite.async_queue.perform(purge, b"purge")).records == 0

    asyncio.run(calls())
    assert ran["MainThread"] == {"SELECT"}
    assert ran["retrysafe-sqlite"] >= {"opening", "INSERT", "UPDATE", "DELETE", "COMMIT"}


def test_checkpoints_keep_the_log_small(store: SQLiteStore, path: Path) -> None:
    """However much is written, the log is started over again; closing removes it."""

    async def work(name: str) -> None:
        for n in range(40):
            claim = a_claim(f"{name} {n}")
            await store.aio.reserve(claim)
            await store.aio.finish(claim, an_outcome(b"x" * 16_000))

    async def crowd() -> None:
        await asyncio.gather(*(work(f"worker {n}") for n in range(32)))

    asyncio.run(crowd())
    written = 32 * 40 * 16_000
    log = path.with_name("keys.db-wal").stat().st_size
    assert log < written / 2, "a thousand pages, and one commit beyond them"
    store.close()
    assert not path.with_name("keys.db-wal").exists()


def test_whoever_counts_also_tidies_up(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without a purge job does not grow: the lease keeper removes what has expired, slice by slice.

    What was never settled is named in the log, by some digits of its id.
    """
    monkeypatch.setattr(cleanup, "SLICE", 30)
    monkeypatch.setattr(cleanup, "BUDGET", PATIENCE)
    clock = ManualClock()
    store = SQLiteStore(path, deadline=20.0, clock=clock)

    async def traffic(name: str, count: int) -> None:
        async def one(n: int) -> None:
            claim = a_claim(f"{name} {n}")
            await store.aio.reserve(claim)
            await store.aio.finish(claim, an_outcome())

        await asyncio.gather(*map(one, range(count)))

    abandoned = a_claim("a secret key")
    store.reserve(abandoned)
    asyncio.run(traffic("old", 100))
    clock.elapse(4000.0)
    asyncio.run(traffic("new", 100))
    keeper = store.open_keeper()
    with caplog.at_level(logging.WARNING, "retrysafe.store"):
        keeper.count(ended({"completed": 200}))
    keeper.close()
    assert store.purge() == Purged(0)
    store.close()
    with closing(sqlite3.connect(path)) as other:
        [(count,)] = other.execute("SELECT count(*) FROM retrysafe_records")
    assert count == 100
    assert abandoned.id.hex()[:8] in caplog.text
    assert "secret" not in caplog.text


def test_a_cleanup_lets_others_pass(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of its commits another process finds the lock free."""
    monkeypatch.setattr(cleanup, "SLICE", 10)
    monkeypatch.setattr(cleanup, "BUDGET", PATIENCE)
    clock = ManualClock()
    store = SQLiteStore(path, deadline=20.0, clock=clock)
    for n in range(200):
        store.reserve(a_claim(f"key {n}"))
    clock.elapse(4000.0)
    pauses: list[bool] = []

    def between(seconds: float) -> None:
        lock = store.file_lock()
        pauses.append(seconds > 0 and lock.try_acquire())
        lock.close()

    monkeypatch.setattr(cleanup, "sleep", between)
    keeper = store.open_keeper()
    keeper.count({})
    keeper.close()
    assert pauses == [True] * 20
    store.close()


def test_a_purge_lets_others_pass(path: Path, batches: list[int]) -> None:
    """A large one is made of several commits, between which other jobs have their turn."""
    clock = ManualClock()
    store = SQLiteStore(path, deadline=20.0, clock=clock)

    async def fill() -> None:
        await asyncio.gather(*(store.aio.reserve(a_claim(f"key {n}")) for n in range(1100)))

    asyncio.run(fill())
    clock.elapse(4000.0)
    batches.clear()
    purged = store.purge(limit=2000)
    assert (purged.records, len(purged.unresolved)) == (1100, 1100)
    assert len(batches) == 3
    store.close()
