"""Responses that would be sent before they are complete, in transactional mode: nothing is sent before the
commit.

`streaming.py` has the same cases in lease mode.
"""

from retrysafe.testing.adapters.client import Reply, common, settled, until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import MAX_RESPONSE, STRICT, Servers, Suite, assert_problem, covers


class StreamingTx(Suite):
    @covers(62)
    def test_guarded_events_are_refused(self, api: Server, key: str, label: str) -> None:
        """An event stream cannot wait for its end: an error, nothing committed, and the log says why."""
        for _ in range(2):
            reply = api.post("/stream", key=key, chunks=3, label=label, **{"as": "events"})
            assert_problem(reply, 500, "handler-failed")
            assert not reply.replayed
        until(lambda: "event stream" in api.log)
        assert api.effects(label) == 0

    @covers(61, 62)
    def test_nothing_leaves_before_the_commit(self, serve: Servers, key: str, label: str) -> None:
        """However large it is: not a byte of it while it is not certain, and then all of it."""
        api = serve(**STRICT)
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])
        with api.connect() as connection:
            connection.head("POST", f"/stream?chunks=50&ms=20&label={label}", fields)
            until(lambda: api.written(label) > 0)
            silent = connection.is_silent(0.4)
            committed = api.effects(label)
            reply = connection.reply()
        assert silent or committed == 1  # unless this test was too slow to see any of it
        assert (reply.status, len(reply.body.splitlines())) == (200, 50)
        assert len(reply.body) > MAX_RESPONSE
        assert api.effects(label) == 1

    @covers(62)
    def test_a_large_stream_that_breaks(self, serve: Servers, key: str, label: str) -> None:
        """Beyond the limit too: an error instead of half a response, and everything is undone."""
        api = serve(**STRICT)
        for _ in range(2):
            reply = api.post("/break", key=key, chunks=100, label=label)
            assert_problem(reply, 500, "handler-failed")
        assert api.effects(label) == 0

    @covers(61, 74, 77)
    def test_killed_while_its_response_is_sent(self, serve: Servers, key: str, label: str) -> None:
        """The first byte is sent after the commit: a tombstone, and no second run."""
        api = serve.alone(lease=1, max_response=MAX_RESPONSE)
        target = f"/big?bytes=30000000&label={label}"
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])

        def send() -> Reply:
            with api.connect() as connection:
                connection.head("POST", target, fields)
                return connection.reply()

        with api.connect() as connection:
            connection.head("POST", target, fields)
            assert connection.response().read(100)
            api.restart()
        retry = settled(send)
        assert (retry.status, retry.body, retry.replayed) == (200, b"", True)
        assert retry.header("Idempotency-Body") == "omitted"
        assert api.effects(label) == 1
