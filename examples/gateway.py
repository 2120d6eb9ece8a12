"""A gateway between clients and a service that loses responses.

It passes requests on, some of them twice, and destroys responses *after* the service has worked: it says 502
instead, or cuts the connection before the response or in the middle of it.
"""

import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

Loss = Literal["502 instead", "cut before", "cut within"]
LOSSES: tuple[Loss, ...] = ("502 instead", "cut before", "cut within")

_TIMEOUT = 30.0
"""Seconds for the service to respond: far more than it takes."""

_NOT_PASSED_ON = frozenset({"accept-encoding", "connection", "content-length", "host"})
"""What belongs to one connection, or is made anew for the next."""


_REPLAYED = "idempotent-replayed"


class Fault(NamedTuple):
    """What the gateway does to a request."""

    twice: bool
    loss: Loss | None


class Response(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Proxy:
    """Listens on a port of its own for as long as the `with` lasts."""

    def __init__(self, upstream: int, *, lose: float = 0.2, repeat: float = 0.05, seed: int = 1) -> None:
        self.upstream = upstream
        """The port of the service.  It may change: a service that is started again gets another one."""
        self.lose = lose
        """The share of responses that are destroyed."""
        self.repeat = repeat
        """The share of requests that are sent twice, at the same moment."""
        self.counts: Counter[str] = Counter()
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._copies = ThreadPoolExecutor(8)
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._copies.shutdown()
        self._server.server_close()

    def destroyed(self) -> int:
        return sum(self.counts[loss] for loss in LOSSES)

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def draw(self) -> Fault:
        """The fault that the next request meets."""
        with self._lock:
            twice = self._random.random() < self.repeat
            return Fault(twice, self._random.choice(LOSSES) if self._random.random() < self.lose else None)

    def forward(self, path: str, headers: Mapping[str, str], body: bytes, *, twice: bool) -> Response | None:
        """The service's response, to one of the two if it was sent twice.  None: its worker has died."""
        copy = self._copies.submit(self._send, path, headers, body) if twice else None
        response = self._send(path, headers, body)
        if copy is not None:
            self.count("sent twice")
            copy.result()
        return response

    def _send(self, path: str, headers: Mapping[str, str], body: bytes) -> Response | None:
        """On a connection of its own: either worker may take it, and a retry may meet the other one."""
        connection = HTTPConnection("127.0.0.1", self.upstream, timeout=_TIMEOUT)
        try:
            connection.request("POST", path, body, {**headers, "Connection": "close"})
            response = connection.getresponse()
            found = Response(response.status, response.getheaders(), response.read())
        except (OSError, HTTPException):
            self.count("no response")
            return None
        finally:
            connection.close()
        self.count(f"status {found.status}")
        if any(name.lower() == _REPLAYED and value == "true" for name, value in found.headers):
            self.count("replayed")
        return found


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # the kernel must not refuse a burst of connections
    block_on_close = False

    def __init__(self, address: tuple[str, int], proxy: Proxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the client has gone, or was killed
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a response leaves in one piece
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        proxy = self.server.proxy
        proxy.count("requests")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED_ON}
        twice, loss = proxy.draw()
        response = proxy.forward(self.path, headers, body, twice=twice)
        if response is None:
            self._respond(Response(502, [], b"the service did not respond"))
            return
        if loss is not None:
            proxy.count(loss)
        match loss:
            case None:
                self._respond(response)
            case "502 instead":
                self._respond(Response(502, [], b"bad gateway"))
            case "cut before":
                self.close_connection = True
            case "cut within":
                self._respond(response, missing=1 + len(response.body) // 2)
                self.close_connection = True

    def _respond(self, response: Response, missing: int = 0) -> None:
        self.send_response_only(response.status)
        for name, value in response.headers:
            if name.lower() not in ("connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body[: max(0, len(response.body) - missing)])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: it counts."""
