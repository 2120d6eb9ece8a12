"""What a healthy PostgreSQL refuses: conflicts, locks, a full disk, a replica; and clocks that are wrong
(F19 to F22)."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from retrysafe.psycopg import connection_async
from retrysafe.testing.postgres import PostgresServer
from tests.faults.books import PostgresBooks, create, opened
from tests.faults.wire import PATIENCE, fresh

BOUND = 15.0


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = postgres.new_database()
    create(url)
    return url


def at(url: str, level: str) -> str:
    """The same database, for an application whose transactions have this isolation level."""
    return f"{url}?options=-c%20default_transaction_isolation%3D{level.replace(' ', '%5C%20')}"


@asynccontextmanager
async def isolated(url: str, level: str, lease: float = 30.0) -> AsyncGenerator[PostgresBooks]:
    async with opened(url, at(url, level), url, lease=lease) as books:
        await books.settled(fresh())
        yield books


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_serialization_failure(url: str, level: str) -> None:
    """F20: somebody else changed what the handler read.  Undone, 503 `not-done`, and the retry runs."""

    async def play() -> None:
        async with isolated(url, level) as books:
            key = fresh()

            async def read_then_write(books: PostgresBooks, key: str) -> None:
                async with connection_async(books.guard, books.pool) as db:
                    await db.execute("SELECT count(*) FROM parents")
                    await asyncio.to_thread(_write_skew, books.url)
                    await db.execute("INSERT INTO parents SELECT 1 + count(*) FROM parents")
                    await db.execute("UPDATE shared SET n = n + 1")
                    await books.insert(db, key)

            with psycopg.connect(books.url) as db:
                db.execute("CREATE TABLE shared (n int)")
                db.execute("INSERT INTO shared VALUES (0)")
            books.handle = read_then_write
            heard = await books.post(key)
            assert heard.status in (500, 503), heard
            assert heard.code in ("handler-failed", "not-done")
            assert books.orders(key) == []
            books.handle = PostgresBooks.write
            assert (await books.settled(key)).status == 201
            books.assert_balanced()
            books.assert_none_in_transaction()

    asyncio.run(play())


def _write_skew(url: str) -> None:
    with psycopg.connect(url) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        db.execute("SELECT count(*) FROM parents")
        db.execute("UPDATE shared SET n = n + 1")


def test_conflict_at_commit(url: str) -> None:
    """F20: a conflict that shows only at COMMIT, as SERIALIZABLE has them, is no failure of the handler's."""

    async def play() -> None:
        async with isolated(url, "serializable") as books:
            both = asyncio.Barrier(2)

            async def skewed(books: PostgresBooks, key: str) -> None:
                async with connection_async(books.guard, books.pool) as db:
                    await db.execute("SELECT count(*) FROM parents")
                    await books.insert(db, key)
                    await db.execute("INSERT INTO parents VALUES (%s)", [hash(key) % 2**31])
                await both.wait()

            books.handle = skewed
            keys = [fresh(), fresh()]
            heard = await asyncio.gather(*(books.post(key) for key in keys))
            assert sorted(answer.status for answer in heard) == [201, 503]
            assert "not-done" in {answer.code for answer in heard}
            books.assert_balanced()
            books.handle = PostgresBooks.write
            for key in keys:
                assert (await books.settled(key)).status == 201
            books.assert_balanced()

    asyncio.run(play())


def test_renewed_while_a_snapshot_is_held(url: str) -> None:
    """F20: from REPEATABLE READ on, a lease that is renewed after a transaction's first statement is a change
    that it must not make undone: its completion is refused.  Such handlers have to end before the first
    renewal, a third of the lease; nothing false comes of one that does not."""

    async def slow(books: PostgresBooks, key: str) -> None:
        async with connection_async(books.guard, books.pool) as db:
            await books.insert(db, key)
            (first,) = books.ask("SELECT lease_until FROM retrysafe_records WHERE key = %s", key)
            while books.ask("SELECT lease_until FROM retrysafe_records WHERE key = %s", key) == [first]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def play() -> None:
        async with isolated(url, "repeatable read", lease=1.0) as books:
            books.handle = slow
            heard = await books.post(key := fresh())
            assert (heard.status, heard.code) == (503, "not-done")
            assert books.orders(key) == []
            books.handle = PostgresBooks.write
            assert (await books.settled(key)).status == 201
            books.assert_balanced()
        async with opened(url, url, url, lease=1.0) as books:  # READ COMMITTED, as everybody has it
            books.handle = slow
            assert (await books.post(fresh())).status == 201
            books.assert_balanced()

    asyncio.run(play())


def test_somebody_has_locked_the_record(url: str) -> None:
    """F20: the completion waits no longer than the lease; then everything is undone, and the retry runs."""

    async def play() -> None:
        async with opened(url, url, url, lease=1.0) as books:
            other = psycopg.connect(url)

            async def and_locked(books: PostgresBooks, key: str) -> None:
                await books.write(key)
                other.execute("SELECT 1 FROM retrysafe_records WHERE key = %s FOR UPDATE", [key])

            books.handle = and_locked
            began = time.monotonic()
            heard = await books.post(key := fresh())
            assert time.monotonic() - began < BOUND
            assert heard.status == 503, heard
            assert heard.code in ("not-done", "store-unavailable")
            other.close()
            assert books.orders(key) == []
            books.handle = PostgresBooks.write
            assert (await books.settled(key)).status == 201
            books.assert_balanced()
            books.assert_none_in_transaction()

    asyncio.run(play())


def test_a_lock_on_one_record_costs_no_other_its_lease(url: str) -> None:
    """F20, F23: leases are renewed in one batch, and one of the rows is locked for longer than a lease."""

    async def play() -> None:
        async with opened(url, url, url, lease=1.0) as books:
            go_on = asyncio.Event()

            async def slow(books: PostgresBooks, key: str) -> None:
                await books.write(key)
                await go_on.wait()

            books.handle = slow
            locked, free = fresh(), fresh()
            running = [asyncio.ensure_future(books.post(key)) for key in (locked, free)]
            while books.attempts < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            with psycopg.connect(url) as other:
                other.execute("SELECT 1 FROM retrysafe_records WHERE key = %s FOR UPDATE", [locked])
                question = (
                    "SELECT lease_until > created_at + interval '4 s' FROM retrysafe_records WHERE key = %s"
                )
                async with asyncio.timeout(PATIENCE * 2):
                    while books.ask(question, free) != [(True,)]:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                assert books.ask(question, locked) == [(False,)]
                other.rollback()
            go_on.set()
            assert [heard.status for heard in await asyncio.gather(*running)] == [201, 201]
            books.assert_balanced()

    asyncio.run(play())


def test_deadlock(url: str) -> None:
    """F20: two handlers that wait for each other; one of them is undone, and its retry runs."""

    async def play() -> None:
        async with opened(url, url, url) as books:
            with psycopg.connect(url) as db:
                db.execute("INSERT INTO parents VALUES (1), (2)")
            both = asyncio.Barrier(2)
            first = {"a": 1, "b": 2}

            async def crossed(books: PostgresBooks, key: str) -> None:
                mine = first[key[-1]]
                async with connection_async(books.guard, books.pool) as db:
                    await db.execute("SELECT 1 FROM parents WHERE id = %s FOR UPDATE", [mine])
                    await both.wait()
                    await db.execute("SELECT 1 FROM parents WHERE id = %s FOR UPDATE", [3 - mine])
                    await books.insert(db, key)

            books.handle = crossed
            keys = [fresh() + "a", fresh() + "b"]
            heard = await asyncio.gather(*(books.post(key) for key in keys))
            assert sorted(answer.status for answer in heard) == [201, 500]
            books.assert_balanced()
            books.handle = PostgresBooks.write
            for key in keys:
                assert (await books.settled(key)).status == 201
            books.assert_balanced()

    asyncio.run(play())


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of two megabytes, where this machine lets us have one."""
    folder = Path(tempfile.mkdtemp(prefix="retrysafe-disk-"))
    folder.chmod(0o755)
    mount, umount = shutil.which("mount"), shutil.which("umount")
    done = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m,mode=777", "none", folder], check=False
    )
    if not done or done.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run([str(umount), "-l", folder], check=True)
        folder.rmdir()


@pytest.mark.parametrize("what", ["records", "orders"])
def test_disk_full(small_disk: Path, what: str) -> None:
    """F21: at the claim, 503 and the handler has not run; at the completion or before it, everything is
    undone.  When there is room again, the retry runs."""
    place = small_disk / "space"
    place.mkdir(mode=0o700)
    shutil.chown(place, "nobody", "nogroup")

    async def play(url: str) -> None:
        async with opened(url, url, url) as books:
            await books.settled(fresh())
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
                table = "retrysafe_records" if what == "records" else "orders"
                db.execute(f"ALTER TABLE {table} SET TABLESPACE small".encode())
            filler = small_disk / "filler"
            _fill(filler)
            before, refused = books.attempts, set[Any]()
            keys: list[str] = []
            key = ""
            while len(refused) == 0:
                # Until the pages that are there are full.
                heard = await books.post(key := fresh())
                keys.append(key)
                if heard.status != 201:
                    refused.add((heard.status, heard.code))
                assert len(keys) < 2000
            if what == "records":
                assert refused == {(503, "store-unavailable")}
                assert books.attempts == before + len(keys) - 1
            else:
                assert refused == {(500, "handler-failed")}
            assert books.orders(key) == []
            books.assert_balanced()
            filler.unlink()
            assert (await books.settled(key)).status == 201
            books.assert_balanced()

    with PostgresServer() as server:  # its own: it does not forget a disk that is gone
        url = server.new_database()
        create(url)
        asyncio.run(play(url))


def _fill(file: Path) -> None:
    """Until there is no room left, down to the last block."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while os.write(handle, b"." * 4096):
                pass
    finally:
        os.close(handle)


def test_replica(url: str) -> None:
    """F19: a server that takes no writes is refused: 503, and the handler has not run."""

    async def play(replica: str) -> None:
        async with opened(replica, url, url) as books:
            heard = await books.post(fresh())
            assert (heard.status, heard.code) == (503, "store-unavailable")
            assert books.attempts == 0

    with PostgresServer() as primary, primary.replica() as replica:
        asyncio.run(play(replica.url("postgres")))


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_workers_clock_is_wrong(url: str, hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """F22, I22: leases and expiry are the server's time: nobody is overtaken, and nothing has expired."""
    real = time.time
    going = asyncio.Event()

    async def slow(books: PostgresBooks, key: str) -> None:
        await books.write(key)
        await going.wait()

    async def play() -> None:
        async with opened(url, url, url, retention=1800.0) as right:
            first = await right.post(done := fresh())
            right.handle = slow
            running = asyncio.ensure_future(right.post(key := fresh()))
            while right.attempts < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
            async with opened(url, url, url, retention=1800.0) as wrong:
                replay = await wrong.post(done)
                assert (replay.replayed, replay.body) == (True, first.body)
                assert (await wrong.post(key)).code == "in-flight"
                assert wrong.attempts == 0
                assert (await wrong.post(new := fresh())).status == 201
                monkeypatch.undo()
                assert (await right.post(new)).replayed
                going.set()
                assert (await running).status == 201
                assert (await wrong.post(key)).replayed
                right.assert_balanced()

    asyncio.run(play())
