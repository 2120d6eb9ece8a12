"""Killed and frozen workers, in transactional mode: what was not committed is undone, so it is always taken
over.

`abandoned.py` has the same cases in lease mode.
"""

from collections.abc import Callable
from contextlib import closing

import pytest

from retrysafe import stores
from retrysafe.stores.admin import Query
from retrysafe.testing.adapters.client import Reply, eventually, settled, until
from retrysafe.testing.adapters.crash import DISCONNECTED, Lease, crash
from retrysafe.testing.adapters.server import Server, address
from retrysafe.testing.adapters.suite import Servers, Suite, assert_problem, assert_replay, covers


def settled_reply(send: Callable[[], Reply]) -> Reply:
    """Send again while another request runs, or holds the write lock."""
    return eventually(send, lambda reply: reply.code not in ("in-flight", "store-unavailable"))


class AbandonedTx(Suite):
    @covers(76)
    def test_killed_and_taken_over(self, serve: Servers, key: str, label: str) -> None:
        """In flight until the lease ends, then it runs again: what the dead one did is undone."""
        api = serve.alone(lease=2)
        lease = Lease(2)

        def send() -> Reply:
            return api.lasting(key=key, label=label)

        running = api.running(send, label)
        api.restart()
        with pytest.raises(DISCONNECTED):
            running.result()
        lease.assert_in_flight(send)
        assert_problem(api.post("/charges", key=key, label=label), 422, "key-reused")
        after = settled_reply(send)
        assert after.status == 200
        assert send().essence == after.essence
        assert api.begun(label) == 2
        assert api.effects(label) == 1

    @covers(76)
    def test_killed_by_itself_time_and_again(self, serve: Servers, key: str, label: str) -> None:
        """Each attempt writes and dies.  However often it is taken over, none of it is ever committed."""
        api = serve.alone(lease=0.5)
        for number in (1, 2):
            with pytest.raises(DISCONNECTED):
                settled_reply(lambda: api.post("/crash", key=key, label=label))
            api.revive()
            assert api.begun(label) == number
        assert api.effects(label) == 0

    @covers(76)
    def test_one_takes_over(self, serve: Servers, key: str, label: str) -> None:
        """Of many who wait for the lease to end, one runs, and the others get its response: one effect."""
        api = serve.alone(lease=1)

        def send() -> Reply:
            return api.lasting(key=key, label=label)

        running = api.running(send, label)
        api.restart()
        with pytest.raises(DISCONNECTED):
            running.result()
        assert api.effects(label) == 0
        futures = [api.started(lambda: settled_reply(send)) for _ in range(5)]
        replies = sorted((future.result() for future in futures), key=lambda found: found.replayed)
        assert (replies[0].status, replies[0].replayed) == (200, False)
        for reply in replies[1:]:
            assert_replay(replies[0], reply)
        assert api.begun(label) == 2
        assert api.effects(label) == 1

    @covers(77)
    def test_killed_before_the_commit(self, serve: Servers, key: str, label: str) -> None:
        """The handler had responded, and nothing was sent: nothing of it remains, and the retry runs."""
        api = serve.alone(lease=1.5, trapdoor=True)

        def send() -> Reply:
            return api.post("/charges", key=key, label=label)

        api.trap("before Commit")
        with pytest.raises(DISCONNECTED):
            send()
        api.revive()
        assert api.effects(label) == 0
        after = settled(send)
        assert (after.status, after.replayed) == (201, False)
        assert_replay(after, send())
        assert api.begun(label) == 2
        assert api.effects(label) == 1

    @covers(77)
    def test_killed_after_the_commit(self, serve: Servers, key: str, label: str) -> None:
        """Effect and response were one commit: the retry gets the response at once, and nothing runs."""
        api = serve.alone(lease=30, trapdoor=True)
        api.trap("after Commit")
        with pytest.raises(DISCONNECTED):
            api.post("/charges", key=key, label=label)
        api.revive()
        first, second = (api.post("/charges", key=key, label=label) for _ in range(2))
        assert (first.status, first.replayed) == (201, True)
        assert second.essence == first.essence
        assert first.document["label"] == label
        assert api.begun(label) == 1
        assert api.effects(label) == 1

    @covers(76, 77)
    def test_killed_before_the_rollback(self, serve: Servers, key: str, label: str) -> None:
        """It is undone without a rollback, because it was never committed."""
        api = serve.alone(lease=1, trapdoor=True)

        def send() -> Reply:
            return api.post("/flaky", key=key, fail=1, label=label)

        api.trap("before RollBack")
        with pytest.raises(DISCONNECTED):
            send()
        api.revive()
        assert api.effects(label) == 0
        after = settled(send)
        assert (after.status, after.replayed) == (201, False)
        assert api.effects(label) == 1

    @covers(78)
    @pytest.mark.parametrize("when", ["effect first", "effect last"])
    def test_a_handler_outlives_its_lease(self, serve: Servers, key: str, label: str, when: str) -> None:
        """It is not overtaken, whether it has begun to write or not: one run, and all get its response."""
        api = serve(lease=1)

        def send() -> Reply:
            ask = api.lasting if when == "effect first" else api.pending
            return ask(key=key, seconds=2.0, label=label)

        running = api.at_work(send, label)
        done = settled_reply(send)
        first = running.result()
        assert first.status in (200, 201)
        assert_replay(first, done)
        assert api.begun(label) == 1
        assert api.effects(label) == 1

    @covers(76)
    def test_frozen_and_overtaken(self, serve: Servers, key: str, label: str) -> None:
        """A worker that slept through its lease tells its client what its successor committed."""
        frozen = serve.alone(workers=1, lease=1)
        other = serve.beside(frozen, workers=1, lease=1)

        def send(api: Server) -> Reply:
            return api.pending(key=key, label=label)

        running = frozen.at_work(lambda: send(frozen), label)
        frozen.freeze()
        try:
            successor = settled(lambda: send(other))
        finally:
            frozen.thaw()
        assert (successor.status, successor.replayed) == (201, False)
        assert running.result().essence == successor.essence
        assert_replay(successor, send(frozen))
        assert other.effects(label) == 1

    @covers(76)
    def test_frozen_in_its_transaction(self, serve: Servers, key: str, label: str) -> None:
        """It has written and not committed.  Overtaken, it is rolled back when it wakes up.

        Where a database has one writer at a time and it is frozen, no other can write: others get an error,
        at once and not when it wakes, and it goes on as if nothing had happened.
        """
        frozen = serve.alone(workers=1, lease=1)
        other = serve.beside(frozen, workers=1, lease=1)

        def send(api: Server) -> Reply:
            return api.lasting(key=key, label=label)

        running = frozen.running(lambda: send(frozen), label)
        frozen.freeze()
        try:
            meanwhile = settled(lambda: send(other))
        finally:
            frozen.thaw()
        first = running.result()
        if self.backing.one_writer:
            assert_problem(meanwhile, 503, "store-unavailable")
            assert first.status == 200
        else:
            assert (meanwhile.status, meanwhile.replayed) == (200, False)
            assert first.essence == meanwhile.essence
        assert_replay_of(first, send(other))
        assert other.effects(label) == 1

    @covers(85)
    def test_an_operator_sees_it(self, serve: Servers, key: str, label: str) -> None:
        """An abandoned key is listed for operators, without any retry."""
        api = serve.alone(lease=1)
        crash(api, key, label)
        abandoned = Query(standings=frozenset({"abandoned"}))
        with closing(stores.open(address(api.store))) as store, closing(store.open_admin()) as admin:
            until(lambda: key in [sighting.record.key for sighting in admin.list(abandoned)])
        assert api.effects(label) == 0


def assert_replay_of(first: Reply, retry: Reply) -> None:
    """The same response once more, whether the first one was a replay itself or not."""
    assert retry.essence == first.essence
    assert retry.replayed
