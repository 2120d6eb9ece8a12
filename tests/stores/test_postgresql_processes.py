"""Several processes, threads and event loops on one PostgreSQL database."""

import asyncio
import atexit
import gc
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.context import ForkContext, SpawnContext
from typing import Any, LiteralString

import psycopg
import pytest

from retrysafe._core.model import Claim, Found, Reservation, Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import ALONE
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores import workers_servers as workers
from tests.stores.rows import PATIENT

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs fork"),
    # To fork a process that has threads is just what is tested.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, deadline=PATIENT)
    yield store
    store.close()


def sessions(url: str) -> int:
    """How many connections of ours the database has."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'retrysafe' AND datname = %s",
            [connection.info.dbname],
        ).fetchone()
    assert row is not None
    number: int = row[0]
    return number


def eventually(is_true: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENT
    while not is_true():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class TestProcesses:
    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_one_of_several_processes_gets_the_key(self, database: str, method: str) -> None:
        """Eight processes that also make the tables together: each key has exactly one holder."""
        context: ForkContext | SpawnContext = (
            multiprocessing.get_context("fork") if method == "fork" else multiprocessing.get_context("spawn")
        )
        crowd = 8 if method == "fork" else 2
        rounds, barrier = 20, context.Barrier(crowd)
        pipes, processes = [], []
        for _ in range(crowd):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (database, rounds, barrier, theirs)
            processes.append(context.Process(target=workers.claim_in_rounds, args=arguments))
            pipes.append(ours)
        for process in processes:
            process.start()
        mine = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
        assert sorted(round for rounds in mine for round in rounds) == list(range(rounds))

    def test_counts_of_processes_add_up(self, database: str) -> None:
        """And nobody waits for another in a circle."""
        context = multiprocessing.get_context("fork")
        with closing(PostgresStore(database).open_admin()) as admin:
            admin.migrate()
        barrier = context.Barrier(4)
        processes = [
            context.Process(target=workers.tally_in_rounds, args=(database, 25, barrier)) for _ in range(4)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        with psycopg.connect(database) as connection:
            counted = connection.execute("SELECT verdict, count FROM retrysafe_routes ORDER BY 1").fetchall()
        assert counted == [("completed", 100), ("replayed", 200)]

    @pytest.mark.parametrize("shift", [-3600.0, 3600.0])
    def test_a_workers_clock_does_not_matter(self, database: str, store: PostgresStore, shift: float) -> None:
        """An hour off: it sees the server's time, takes no live lease away, and writes no time of its own."""
        store.reserve(a_claim())
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=workers.look_with_a_wrong_clock, args=(database, shift, "key", theirs)
        )
        process.start()
        now, taken, created_at = ours.recv()
        process.join()
        assert abs(now - time.time()) < 600
        assert taken is False
        assert abs(created_at - time.time()) < 600


class TestForks:
    def test_a_child_has_connections_of_its_own(self, database: str, store: PostgresStore) -> None:
        """Used before and after in the parent, in the child by threads and coroutines; the parent's
        connections are as they were: not closed by the child, and not spoken on."""

        async def use() -> None:
            await store.aio.reserve(a_claim("by coroutine"))

        with asyncio.Runner() as runner:
            runner.run(use())
            store.reserve(a_claim())
            assert sessions(database) == 2
            child = os.fork()
            if child == 0:
                try:
                    assert isinstance(store.reserve(a_claim()), Found)
                    assert isinstance(asyncio.run(store.aio.reserve(a_claim())), Found)
                    store.close()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert sessions(database) == 2, "the parent's own"
            assert isinstance(store.reserve(a_claim()), Found)
            runner.run(use())
            assert sessions(database) == 2, "and they were used again"

    def test_a_child_that_ends_at_once(self, database: str, store: PostgresStore) -> None:
        """Not even the end of the interpreter says goodbye in the parent's name."""
        store.reserve(a_claim())
        with psycopg.connect(database) as connection:
            row = connection.execute(_PID, [connection.info.dbname]).fetchone()
        child = os.fork()
        if child == 0:
            try:
                # What the interpreter does at its end, as far as we are concerned.
                atexit._run_exitfuncs()
                del store
                gc.collect()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert isinstance(store.reserve(a_claim()), Found)
        with psycopg.connect(database) as connection:
            assert connection.execute(_PID, [connection.info.dbname]).fetchone() == row

    def test_a_fork_while_others_are_at_it(self, store: PostgresStore) -> None:
        """Threads hold connections and locks at that moment; the child waits for none of them."""
        stop = threading.Event()

        def work(number: int) -> None:
            turn = 0
            while not stop.is_set():
                store.reserve(a_claim(f"{number} {turn}"))
                turn += 1

        threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(5):
                child = os.fork()
                if child == 0:
                    try:
                        assert store.reserve(a_claim(f"child {turn}")) == Reserved(1)
                        os._exit(0)
                    finally:
                        os._exit(1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class TestLoops:
    def test_loops_have_connections_of_their_own(self, database: str, store: PostgresStore) -> None:
        """Two loops in two threads at the same time: a hundred claims each, one winner for each key."""
        answers: list[list[Reservation]] = []

        async def crowd() -> list[Reservation]:
            return list(await asyncio.gather(*(store.aio.reserve(a_claim(f"{n}")) for n in range(100))))

        threads = [threading.Thread(target=lambda: answers.append(asyncio.run(crowd()))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first, second = answers
        kinds = Counter(type(a) for a in [*first, *second])
        assert kinds == {Reserved: 100, Found: 100}
        assert sessions(database) <= 2 * (1 + ALONE)

    def test_a_closed_loop_is_forgotten(self, database: str, store: PostgresStore) -> None:
        """A service's tests run many loops, one after the other: connections do not pile up."""
        for turn in range(5):
            asyncio.run(store.aio.reserve(a_claim(f"{turn}")))
            assert eventually(lambda: sessions(database) == 0)

    def test_a_lost_connection_is_replaced(self, database: str, store: PostgresStore) -> None:
        """Whether the server ends it while it is idle, or in the middle of a batch: no caller notices."""
        claim = a_claim()

        async def lose() -> None:
            await store.aio.reserve(claim)
            with psycopg.connect(database, autocommit=True) as other:
                await _ended(other, "state = 'idle'")
                assert await store.aio.look(claim.id) is not None
                with other.transaction():
                    other.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")
                    finishing = asyncio.create_task(store.aio.finish(claim, an_outcome()))
                    await _ended(other, "wait_event_type = 'Lock'")
            assert await finishing is True, "on another connection"

        asyncio.run(lose())

    def test_there_is_a_limit(self, database: str, store: PostgresStore) -> None:
        """However many ask at once, in a loop or in threads."""

        async def crowd() -> None:
            await asyncio.gather(*(store.aio.reserve(a_claim(f"{n}")) for n in range(100)))
            assert sessions(database) <= 1 + ALONE
            await asyncio.sleep(0)

        asyncio.run(crowd())
        store.close()
        assert eventually(lambda: sessions(database) == 0)
        threads = [threading.Thread(target=store.reserve, args=[a_claim(f"thread {n}")]) for n in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 1 <= sessions(database) <= 1 + ALONE

    def test_a_cancelled_coroutine_leaves_no_answer_for_another(self, store: PostgresStore) -> None:
        """Cancelled at every moment, while others ask for keys of their own: each gets its own answer."""

        async def ask(n: int) -> None:
            found = await store.aio.look(a_claim(f"{n}").id)
            assert found is not None
            assert found.record.key == f"{n}"
            assert found.record.response is not None
            assert found.record.response.body == b"%d" % n

        async def crowd() -> None:
            for n in range(8):
                claim = a_claim(f"{n}")
                await store.aio.reserve(claim)
                await store.aio.finish(claim, an_outcome(b"%d" % n))
            for turn in range(60):
                doomed = [asyncio.create_task(ask(n)) for n in range(8)]
                for _ in range(turn % 5):
                    await asyncio.sleep(0)
                if turn % 3 == 0:
                    await asyncio.sleep(0.001)
                for task in doomed:
                    task.cancel()
                await asyncio.gather(*(ask(n) for n in range(8)))
                ended = await asyncio.gather(*doomed, return_exceptions=True)
                assert all(e is None or isinstance(e, asyncio.CancelledError) for e in ended)

        asyncio.run(crowd())

    def test_whoever_waits_for_a_connection_stops_waiting(self, database: str) -> None:
        """All are in use, held up by a lock: the next one is told within its deadline, and others are not
        lost to it."""
        store = PostgresStore(database, deadline=0.5)
        claims = [a_claim(f"{n}") for n in range(8)]
        for claim in claims:
            _patiently_reserved(store, claim)

        async def crowd() -> list[object]:
            with psycopg.connect(database) as holder:
                holder.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")
                finishing = [store.aio.finish(claim, an_outcome()) for claim in claims]
                more = [store.aio.look(claims[0].id) for _ in range(20)]
                return list(await asyncio.gather(*finishing, *more, return_exceptions=True))

        answers = asyncio.run(crowd())
        assert all(isinstance(answer, StoreUnavailable) for answer in answers[: len(claims)])
        assert all(isinstance(answer, StoreUnavailable | Found) for answer in answers[len(claims) :])
        store.close()


async def _ended(other: "psycopg.Connection[Any]", which: LiteralString) -> None:
    """Have the server end the sessions of ours of which this is true, as soon as there is one."""
    until = time.monotonic() + PATIENT
    while not other.execute(
        "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE application_name = 'retrysafe' "
        "AND datname = current_database() AND " + which
    ).fetchall():
        assert time.monotonic() < until
        await asyncio.sleep(0.005)


def _patiently_reserved(store: PostgresStore, claim: Claim) -> None:
    until = time.monotonic() + PATIENT
    while True:
        try:
            store.reserve(claim)
        except StoreUnavailable:
            assert time.monotonic() < until
        else:
            return


_PID = "SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'retrysafe' AND datname = %s"
