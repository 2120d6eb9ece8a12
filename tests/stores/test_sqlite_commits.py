"""The SQLite writer: group commit, deadlines, trouble, and what it does besides."""

import asyncio
import gc
import logging
import random
import sqlite3
import statistics
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from retrysafe._core.model import Claim, Found, Purged, Reserved
from retrysafe.errors import StoreUnavailable, UnreadableRecord
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.jobs import Job
from retrysafe.stores.sql.sqlite import SQLiteStore, cleanup, connection, writer
from retrysafe.stores.sql.sqlite.connection import Connection
from retrysafe.testing import ManualClock
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import the_record


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
    """How many jobs each commit had."""
    sizes: list[int] = []
    perform = writer.WriterLoop._perform

    def spy(self: writer.WriterLoop, connection: Connection, jobs: list[Job[object]]) -> None:
        sizes.append(len(jobs))
        perform(self, connection, jobs)

    monkeypatch.setattr(writer.WriterLoop, "_perform", spy)
    return sizes


def test_equal_keys_in_one_commit(store: SQLiteStore, path: Path, batches: list[int]) -> None:
    """Fifty claims for one key that are committed together: one is fresh, the others find it."""

    async def crowd() -> Counter[type]:
        with write_lock(path):
            tasks = [asyncio.ensure_future(store.aio.reserve(a_claim())) for _ in range(50)]
            await asyncio.sleep(0.05)  # all have looked, found nothing, and wait for the writer
        return Counter(type(answer) for answer in await asyncio.gather(*tasks))

    assert asyncio.run(crowd()) == {Reserved: 1, Found: 49}
    assert batches == [50]


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
    found = store._database.write(operations.reserve(a_claim()))
    assert isinstance(found, Found)
    assert found.record.token == claim.token
    clock.elapse(7200.0)
    assert store._database.write(operations.reserve(a_claim())) == Reserved(1)
    store.close()


@pytest.mark.parametrize("half", ["blocking", "aio"])
def test_giving_up_too_late_is_said_to_be_too_late(
    hasty: SQLiteStore, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    """A job that is being done when its caller gives up is not known to be done, and may be."""
    go_on = threading.Event()
    perform = Connection.perform

    def slow(self: Connection, operation: Operation[object]) -> object:
        if threading.current_thread().name == "retrysafe-sqlite-writer":
            go_on.wait(10.0)
        return perform(self, operation)

    monkeypatch.setattr(Connection, "perform", slow)
    claim = a_claim()
    with pytest.raises(StoreUnavailable, match="not known"):
        hasty.reserve(claim) if half == "blocking" else asyncio.run(hasty.aio.reserve(claim))
    go_on.set()
    hasty.release(a_claim("another"))  # whatever came before has been committed
    assert hasty.reserve(claim) == Reserved(1), "it recognises itself"
    assert the_record(hasty, claim).attempt == 1


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
    assert batches == [5]


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


def test_a_dead_writer_hangs_nobody(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is told at once, long before the deadline, and the next job finds a new writer."""
    perform = Connection.perform

    def die(self: Connection, operation: Operation[object]) -> object:
        if threading.current_thread().name == "retrysafe-sqlite-writer":
            raise SystemExit
        return perform(self, operation)

    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # pytest's would call it an error
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "perform", die)
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.reserve(a_claim())
        assert time.monotonic() - start < 5.0
    assert store.reserve(a_claim()) == Reserved(1)


def test_cancelling_at_random_leaks_nothing(store: SQLiteStore) -> None:
    """Every key can be claimed afterwards, with one writer alive and none when it is closed."""
    chance = random.Random(7)

    def writers() -> int:
        return sum(thread.name == "retrysafe-sqlite-writer" for thread in threading.enumerate())

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

    asyncio.run(storm())
    alive = writers()
    store.close()
    assert writers() == alive - 1  # for other tests may have left some


def test_a_dropped_store_ends_its_thread(path: Path) -> None:
    """Without `close`, too: the thread does not keep the store alive, nor outlive it."""
    others = set(threading.enumerate())
    store = SQLiteStore(path)
    store.reserve(a_claim())
    [thread] = [t for t in set(threading.enumerate()) - others if t.name == "retrysafe-sqlite-writer"]
    del store
    gc.collect()
    thread.join(5.0)
    assert not thread.is_alive()


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


def test_the_writer_tidies_up(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that nobody purges does not grow: traffic removes more than it adds.

    What nobody ever settled is named in the log, by some digits of its id.
    """
    monkeypatch.setattr(cleanup, "PAUSE", 0.0)
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
    asyncio.run(traffic("old", 400))
    clock.elapse(4000.0)
    with caplog.at_level(logging.WARNING, "retrysafe.store"):
        asyncio.run(traffic("new", 400))
    assert store.purge() == Purged(0)
    store.close()
    with closing(sqlite3.connect(path)) as other:
        [(count,)] = other.execute("SELECT count(*) FROM retrysafe_records")
    assert count == 400
    assert abandoned.id.hex()[:8] in caplog.text
    assert "secret" not in caplog.text


def test_a_purge_lets_others_pass(path: Path, batches: list[int]) -> None:
    """A large one is made of several commits, between which other jobs have their turn."""
    clock = ManualClock()
    store = SQLiteStore(path, deadline=20.0, clock=clock)

    async def fill() -> None:
        await asyncio.gather(*(store.aio.reserve(a_claim(f"key {n}")) for n in range(450)))

    asyncio.run(fill())
    clock.elapse(4000.0)
    batches.clear()
    purged = store.purge(limit=1000)
    assert (purged.records, len(purged.unresolved)) == (450, 450)
    assert len(batches) == 3
    store.close()
