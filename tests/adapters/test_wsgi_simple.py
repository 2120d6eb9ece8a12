"""The server of the standard library, which does the least that PEP 3333 asks: no chunks, no known end."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.validate import validator

import pytest

from retrysafe import Guard, scopes
from retrysafe.testing.adapters.client import Client
from retrysafe.testing.adapters.suite import assert_problem, assert_replay, fresh
from retrysafe.wsgi import Middleware


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    write = start_response("201 Created", [("Content-Type", "text/plain")])
    write(fresh("run").encode())
    yield body


@pytest.fixture
def api() -> Iterator[Client]:
    with closing(Guard("memory:", scope=scopes.header("Authorization"), max_response=100)) as guard:
        app = validator(Middleware(validator(respond), guard))
        server: WSGIServer = make_server("127.0.0.1", 0, app, handler_class=Quiet)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield Client(server.server_port)
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_a_retry(api: Client, size: int) -> None:
    """Nothing, a little, and more than is held: read to its length and no further, and run once."""
    key, body = fresh("key"), b"." * size
    first, second = (api.post("/", key=key, body=body) for _ in range(2))
    assert (first.status, len(first.body)) == (201, len(fresh("run")) + size)
    if size < 100:
        assert_replay(first, second)
    else:
        assert (second.status, second.body, second.header("Idempotency-Body")) == (201, b"", "omitted")
    assert_problem(api.post("/", key=key, body=body + b"!"), 422, "key-reused")
