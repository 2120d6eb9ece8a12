"""The store is unavailable, in transactional mode: it is the application's own database, and nothing was
committed.

`outage.py` has the same cases in lease mode.
"""

from retrysafe.testing.adapters.abandoned_tx import settled_reply
from retrysafe.testing.adapters.client import Reply, settled
from retrysafe.testing.adapters.suite import Servers, Suite, assert_problem, assert_replay, covers


class OutageTx(Suite):
    @covers(82)
    def test_at_the_claim(self, serve: Servers, key: str, label: str) -> None:
        """A claim that was not confirmed does not protect: 503, and nothing has run."""
        api = serve.alone()
        api.post("/charges", key=key + "-other", label=label)
        with self.backing.outage(api.store):
            refused = api.post("/charges", key=key, label=label)
        assert_problem(refused, 503, "store-unavailable")
        assert int(refused.header("Retry-After") or 0) >= 1
        assert refused.header("x-should-retry") == "true"
        assert api.begun(label) == 1
        assert api.effects(label) == 1

        def send() -> Reply:
            return api.post("/charges", key=key, label=label)

        # A claim whose confirmation was lost is taken back before long.
        first = settled(send)
        assert (first.status, first.replayed) == (201, False)
        assert_replay(first, send())
        assert api.effects(label) == 2

    @covers(83, 49)
    def test_at_the_end(self, serve: Servers, key: str, label: str) -> None:
        """What could not be committed did not happen: the client gets 503, and its retry runs."""
        api = serve.alone(lease=2)

        def send() -> Reply:
            return api.lasting(key=key, label=label)

        running = api.running(send, label)
        with self.backing.outage_at_the_end(api):
            first = running.result()
        assert_problem(first, 503, "store-unavailable")
        assert int(first.header("Retry-After") or 0) >= 1
        assert first.header("x-should-retry") == "true"
        assert first.header("Idempotency-Stored") is None
        assert api.effects(label) == 0
        later = settled_reply(send)
        assert (later.status, later.replayed) == (200, False)
        assert_replay(later, send())
        assert api.begun(label) == 2
        assert api.effects(label) == 1
