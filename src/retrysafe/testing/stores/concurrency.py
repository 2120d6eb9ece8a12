"""Concurrency: many callers at once."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

from retrysafe._core.model import Found, Reservation, Reserved
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.harness import Elapse, Harness, a_claim, an_outcome, the_record

CROWD = 100

_ENDING = 5.0
"""Seconds: far more than a thread takes to end that has nothing left to do."""


def all_at_once(claim: Callable[[], Reservation]) -> Counter[type]:
    """Run it in a hundred threads that start together; how many got what."""
    barrier = threading.Barrier(CROWD)
    replies: list[Reservation] = []

    def run() -> None:
        barrier.wait()
        replies.append(claim())

    threads = [threading.Thread(target=run) for _ in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Counter(type(reply) for reply in replies)


class Concurrency(Harness):
    """Concurrency within one process, and the life of the store itself."""

    def test_one_of_a_hundred_threads_gets_the_key(self, store: Store) -> None:
        """And the other ninety-nine find its record; none fails."""
        assert all_at_once(lambda: store.reserve(a_claim())) == {Reserved: 1, Found: CROWD - 1}

    def test_one_of_a_hundred_tasks_gets_the_key(self, store: Store) -> None:
        """The same in one event loop."""

        async def crowd() -> list[Reservation]:
            return await asyncio.gather(*(store.aio.reserve(a_claim()) for _ in range(CROWD)))

        replies = Counter(type(reply) for reply in asyncio.run(crowd()))
        assert replies == {Reserved: 1, Found: CROWD - 1}

    def test_one_of_a_hundred_successors_takes_over(self, store: Store, elapse: Elapse) -> None:
        """An abandoned attempt has one successor, however many judged it abandoned."""
        first = a_claim()
        store.reserve(first)
        elapse(31.0)
        replies = all_at_once(lambda: store.take_over(a_claim(), first.token, "in_progress"))
        assert replies == {Reserved: 1, Found: CROWD - 1}
        assert the_record(store, first).attempt == 2

    def test_different_keys_do_not_meet(self, store: Store) -> None:
        """Tasks with keys of their own all run, and each finds its own outcome."""

        async def one(n: int) -> bytes:
            claim = a_claim(f"key {n}")
            assert await store.aio.reserve(claim) == Reserved(1)
            assert await store.aio.finish(claim, an_outcome(b"%d" % n))
            found = await store.aio.look(claim.id)
            assert found is not None
            assert found.record.response is not None
            return found.record.response.body

        async def crowd() -> list[bytes]:
            return await asyncio.gather(*map(one, range(CROWD)))

        assert asyncio.run(crowd()) == [b"%d" % n for n in range(CROWD)]

    def test_the_halves_see_the_same_records(self, store: Store) -> None:
        """What a thread reserved a coroutine can finish, and the other way round."""
        claim = a_claim()
        store.reserve(claim)
        assert asyncio.run(store.aio.finish(claim, an_outcome())) is True
        assert the_record(store, claim).state == "completed"

    def test_a_cancelled_caller_leaves_the_store_usable(self, store: Store) -> None:
        """The step is done or not done; whichever it was, the key has at most one holder, and works."""

        async def cancel_some() -> None:
            for turns in range(20):
                claim = a_claim(f"key {turns}")
                task = asyncio.ensure_future(store.aio.reserve(claim))
                for _ in range(turns % 4):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                found = await store.aio.reserve(claim)
                assert found == Reserved(1), "done and recognised, or not done and fresh"

        asyncio.run(cancel_some())

    def test_a_closed_store_can_be_used_again(self, store: Store) -> None:
        """Closing gives back threads and connections, not records."""
        claim = a_claim()
        store.reserve(claim)
        store.close()
        store.close()
        assert store.finish(claim, an_outcome()) is True
        store.close()
        assert the_record(store, claim).state == "completed"

    def test_closing_leaves_no_thread_behind(self, store: Store) -> None:
        """After use by threads, coroutines and a keeper, as many threads are left as before."""
        before = _threads()
        claim = a_claim()
        store.reserve(claim)
        keeper = store.open_keeper()
        keeper.renew([claim])
        keeper.close()
        asyncio.run(store.aio.finish(claim, an_outcome()))
        store.close()
        for thread in _threads() - before:
            thread.join(_ENDING)  # one that has done its work may not have come to its end
        assert _threads() <= before


def _threads() -> set[threading.Thread]:
    """Without the watchdog's: all stores of a process share it, and it comes and goes."""
    return {thread for thread in threading.enumerate() if thread.name != "retrysafe-watchdog"}
