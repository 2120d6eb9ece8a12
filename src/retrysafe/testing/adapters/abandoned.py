"""Killed and frozen workers, in lease mode: held as unknown, or taken over and run again, by choice.

`abandoned_tx.py` has the same cases in transactional mode.
"""

from contextlib import closing

import pytest

from retrysafe import stores
from retrysafe.stores.admin import Query
from retrysafe.testing.adapters.client import Reply, settled, until
from retrysafe.testing.adapters.crash import DISCONNECTED, Lease, crash
from retrysafe.testing.adapters.server import Server, address
from retrysafe.testing.adapters.suite import Servers, Suite, assert_problem, assert_replay, covers


class Abandoned(Suite):
    @covers(76, 50)
    def test_killed_and_held(self, serve: Servers, key: str, label: str) -> None:
        """In flight until the lease ends, then unknown: the effect may have happened, and had."""
        api = serve.alone(lease=2)
        lease = Lease(2)
        crash(api, key, label)

        def send() -> Reply:
            return api.post("/crash", key=key, label=label)

        lease.assert_in_flight(send)
        unknown = settled(send)
        assert_problem(unknown, 409, "outcome-unknown")
        assert unknown.header("x-should-retry") == "false"
        assert send().code == "outcome-unknown"
        assert_problem(api.post("/charges", key=key, label=label), 422, "key-reused")
        assert api.effects(label) == 1

    @covers(76)
    def test_killed_and_taken_over(self, serve: Servers, key: str, label: str) -> None:
        """`abandoned=retry`: runs again after the lease, and not before."""
        api = serve.alone(lease=2, abandoned="retry")
        lease = Lease(2)

        def send() -> Reply:
            return api.lasting(key=key, label=label)

        running = api.running(send, label)
        api.restart()
        with pytest.raises(DISCONNECTED):
            running.result()
        lease.assert_in_flight(send)
        after = settled(send)
        assert after.status == 200
        assert send().essence == after.essence
        assert api.effects(label) == 2

    @covers(76)
    def test_one_takes_over(self, serve: Servers, key: str, label: str) -> None:
        """Of many who wait for the lease to end, one runs, and the others get its response."""
        api = serve.alone(lease=1, abandoned="retry")

        def send() -> Reply:
            return api.lasting(key=key, label=label)

        running = api.running(send, label)
        api.restart()
        with pytest.raises(DISCONNECTED):
            running.result()
        futures = [api.started(lambda: settled(send)) for _ in range(5)]
        replies = sorted((future.result() for future in futures), key=lambda found: found.replayed)
        assert (replies[0].status, replies[0].replayed) == (200, False)
        for reply in replies[1:]:
            assert_replay(replies[0], reply)
        assert api.effects(label) == 2

    @covers(78)
    @pytest.mark.parametrize("abandoned", ["hold", "retry"])
    def test_a_handler_outlives_its_lease(self, serve: Servers, key: str, label: str, abandoned: str) -> None:
        """The lease is renewed as long as the handler runs: in flight to the end, and one run."""
        api = serve(lease=1, abandoned=abandoned)

        def send() -> Reply:
            return api.lasting(key=key, seconds=2.0, label=label)

        running = api.running(send, label)
        done = settled(send)
        assert_replay(running.result(), done)
        assert api.effects(label) == 1

    @covers(76)
    def test_frozen_and_overtaken(self, serve: Servers, key: str, label: str) -> None:
        """A worker that slept through its lease tells its client what its successor stored."""
        frozen = serve.alone(workers=1, lease=1, abandoned="retry")
        other = serve.beside(frozen, workers=1, lease=1, abandoned="retry")

        def send(api: Server) -> Reply:
            return api.lasting(key=key, label=label)

        running = frozen.running(lambda: send(frozen), label)
        frozen.freeze()
        try:
            successor = settled(lambda: send(other))
        finally:
            frozen.thaw()
        assert (successor.status, successor.replayed) == (200, False)
        assert running.result().essence == successor.essence
        assert_replay(successor, send(frozen))
        assert other.effects(label) == 2

    @covers(76)
    def test_frozen_and_held(self, serve: Servers, key: str, label: str) -> None:
        """Under `hold` it is not taken over: unknown while it is frozen, and its own response after."""
        frozen = serve.alone(workers=1, lease=1)
        other = serve.beside(frozen, workers=1, lease=1)

        def send(api: Server) -> Reply:
            return api.lasting(key=key, label=label)

        running = frozen.running(lambda: send(frozen), label)
        frozen.freeze()
        try:
            unknown = settled(lambda: send(other))
        finally:
            frozen.thaw()
        assert_problem(unknown, 409, "outcome-unknown")
        first = running.result()
        assert first.status == 200
        assert_replay(first, send(other))
        assert other.effects(label) == 1

    @covers(85)
    def test_an_operator_sees_it(self, serve: Servers, key: str, label: str) -> None:
        """An abandoned key is listed for operators, without any retry."""
        if not self.backing.shared:
            pytest.skip("no other process can read it")
        api = serve.alone(lease=1)
        crash(api, key, label)
        abandoned = Query(standings=frozenset({"abandoned"}))
        with closing(stores.open(address(api.store))) as store, closing(store.open_admin()) as admin:
            until(lambda: key in [sighting.record.key for sighting in admin.list(abandoned)])
        assert api.post("/crash", key=key, label=label).code == "outcome-unknown"
        assert api.effects(label) == 1
