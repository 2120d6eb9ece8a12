"""What the client does with each kind of response, against a server that responds by a list."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest

from examples.agent_platform.client import KEY, AgentClient, Refused, Unsettled
from examples.agent_platform.storm import QuickClient

CUT = 0
"""In place of a status: the connection is closed without a response."""


class Reply:
    def __init__(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"{}") -> None:
        self.status = status
        self.headers = {**(headers or {}), "Content-Length": str(len(body))}
        self.body = body


class Arrived(NamedTuple):
    at: float
    key: str | None
    body: bytes
    token: str | None


class Scripted(ThreadingHTTPServer):
    """A real server that gives one reply after the other, and the last one for ever."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._left = list(replies)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.arrived: list[Arrived] = []

    def next_reply(self) -> Reply:
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Scripted)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key, token = self.headers[KEY], self.headers["Authorization"]
        self.server.arrived.append(Arrived(time.monotonic(), key, body, token))
        reply = self.server.next_reply()
        if reply.status == CUT:
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what arrived is asserted."""


@contextmanager
def scripted(*replies: Reply) -> Generator[Scripted]:
    with Scripted(*replies) as script:
        thread = threading.Thread(target=script.serve_forever, args=[0.01])
        thread.start()
        try:
            yield script
        finally:
            script.shutdown()
            thread.join()


def send(script: Scripted, key: str | None = None, client: type[AgentClient] = QuickClient) -> int:
    with client(script.url) as agent:
        return agent.send("/api/stories", {"intent": "one"}, key).status_code


def test_the_same_key_on_every_retry() -> None:
    """One key per action, and the same bytes, until a response arrives."""
    with scripted(Reply(CUT), Reply(502), Reply(503), Reply(504), Reply(201)) as script:
        assert send(script) == 201
    assert len(script.arrived) == 5
    assert len({(one.key, one.body) for one in script.arrived}) == 1
    first = script.arrived[0].key
    with scripted(Reply(201)) as script:
        assert send(script) == 201
    assert first is not None
    assert script.arrived[0].key not in (None, first)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"Retry-After": "1"}, 1.0), ({"Retry-After": "1", "Retry-After-Ms": "300"}, 0.3)],
)
def test_it_waits_as_it_is_asked_to(headers: dict[str, str], seconds: float) -> None:
    """In the finer figure where there is one."""
    with scripted(Reply(409, {**headers, "X-Should-Retry": "true"}), Reply(201)) as script:
        assert send(script, "a key") == 201
    first, second = script.arrived
    assert second.at - first.at >= seconds
    assert (first.key, second.key) == ("a key", "a key")


@pytest.mark.parametrize("status", [409, 422, 500, 502])
def test_it_stops_where_a_retry_does_not_help(status: int) -> None:
    """Whatever the status is, and whatever it would do without that header."""
    with scripted(Reply(status, {"X-Should-Retry": "false"})) as script:
        assert send(script) == status
    assert len(script.arrived) == 1


def test_a_500_that_was_undone() -> None:
    """The platform says that it may be sent again."""
    with scripted(Reply(500, {"X-Should-Retry": "true"}), Reply(201)) as script:
        assert send(script) == 201


def test_a_token_that_expired() -> None:
    """The client gets another one and sends the same key."""
    identity = Reply(201, body=b'{"id": 7, "secret": "s", "dweller": 8}')
    one, two = (Reply(201, body=b'{"token": "%d"}' % number) for number in (1, 2))
    with scripted(identity, one, Reply(401), two, Reply(201)) as script, QuickClient(script.url) as agent:
        agent.register("ada", "register")
        agent.send("/api/stories", {"intent": "one"}, "a key")
    sent = [(arrived.key, arrived.token) for arrived in script.arrived if arrived.key == "a key"]
    assert sent == [("a key", "Bearer 1"), ("a key", "Bearer 2")]


def test_an_agent_that_gets_no_token() -> None:
    """It is told so, and nothing was sent."""
    identity = Reply(201, body=b'{"id": 7, "secret": "s", "dweller": 8}')
    with scripted(identity, Reply(403)) as script, QuickClient(script.url) as agent:
        agent.register("ada", "register")
        with pytest.raises(Refused, match="agent 7 gets no token: 403"):
            agent.send("/api/stories", {"intent": "one"}, "a key")
    assert [arrived for arrived in script.arrived if arrived.key == "a key"] == []


def test_it_gives_up() -> None:
    """… and does not say that nothing was done."""

    class Hasty(QuickClient):
        patience = 0.2

    with scripted(Reply(502)) as script, pytest.raises(Unsettled, match=r"no final response in 0\.2 s"):
        send(script, client=Hasty)
    assert len(script.arrived) > 1
