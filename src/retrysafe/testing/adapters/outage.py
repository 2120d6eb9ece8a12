"""The store is unavailable: nothing runs unprotected, and no outcome is withheld from the client."""

from concurrent.futures import wait

from retrysafe.testing.adapters.client import Reply, settled
from retrysafe.testing.adapters.suite import (
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
)


class Outage(Suite):
    @covers(82)
    def test_at_the_claim(self, serve: Servers, key: str, label: str) -> None:
        """A claim that was not confirmed does not protect: 503, and nothing has run.

        As soon as the store is back, the same key works; requests without one never noticed.
        """
        api = serve.alone()
        api.post("/charges", key=key + "-other", label=label)
        with self.backing.outage(api.store):
            refused = api.post("/charges", key=key, label=label)
            assert api.post("/charges", label=label).status == 201
        assert_problem(refused, 503, "store-unavailable")
        assert int(refused.header("Retry-After") or 0) >= 1
        assert refused.header("x-should-retry") == "true"
        assert api.effects(label) == 2

        def send() -> Reply:
            return api.post("/charges", key=key, label=label)

        # A claim whose confirmation was lost is taken back before long.
        first = settled(send)
        assert (first.status, first.replayed) == (201, False)
        assert_replay(first, send())
        assert api.effects(label) == 3

    @covers(83)
    def test_at_the_end(self, serve: Servers, key: str, label: str) -> None:
        """The client gets its response, marked as not stored, and it does not run again.

        Not within the lease, when the store is away or back, nor after it.
        """
        api = serve.alone(lease=2)

        def send() -> Reply:
            return api.lasting(key=key, label=label)

        running = api.running(send, label)
        with self.backing.outage(api.store):
            meanwhile = send()
            first = running.result()
        assert meanwhile.code in ("in-flight", "store-unavailable")
        assert first.status == 200
        assert first.header("Idempotency-Stored") == "false"
        assert not first.replayed
        later = settled(send)
        assert_problem(later, 409, "outcome-unknown")
        assert api.effects(label) == 1

    @covers(83)
    def test_a_short_one_at_the_end(self, serve: Servers, key: str, label: str) -> None:
        """A store that comes back within the lease gets the outcome after all."""
        api = serve.alone(lease=10)

        def send() -> Reply:
            return api.lasting(key=key, seconds=0.3, label=label)

        running = api.running(send, label)
        with self.backing.outage(api.store):
            # Long after the handler has ended, its response is still held back.
            assert wait([running], timeout=1).not_done
        first = running.result()
        assert first.status == 200
        assert first.header("Idempotency-Stored") is None
        assert_replay(first, send())
        assert api.effects(label) == 1
