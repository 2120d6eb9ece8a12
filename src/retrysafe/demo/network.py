"""A bad network: a TCP proxy between the customers and the server that loses requests and responses.

What happens to a request follows from the seed and its request id, so that the same customers meet the same
faults with keys and without.
"""

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Generator
from random import Random
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Literal

Fault = Literal["none", "request lost", "response lost", "response late"]

_RETRY_FAULTS: tuple[Fault, ...] = ("none", "none", "none", "response lost", "request lost")
"""A retry meets a fault too, in two cases of five."""

_MAX_FAULTS = 4
"""Attempts that may meet a fault.  Later ones do not: the demo has to end."""

_REQUEST_ID = re.compile(rb"^x-request-id: *(\S+)\.(\d+)\.(\d+)\r$", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length: *(\d+)\r$", re.IGNORECASE | re.MULTILINE)


class Faults:
    """Which fault a request meets: the first one of each order as given, the later ones at random."""

    def __init__(self, seed: int, first: dict[str, Fault]) -> None:
        self._seed = seed
        self._first = first

    def fault(self, order: str, click: int, attempt: int) -> Fault:
        if attempt == 1:
            return self._first[order]
        if attempt > _MAX_FAULTS:
            return "none"
        return Random(f"{self._seed} {order} {click} {attempt}").choice(_RETRY_FAULTS)  # noqa: S311 - no secret


@contextlib.contextmanager
def bad_network(server_port: int, fault: Callable[[str, int, int], Fault]) -> Generator[int]:
    """The port to which customers connect instead of the server's."""

    class Handler(BaseRequestHandler):
        request: socket.socket

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # either end may be gone at any time: that is a network
                _forward(self.request, server_port, fault)

    with _Proxy(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=[0.05], daemon=True)
        thread.start()
        try:
            yield proxy.server_address[1]
        finally:
            proxy.shutdown()
            thread.join()


class _Proxy(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


def _forward(client: socket.socket, server_port: int, fault: Callable[[str, int, int], Fault]) -> None:
    request = _read_request(client)
    found = _REQUEST_ID.search(request)
    if found is None:
        return
    order, click, attempt = found.groups()
    met = fault(order.decode(), int(click), int(attempt))
    response = b"" if met == "request lost" else _send(server_port, request)
    match met:
        case "none" if response:
            client.sendall(response)
        case "response late":
            client.recv(1)  # returns when the client gives up and closes
        case _:
            # Closed by RST, which is how a broken connection looks to its other end.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _send(server_port: int, request: bytes) -> bytes:
    """The server's response; empty if the server is not running, cut short if it is killed meanwhile."""
    parts: list[bytes] = []
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server_port)) as server:
        server.sendall(request)
        while part := server.recv(65536):
            parts.append(part)
    return b"".join(parts)


def _read_request(client: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        part = client.recv(65536)
        if not part:
            return b""
        request += part
    head, _, body = request.partition(b"\r\n\r\n")
    length = _LENGTH.search(head + b"\r")
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0:
        part = client.recv(65536)
        if not part:
            return b""
        request += part
        missing -= len(part)
    return request
