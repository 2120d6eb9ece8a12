"""A bad network: a TCP proxy between the customers and the server that loses what it carries.

What happens to a request is settled by the seed and its request id, so that the same customers meet the same
mishaps with keys and without.
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

Fate = Literal["carried", "request lost", "answer lost", "answer late"]

_LATER_TRIES: tuple[Fate, ...] = ("carried", "carried", "carried", "answer lost", "request lost")
"""A retry may have bad luck too, in two cases of five."""

_BAD_TRIES = 4
"""And then the luck turns: the demo has to end."""

_REQUEST_ID = re.compile(rb"^x-request-id: *(\S+)\.(\d+)\.(\d+)\r$", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length: *(\d+)\r$", re.IGNORECASE | re.MULTILINE)


class Mishaps:
    """Which fate a request meets: the first one of each order as dealt, the later ones by chance."""

    def __init__(self, seed: int, dealt: dict[str, Fate]) -> None:
        self._seed = seed
        self._dealt = dealt

    def fate(self, order: str, click: int, tries: int) -> Fate:
        if tries == 1:
            return self._dealt[order]
        if tries > _BAD_TRIES:
            return "carried"
        return Random(f"{self._seed} {order} {click} {tries}").choice(_LATER_TRIES)  # noqa: S311 - no secret


@contextlib.contextmanager
def network(server_port: int, fate: Callable[[str, int, int], Fate]) -> Generator[int]:
    """The port to which customers connect instead of the server's."""

    class Carry(BaseRequestHandler):
        request: socket.socket

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # either end may be gone at any time: that is a network
                _carry(self.request, server_port, fate)

    with _Proxy(("127.0.0.1", 0), Carry) as proxy:
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


def _carry(customer: socket.socket, server_port: int, fate: Callable[[str, int, int], Fate]) -> None:
    request = _read_request(customer)
    found = _REQUEST_ID.search(request)
    if found is None:
        return
    order, click, tries = found.groups()
    what = fate(order.decode(), int(click), int(tries))
    answer = b"" if what == "request lost" else _ask(server_port, request)
    match what:
        case "carried" if answer:
            customer.sendall(answer)
        case "answer late":
            customer.recv(1)  # nothing comes, until the customer gives up and hangs up
        case _:
            # Closed without a goodbye (RST), which is how a broken connection looks from its end.
            customer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _ask(server_port: int, request: bytes) -> bytes:
    """The server's answer; nothing if it is not there or dies over it."""
    parts: list[bytes] = []
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server_port)) as server:
        server.sendall(request)
        while part := server.recv(65536):
            parts.append(part)
    return b"".join(parts)


def _read_request(customer: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        part = customer.recv(65536)
        if not part:
            return b""
        request += part
    head, _, body = request.partition(b"\r\n\r\n")
    length = _LENGTH.search(head + b"\r")
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0:
        part = customer.recv(65536)
        if not part:
            return b""
        request += part
        missing -= len(part)
    return request
