"""The load generator: a process of its own that does almost nothing per request.

It is told what to do by lines of JSON on its standard input, and answers each with one.  A bare epoll loop,
precomputed requests into which only the key is put, answers recognised by their length: two system calls and
a few microseconds per request, so that one core feeds a server that has another.  Every answer is checked all
the same: its status, its body, and whether it says that it is a replay.
"""

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import count, cycle
from typing import Any, Literal

from benchmarks import cores

Traffic = Literal["no key", "fresh", "prime", "replay"]
"""`prime` sends each of the keys that `replay` repeats, once."""

BODY = b'{"amount":100,"note":"' + b"x" * 476 + b'"}'
ANSWER = b'{"id":1,"amount":100}'
HEAD = (
    b"POST /charges HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nuser-agent: benchmark\r\naccept: */*\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\nx-tenant: acme\r\n" % len(BODY)
)

REPEATED = 1000
"""Keys that replays go round in: so many that no two connections use the same one at a time.  They look like
UUIDs, as all keys here do, because a peer takes nothing else."""

KINDS = 5
"""Kinds of errors that are told; all are counted."""

PATIENCE = 10.0
"""Seconds without any answer, after which the requests under way count as errors."""


MARK = "-replayed: true\r\n"
"""What all servers but some peers have in the head of a replay."""


@dataclass
class Order:
    """What to do."""

    port: int
    traffic: Traffic
    seconds: float = 1.0
    connections: int = 32
    replayed: str | None = MARK
    """By what a replay is known, in small letters; `None`: it is not marked, so nothing is asked of it."""
    rate: float | None = None
    """So many requests a second, by `open_loop.py`; else each connection sends when it has a response."""


@dataclass
class Tally:
    """What came of it."""

    requests: int = 0
    """Responded before the time was up."""
    seconds: float = 0.0
    all_requests: int = 0
    """Those too that were answered afterwards: what the server's CPU time was spent on."""
    cpu_seconds: float = 0.0
    """Of the load generator."""
    errors: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    offered: int = 0
    """At a rate: how many requests were due."""
    p50: float = 0.0
    """At a rate: seconds from when a request was due to its response, of those that succeeded."""
    p99: float = 0.0


def request(key: bytes | None) -> bytes:
    line = b"" if key is None else b"idempotency-key: " + key + b"\r\n"
    return HEAD + line + b"\r\n" + BODY


def source(traffic: Traffic) -> Callable[[], bytes]:
    """Gives one request after the other; raises StopIteration after the last, if there is one."""
    match traffic:
        case "no key":
            return cycle([request(None)]).__next__
        case "fresh":
            template, numbers = request(os.urandom(8).hex().encode() + b"%016d"), count()
            return lambda: template % next(numbers)
        case "prime" | "replay":
            repeated = [request(b"%032d" % number) for number in range(REPEATED)]
            return (cycle(repeated) if traffic == "replay" else iter(repeated)).__next__


def content(head: bytes, rest: bytes) -> bytes | None:
    """The body of an answer; `None` if more of it is to come."""
    _, found, length = head.partition(b"\r\ncontent-length:")
    if found:
        return rest if len(rest) >= int(length.partition(b"\r\n")[0]) else None
    if b"\r\ntransfer-encoding: chunked" not in head or not rest.endswith(b"0\r\n\r\n"):
        return None
    body = b""
    while rest != b"0\r\n\r\n":
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


class Run:
    """One order being carried out."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.mark = (order.replayed or "").encode()
        # All have what is empty.
        self.replay = order.traffic == "replay" or order.replayed is None
        self.tally = Tally()
        self.next = source(order.traffic)
        self.length = -1
        self.partial: dict[int, bytes] = {}
        self.poll = select.epoll()
        self.sockets: dict[int, socket.socket] = {}
        self.waiting: set[int] = set()

    def carry_out(self) -> Tally:
        for _ in range(self.order.connections):
            link = socket.create_connection(("127.0.0.1", self.order.port), timeout=PATIENCE)
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[link.fileno()] = link
            self.poll.register(link, select.EPOLLIN)
        cpu, began = time.process_time(), time.perf_counter()
        deadline = began + self.order.seconds
        self.waiting.update(descriptor for descriptor in self.sockets if self.send(descriptor))
        while self.waiting and time.perf_counter() < deadline:
            self.serve(going_on=True)
        self.tally.requests = self.tally.all_requests
        self.tally.seconds = time.perf_counter() - began
        while self.waiting:
            self.serve(going_on=False)
        self.tally.cpu_seconds = time.process_time() - cpu
        for link in self.sockets.values():
            link.close()
        self.poll.close()
        return self.tally

    def send(self, descriptor: int) -> bool:
        try:
            message = self.next()
            sent = self.sockets[descriptor].send(message)
        except StopIteration:
            return False
        except OSError as error:
            self.failed(f"sending: {error}")
            return False
        assert sent == len(message), "an idle connection takes a whole request"
        return True

    def serve(self, going_on: bool) -> None:
        """Take what has come, and send the next requests."""
        ready = self.poll.poll(PATIENCE)
        if not ready:
            for _ in self.waiting:
                self.failed("no answer")
            self.waiting.clear()
        for descriptor, _ in ready:
            try:
                data = self.sockets[descriptor].recv(65536)
            except OSError as error:
                self.broken(descriptor, f"receiving: {error}")
                continue
            # The usual answer first; whatever looks otherwise is taken apart.
            if (
                len(data) != self.length
                or not data.startswith(b"HTTP/1.1 201 ")
                or not data.endswith(ANSWER)
                or (self.mark in data.lower()) is not self.replay
            ) and not self.examine(descriptor, data):
                continue
            self.tally.all_requests += 1
            if not going_on or not self.send(descriptor):
                self.waiting.discard(descriptor)

    def examine(self, descriptor: int, data: bytes) -> bool:
        """Whether an answer is complete; counts it as an error if it is not the right one."""
        if not data:
            self.broken(descriptor, "the connection was closed")
            return False
        whole = self.partial.pop(descriptor, b"") + data
        head, _, rest = whole.partition(b"\r\n\r\n")
        body = content(head.lower(), rest)
        if body is None:
            self.partial[descriptor] = whole
            return False
        status = head[9:12].decode("latin-1")
        replayed = self.mark in head.lower() + b"\r\n"
        if status != "201":
            self.failed(f"status {status}: {body[:200]!r}")
        elif body != ANSWER:
            self.failed(f"another body: {body[:200]!r}")
        elif replayed is not self.replay:
            self.failed("a replay of a fresh key" if replayed else "no replay of a known key")
        elif whole == data:
            self.length = len(data)
        return True

    def broken(self, descriptor: int, kind: str) -> None:
        self.failed(kind)
        self.poll.unregister(descriptor)
        self.waiting.discard(descriptor)

    def failed(self, kind: str) -> None:
        self.tally.errors += 1
        if kind in self.tally.kinds or len(self.tally.kinds) < KINDS:
            self.tally.kinds[kind] = self.tally.kinds.get(kind, 0) + 1


def main() -> None:
    from benchmarks.open_loop import OpenLoop

    cores.pin(int(sys.argv[1]) if len(sys.argv) > 1 else None)
    for line in sys.stdin:
        given: dict[str, Any] = json.loads(line)
        order = Order(**given)
        tally = (Run(order) if order.rate is None else OpenLoop(order)).carry_out()
        print(json.dumps(asdict(tally)), flush=True)


if __name__ == "__main__":
    main()
