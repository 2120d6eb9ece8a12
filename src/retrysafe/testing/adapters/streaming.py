"""Responses that are sent before they are complete, in lease mode: they cannot be taken back, nor run again.

`streaming_tx.py` has the same cases in transactional mode.
"""

from http.client import IncompleteRead

import pytest

from retrysafe.testing.adapters.client import Reply, common, settled
from retrysafe.testing.adapters.passthrough import arrivals
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import STRICT, Servers, Suite, assert_problem, covers


class Streaming(Suite):
    @covers(62, 74)
    def test_guarded_events_arrive_one_by_one(self, api: Server, key: str, label: str) -> None:
        """An event stream with a key is not held either: it flows, and leaves a tombstone."""
        target = f"/stream?as=events&chunks=10&ms=60&label={label}"
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])
        with api.connect() as connection:
            connection.head("POST", target, fields)
            times = arrivals(connection)
        assert len(times) == 10
        assert times[-1] >= 9 * 0.06 * 0.8
        with api.connect() as connection:
            connection.head("POST", target, fields)
            retry = connection.reply()
        assert (retry.status, retry.body) == (200, b"")
        assert retry.header("Idempotency-Body") == "omitted"
        assert api.effects(label) == 1

    @covers(50, 62)
    def test_a_stream_that_breaks_while_it_flows(self, serve: Servers, key: str, label: str) -> None:
        """The first client sees that it broke off; the retry learns that it failed."""
        api = serve(**STRICT)

        def send() -> Reply:
            return api.post("/break", key=key, chunks=100, label=label)

        with pytest.raises(IncompleteRead):
            send()
        retry = settled(send)
        assert_problem(retry, 500, "handler-failed")
        assert retry.replayed
        assert retry.header("x-should-retry") == "false"
        assert api.effects(label) == 1

    @covers(76, 74)
    @pytest.mark.parametrize("abandoned", ["hold", "retry"])
    def test_killed_while_its_response_flows(
        self, serve: Servers, key: str, label: str, abandoned: str
    ) -> None:
        """Bytes of it have been sent: it is not taken over, whatever the policy."""
        api = serve.alone(lease=1, abandoned=abandoned, max_response=100)
        target = f"/stream?chunks=100&ms=100&label={label}"
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])

        def send() -> Reply:
            with api.connect() as connection:
                connection.head("POST", target, fields)
                return connection.reply()

        with api.connect() as connection:
            connection.head("POST", target, fields)
            assert connection.response().read(100)
            api.restart()
        assert_problem(settled(send), 409, "outcome-unknown")
        assert api.effects(label) == 1
