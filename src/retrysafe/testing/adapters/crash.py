"""Crashes and leases: a worker dies or freezes, a client hangs up, and nothing happens twice."""

import http.client
import time
from collections.abc import Callable

import pytest

from retrysafe.testing.adapters.client import Reply, common, settled, until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    STRICT,
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)

DISCONNECTED = (http.client.HTTPException, OSError)


def crash(api: Server, key: str, label: str) -> None:
    """Have the worker kill itself after its effect, and wait until the service answers again."""
    with pytest.raises(DISCONNECTED):
        api.post("/crash", key=key, label=label)
    api.revive()


class Lease:
    """A lease that begins later than this is made, and so certainly lasts for its length from now on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._made = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._made

    def assert_in_flight(self, send: Callable[[], Reply]) -> None:
        """A retry is refused with hints while it lasts.  A machine that is too slow for it proves nothing."""
        reply = send()
        if self.elapsed < self._seconds:
            assert_problem(reply, 409, "in-flight")
            assert int(reply.header("Retry-After") or 0) >= 1


class Crash(Suite):
    @covers(76)
    def test_other_keys_go_on(self, serve: Servers, key: str, label: str) -> None:
        """A worker that died blocks its own key, and nothing else."""
        api = serve.alone(lease=30)
        first = api.post("/charges", key=key, label=label)
        crash(api, fresh(), fresh("label"))
        assert_replay(first, api.post("/charges", key=key, label=label))
        assert api.post("/charges", key=fresh(), label=label).status == 201

    @covers(81)
    @pytest.mark.parametrize("at_once", [True, False])
    def test_the_client_hangs_up(self, api: Server, key: str, label: str, at_once: bool) -> None:
        """The handler is not told: its outcome is recorded, and the retry gets it."""
        target = f"/stream?chunks=9&ms=50&label={label}"
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])
        with api.connect() as connection:
            connection.head("POST", target, fields)
            until(lambda: at_once or api.effects(label) == 1)

        def send() -> Reply:
            with api.connect() as connection:
                connection.head("POST", target, fields)
                return connection.reply()

        done = settled(send)
        assert (done.status, len(done.body.splitlines())) == (200, 9)
        assert done.replayed or at_once
        assert api.effects(label) == 1

    @covers(81, 62)
    def test_the_client_hangs_up_while_its_response_flows(self, serve: Servers, key: str, label: str) -> None:
        """No client has all of it, and none can get the rest: a tombstone or a failure, no second run."""
        api = serve(**STRICT)
        target = f"/stream?chunks=60&ms=15&label={label}"
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])

        def send() -> Reply:
            with api.connect() as connection:
                connection.head("POST", target, fields)
                return connection.reply()

        with api.connect() as connection:
            connection.head("POST", target, fields)
            assert connection.response().read(100)
        retry = settled(send)
        assert retry.header("Idempotency-Body") == "omitted" or retry.status >= 400
        assert api.effects(label) == 1

    @covers(81, 46)
    def test_the_client_hangs_up_before_its_body_is_complete(self, api: Server, key: str, label: str) -> None:
        """Half a request claims nothing: the key is free for a whole one."""
        with api.connect() as connection:
            fields = common(key, "alice", [("Content-Length", "1000")])
            connection.head("POST", f"/charges?label={label}", fields)
            connection.send(b"{")
            assert connection.is_silent(0.05)
        reply = api.post("/charges", key=key, body=b"whole", label=label)
        assert (reply.status, reply.replayed) == (201, False)
        assert api.effects(label) == 1

    def test_a_rolling_deploy(self, serve: Servers, key: str, label: str) -> None:
        """SIGTERM: what runs is finished and stored, and the next process replays it."""
        old = serve.alone(grace=10)
        new = serve.beside(old)

        def send(api: Server) -> Reply:
            return api.lasting(key=key, label=label)

        running = old.running(lambda: send(old), label)
        old.terminate()
        first = running.result()
        assert first.status == 200
        assert old.exit_status() == 0
        assert_replay(first, send(new))
        assert new.effects(label) == 1
