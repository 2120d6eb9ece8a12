"""Between a client and a server: it counts what arrives, and loses responses when the server has worked."""

import socket
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "date", "server"})


class Exchanged(NamedTuple):
    """A request that arrived, and what the server said to it."""

    at: float
    key: str | None
    body: bytes
    status: int
    told: dict[str, str]
    """The headers of the response."""

    @property
    def replayed(self) -> bool:
        return self.told.get("idempotent-replayed") == "true"


class Network(ThreadingHTTPServer):
    """Passes requests on to `upstream`."""

    daemon_threads = True

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.losses = 0
        """So many of the next responses are lost."""
        self.exchanged: list[Exchanged] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def forget(self) -> None:
        self.exchanged.clear()

    @property
    def statuses(self) -> list[int]:
        return [each.status for each in self.exchanged]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        at, net = time.monotonic(), self.server
        assert isinstance(net, Network)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = HTTPConnection("127.0.0.1", net.upstream, timeout=20)
        upstream.request("POST", self.path, body, dict(self.headers))
        response = upstream.getresponse()
        content = response.read()
        upstream.close()
        told = {name.lower(): value for name, value in response.getheaders()}
        key = self.headers["Idempotency-Key"]
        net.exchanged.append(Exchanged(at, key, body, response.status, told))
        self.close_connection = True
        if net.losses:
            net.losses -= 1
            # Closed by RST, which is how a broken connection looks to its other end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        self.send_response(response.status)
        for name, value in told.items():
            if name not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def network(upstream: int) -> Generator[Network]:
    with Network(upstream) as found:
        thread = threading.Thread(target=found.serve_forever, args=[0.02])
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()
