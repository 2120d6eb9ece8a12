"""Pass-through: what the layer does not cover it does not touch, delay or hold."""

import time

import pytest

from retrysafe.testing.adapters.client import Connection, Reply, common
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import Suite, covers


def arrivals(connection: Connection) -> list[float]:
    """When each line of the body came, in seconds after the first."""
    response = connection.response()
    assert response.status == 200
    times: list[float] = []
    while line := response.readline():
        if line.strip():
            times.append(time.monotonic())
    return [moment - times[0] for moment in times]


class PassThrough(Suite):
    @covers(22)
    @pytest.mark.parametrize("key", [None, "some-key-of-some-client"])
    def test_events_arrive_one_by_one(self, api: Server, key: str | None) -> None:
        """A GET is not buffered, with a key or without: the first event does not wait for the last."""
        with api.connect() as connection:
            connection.head("GET", "/events?n=12", common(key, "alice", [("Connection", "close")]))
            times = arrivals(connection)
        assert len(times) == 12
        assert times[-1] >= 11 * 0.05 * 0.8

    @covers(16)
    def test_a_stream_without_a_key_is_not_held(self, api: Server, label: str) -> None:
        """Without a key a POST passes through as it comes."""
        fields = common(None, "alice", [("Content-Length", "0"), ("Connection", "close")])
        with api.connect() as connection:
            connection.head("POST", f"/stream?chunks=10&ms=60&label={label}", fields)
            times = arrivals(connection)
        assert len(times) == 10
        assert times[-1] >= 9 * 0.06 * 0.8
        assert api.effects(label) == 1

    @covers(16)
    def test_a_body_without_a_key_is_not_read_first(self, api: Server, label: str) -> None:
        """The application decides when it reads: it sees the client go away before the end."""
        with api.connect() as connection:
            fields = common(None, "alice", [("Content-Length", "1000")])
            connection.head("POST", f"/charges?label={label}", fields)
            connection.send(b"{")
            assert connection.is_silent(0.05)
        assert api.effects(label) == 0

    @covers(25)
    def test_an_unknown_method_is_the_application_s_affair(self, api: Server, key: str, label: str) -> None:
        """Its own 405, unstored and unmarked, however often it is sent."""
        for _ in range(2):
            reply = api.request("PROPFIND", "/charges", key=key, label=label)
            assert (reply.status, reply.replayed) == (405, False)

    @covers(16)
    def test_a_response_without_a_key_has_nothing_added(self, api: Server, label: str) -> None:
        """No marker, no id, no hint: byte for byte what the application and the server said."""
        reply = api.post("/charges", label=label)
        names = {name.lower() for name, _ in reply.fields}
        assert not names & {
            "idempotent-replayed",
            "original-request-id",
            "idempotency-body",
            "idempotency-stored",
            "x-should-retry",
        }

    @covers(57)
    def test_a_connection_is_used_again(self, api: Server, key: str, label: str) -> None:
        """A replay leaves nothing over in a connection that is kept alive."""
        fields = common(key, "alice", [("Content-Length", "0")])
        with api.connect() as connection:
            replies: list[Reply] = []
            for _ in range(3):
                connection.head("POST", f"/charges?label={label}", fields)
                replies.append(connection.reply())
        assert [reply.replayed for reply in replies] == [False, True, True]
        assert len({reply.body for reply in replies}) == 1
        assert api.effects(label) == 1
