"""MariaDB from several processes, threads and event loops: who gets a key, what a fork inherits, and how
often the server is asked."""

import asyncio
import atexit
import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from retrysafe import stores
from retrysafe._core.model import Found, Reservation, Reserved
from retrysafe.stores.contract import Store
from retrysafe.testing.conversations import Said
from retrysafe.testing.conversations.mysql import MySQLConversation
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.proxy import Proxy
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores import workers_servers as workers
from tests.stores.rows import PATIENT
from tests.stores.rows_mysql import connect


@pytest.fixture
def url(mariadb: MariaDBServer) -> Iterator[str]:
    url = mariadb.new_database()
    yield url
    mariadb.drop_database(url)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = stores.open(url, deadline=PATIENT)
    yield store
    store.close()


def sessions(url: str) -> set[int]:
    """The store's sessions, by their number in the server."""
    with closing(connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.PROCESSLIST WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        return {number for (number,) in cursor.fetchall()}


def eventually_there_are(url: str, number: int) -> bool:
    until = time.monotonic() + PATIENT
    while len(sessions(url)) != number:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class TestProcesses:
    def test_one_of_several_processes_gets_the_key(self, url: str) -> None:
        """Eight processes that also make the tables together: each key has exactly one holder."""
        context = multiprocessing.get_context("fork")
        rounds, crowd = 20, 8
        barrier = context.Barrier(crowd)
        pipes, processes = [], []
        for _ in range(crowd):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (url, rounds, barrier, theirs)
            processes.append(context.Process(target=workers.claim_in_rounds, args=arguments))
            pipes.append(ours)
        for process in processes:
            process.start()
        mine = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
        assert sorted(round for rounds in mine for round in rounds) == list(range(rounds))

    def test_counts_of_processes_add_up(self, url: str) -> None:
        """And none waits for another in a circle."""
        context = multiprocessing.get_context("fork")
        with closing(stores.open(url).open_admin()) as admin:
            admin.migrate()
        barrier = context.Barrier(4)
        processes = [
            context.Process(target=workers.tally_in_rounds, args=(url, 25, barrier)) for _ in range(4)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        with closing(connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT verdict, count FROM retrysafe_routes ORDER BY 1")
            assert list(cursor.fetchall()) == [("completed", 100), ("replayed", 200)]

    @pytest.mark.parametrize("shift", [-3600.0, 3600.0])
    def test_a_workers_clock_does_not_matter(self, url: str, store: Store, shift: float) -> None:
        """An hour off: it sees the server's time, takes no live lease away, and writes no time of its own."""
        store.reserve(a_claim())
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=workers.look_with_a_wrong_clock, args=(url, shift, "key", theirs))
        process.start()
        now, taken, created_at = ours.recv()
        process.join()
        assert abs(now - time.time()) < 600
        assert taken is False
        assert abs(created_at - time.time()) < 600


class TestForks:
    def test_a_child_has_connections_of_its_own(self, url: str, store: Store) -> None:
        """Used before and after in the parent, in the child by threads and coroutines; the parent's
        connections are as they were: not closed by the child, and not spoken on."""

        async def use() -> Reservation:
            return await store.aio.reserve(a_claim("by coroutine"))

        with asyncio.Runner() as runner:
            runner.run(use())
            store.reserve(a_claim())
            assert eventually_there_are(url, 2), "not that by which the tables were made"
            before = sessions(url)
            child = os.fork()
            if child == 0:
                try:
                    assert isinstance(store.reserve(a_claim()), Found)
                    assert isinstance(asyncio.run(use()), Found)
                    store.close()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert eventually_there_are(url, 2)
            assert isinstance(store.reserve(a_claim()), Found)
            assert isinstance(runner.run(use()), Found)
            assert sessions(url) == before, "they were used again"

    def test_a_child_that_ends_at_once(self, url: str, store: Store) -> None:
        """Not even the end of the interpreter says goodbye in the parent's name."""
        store.reserve(a_claim())
        before = sessions(url)
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
        assert sessions(url) == before

    def test_a_fork_while_others_are_at_it(self, store: Store) -> None:
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


class TestConnections:
    def test_a_closed_loop_is_forgotten(self, url: str, store: Store) -> None:
        """A service's tests run many loops, one after the other: connections do not pile up."""
        for turn in range(5):
            asyncio.run(store.aio.reserve(a_claim(f"key {turn}")))
        assert eventually_there_are(url, 0)

    def test_there_is_a_limit(self, url: str, store: Store) -> None:
        """However many ask at once, in a loop or in threads: one connection for each."""

        async def crowd() -> None:
            await asyncio.gather(*(store.aio.reserve(a_claim(f"key {n}")) for n in range(200)))

        with asyncio.Runner() as runner:
            runner.run(crowd())
            threads = [
                threading.Thread(target=store.reserve, args=[a_claim(f"thread {n}")]) for n in range(50)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(sessions(url)) <= 6


class _Counted(MySQLConversation):
    """Notes each text that a client sends."""

    texts: list[str] = []  # noqa: RUF012 - of all connections, made anew by each test

    def said(self, data: bytes) -> Iterator[Said]:
        for said in super().said(data):
            if said.statement is not None:
                _Counted.texts.append(said.statement)
            yield said


def test_a_fresh_key_takes_two_round_trips_and_a_replay_one(mariadb: MariaDBServer, url: str) -> None:
    """And a batch as many as a single key, in either half."""
    with Proxy(mariadb.port, _Counted) as proxy, asyncio.Runner() as runner:
        store = stores.open(proxy.through(url), deadline=PATIENT)

        async def together() -> list[int]:
            numbers = []
            claims = [a_claim(f"batch {number}") for number in range(32)]
            for work in (
                [store.aio.reserve(claim) for claim in claims],
                [store.aio.finish(claim, an_outcome()) for claim in claims],
                [store.aio.reserve(a_claim(f"batch {number}")) for number in range(32)],
            ):
                before = len(_Counted.texts)
                await asyncio.gather(*work)
                numbers.append(len(_Counted.texts) - before)
            return numbers

        store.look(a_claim().id)
        runner.run(store.aio.look(a_claim().id))
        _Counted.texts = []
        claim = a_claim()
        store.reserve(claim)
        assert len(_Counted.texts) == 1
        assert store.finish(claim, an_outcome())
        assert len(_Counted.texts) == 2
        assert isinstance(store.reserve(a_claim()), Found)
        assert len(_Counted.texts) == 3
        assert runner.run(together()) == [1, 1, 1]
        store.close()
