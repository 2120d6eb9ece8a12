"""Concurrency: what a duplicate gets while the first one is still running."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from retrysafe.testing.adapters.client import Reply, eventually
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    LONG,
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)

# A race that is lost once in fifty times is a race: `RETRYSAFE_LONG=1` looks longer.
ROUNDS = 50 if LONG else 2


class Concurrency(Suite):
    @covers(28, 29, 30, 34)
    def test_a_duplicate_meanwhile(self, api: Server, key: str, label: str) -> None:
        """409 with hints in three dialects while it runs, and the response when it is there.

        The 409 leaves no trace, or it would be what is replayed afterwards.
        """

        def send() -> Reply:
            return api.pending(key=key, label=label)

        running = api.at_work(send, label)
        refused = send()
        assert_problem(refused, 409, "in-flight")
        assert int(refused.header("Retry-After") or 0) >= 1
        assert int(refused.header("retry-after-ms") or 0) >= 1
        assert refused.header("x-should-retry") == "true"
        assert not refused.replayed
        first = running.result()
        assert first.status == 201
        assert_replay(first, send())
        assert api.effects(label) == 1

    @covers(19, 28)
    def test_another_payload_meanwhile(self, api: Server, key: str, label: str) -> None:
        """A mismatch is known at once: it does not have to wait for the outcome."""

        def send(body: bytes) -> Reply:
            return api.pending(key=key, body=body, label=label)

        running = api.at_work(lambda: send(b"one"), label)
        assert_problem(send(b"two"), 422, "key-reused")
        assert not running.done()
        assert running.result().status == 201
        assert api.effects(label) == 1

    @covers(32)
    @pytest.mark.parametrize("in_flight", ["reject", "wait"])
    def test_a_hundred_at_once(self, serve: Servers, in_flight: str) -> None:
        """One runs; the others are refused or get its response; none gets a 5xx.

        In waiting mode at most ten wait for one key, so there are both kinds of others.
        """
        api = serve() if in_flight == "reject" else serve(in_flight="wait", wait_for=1.5)
        with ThreadPoolExecutor(100) as pool:
            for _ in range(ROUNDS):
                key, label = fresh(), fresh("label")
                start = threading.Barrier(100)

                def send(key: str, label: str, start: threading.Barrier) -> Reply:
                    start.wait()
                    return api.post("/slow", key=key, ms=30, label=label)

                futures = [pool.submit(send, key, label, start) for _ in range(100)]
                replies = [future.result() for future in futures]
                seen = Counter((reply.status, reply.replayed) for reply in replies)
                assert seen[201, False] == 1, seen
                assert set(seen) <= {(201, False), (201, True), (409, False)}, seen
                assert len({reply.body for reply in replies if reply.status == 201}) == 1
                assert api.effects(label) == 1

    @covers(33)
    def test_waiting_for_the_first_one(self, serve: Servers, key: str, label: str) -> None:
        """In waiting mode a duplicate is answered late, with the response."""
        api = serve(in_flight="wait", wait_for=1.5)

        def send() -> Reply:
            return api.post("/slow", key=key, ms=500, label=label)

        futures = [api.started(send) for _ in range(3)]
        replies = sorted((future.result() for future in futures), key=lambda reply: reply.replayed)
        assert_replay(replies[0], replies[1])
        assert_replay(replies[0], replies[2])
        assert api.effects(label) == 1

    @covers(33, 29)
    def test_waiting_has_a_limit(self, serve: Servers, key: str, label: str) -> None:
        """Over the cap the waiting one is refused, as it would have been without waiting."""
        api = serve(in_flight="wait", wait_for=1.5)

        def send() -> Reply:
            return api.post("/slow", key=key, ms=2000, label=label)

        began = time.monotonic()
        futures = [api.started(send) for _ in range(2)]
        refused, first = sorted((future.result() for future in futures), key=lambda reply: -reply.status)
        assert_problem(refused, 409, "in-flight")
        assert int(refused.header("Retry-After") or 0) >= 1
        assert first.status == 201
        assert time.monotonic() - began >= 1.5
        assert api.effects(label) == 1

    @covers(33)
    def test_waiting_for_one_that_releases(self, serve: Servers, key: str, label: str) -> None:
        """If the first one says that nothing happened, one of those who waited runs."""
        api = serve(in_flight="wait", wait_for=1.5)
        futures = [api.started(lambda: api.post("/notdone", key=key, times=1, label=label)) for _ in range(4)]
        replies = [future.result() for future in futures]
        seen = Counter((reply.status, reply.replayed) for reply in replies)
        assert seen == {(503, False): 1, (201, False): 1, (201, True): 2}
        assert api.effects(label) == 1

    @covers(35)
    def test_different_keys_do_not_wait(self, api: Server, label: str) -> None:
        """Twenty requests of half a second take nothing like ten seconds.

        In transactions of a database where one can write at a time, they take turns at the end, and on a slow
        machine some may be told to come back, and do.
        """
        in_turns = self.tx and self.backing.one_writer

        def send(key: str) -> Reply:
            def once() -> Reply:
                return api.post("/slow", key=key, ms=500, label=label)

            return eventually(once, lambda reply: reply.code != "not-done") if in_turns else once()

        began = time.monotonic()
        with ThreadPoolExecutor(20) as pool:
            futures = [pool.submit(send, fresh()) for _ in range(20)]
        replies = [future.result() for future in futures]
        assert [(reply.status, reply.replayed) for reply in replies] == [(201, False)] * 20
        assert time.monotonic() - began < (20 * 0.5 if in_turns else 5)
        assert api.effects(label) == 20
