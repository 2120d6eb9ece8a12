"""The reference client of the documentation, against real servers that lose, refuse and forget."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from retrysafe.testing.adapters.crash import DISCONNECTED
from retrysafe.testing.adapters.server import Server, Sqlite
from retrysafe.testing.adapters.suite import fresh
from tests.docs import serving
from tests.docs.running import story

CLIENT = "docs/clients.md"


@pytest.fixture
def client() -> Iterator[dict[str, Any]]:
    """What the page defines, with less patience."""
    names = dict(story(CLIENT).names)
    return_to = names["post_once"].__globals__["GIVE_UP_AFTER"]
    yield names
    names["post_once"].__globals__["GIVE_UP_AFTER"] = return_to


def test_what_the_page_prints() -> None:
    """Its examples print what their comments say."""
    printed = "".join(ran.printed for ran in story(CLIENT).ran.values())
    paid = '201 {"paid":5}\n'
    assert printed == f"{paid}{{'paid': 5}}\n{paid}{paid}"


def test_an_answer_is_replayed(client: dict[str, Any], tmp_path: Path) -> None:
    """The same key again: the same bytes, and the card is charged once."""
    with serving.quickstart(tmp_path) as address:
        url = f"{address}/payments"
        first = client["post_once"](url, {"amount": 7}, key="k", **{"X-Tenant": "acme"})
        again = client["post_once"](url, {"amount": 7}, key="k", **{"X-Tenant": "acme"})
        other = client["post_once"](url, {"amount": 8}, key="k", **{"X-Tenant": "acme"})
    assert first == again == (201, b'{"paid":7}')
    assert other[0] == 422
    assert serving.printed(tmp_path, "uvicorn").count("charging 7") == 1


class Flaky(NamedTuple):
    """What a server does to the first requests, before it answers 201."""

    url: str
    seen: list[tuple[str | None, bytes]]


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    """It cuts the first one off, is busy for the second, in flight for the third; then it answers."""
    seen: list[tuple[str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.headers["Idempotency-Key"], body))
            match len(seen):
                case 1:
                    self.close_connection = True
                case 2:
                    self.answer(503, b"", ("Retry-After", "0"))
                case 3:
                    self.answer(409, b"{}", ("Retry-After", "0"), ("x-should-retry", "true"))
                case _:
                    self.answer(201, b"done")

        def answer(self, status: int, body: bytes, *fields: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in (*fields, ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Flaky(f"http://127.0.0.1:{server.server_port}", seen)
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_try_is_the_same_request(client: dict[str, Any], flaky: Flaky) -> None:
    """A cut connection, a 503 and a 409 are retried, with the same key and the same bytes."""
    assert client["post_once"](flaky.url, {"amount": 5}, key="k") == (201, b"done")
    assert flaky.seen == [('"k"', b'{"amount": 5}')] * 4


def test_it_gives_up_in_time(client: dict[str, Any]) -> None:
    """Nobody listens there: it says that a person should look."""
    client["post_once"].__globals__["GIVE_UP_AFTER"] = 0.2
    began = time.monotonic()
    with pytest.raises(client["Unsettled"], match="no response to the key k"):
        client["post_once"]("http://127.0.0.1:9", {}, key="k")
    assert time.monotonic() - began < 20


def test_an_unknown_outcome_is_not_retried(client: dict[str, Any], tmp_path: Path) -> None:
    """After a crash midway the client waits for the lease, and then tells its user to ask."""
    server = Server("asgi", Sqlite().new(tmp_path), tmp_path / "effects", lease=1)
    try:
        key, label = fresh("key"), fresh("label")
        with pytest.raises(DISCONNECTED):
            server.post("/crash", key=key, json_body={}, label=label)
        server.revive()
        url = f"http://127.0.0.1:{server.port}/crash?label={label}"
        with pytest.raises(client["Unsettled"], match="ask the operators"):
            client["post_once"](url, {}, key=key, Authorization="Bearer alice")
        assert server.effects(label) == 1
    finally:
        server.kill()
