"""Requests at a rate: each is sent when it is due, whatever has become of those before it.

A closed loop (`load.py`) sends less when a server is slow, and so never offers more than it can take.  Real
clients do not wait for each other.
"""

import select
import socket
import statistics
import time
from collections import Counter

from benchmarks.load import ANSWER, PATIENCE, Order, Tally, content, source

UNDER_WAY = 1_000
"""Requests without a response at the most; one more is refused here, as the balancer in front would do it."""

TIMEOUT = 5.0
"""Seconds that a client waits.  A store's own deadline is 2, and a fresh key takes two operations of it."""

IDLE = 2.0
"""Seconds after which an idle connection is not used again: the server is about to close it."""


class OpenLoop:
    """One order being carried out."""

    def __init__(self, order: Order) -> None:
        assert order.rate is not None
        self.order = order
        self.interval = 1 / order.rate
        self.next = source(order.traffic)
        self.poll = select.epoll()
        self.sockets: dict[int, socket.socket] = {}
        self.under_way: dict[int, tuple[float, bytes]] = {}
        """By descriptor, the oldest first: when it was due, and what has come of its response."""
        self.idle: list[tuple[float, int]] = []
        self.latencies: list[float] = []
        self.kinds = Counter[str]()

    def carry_out(self) -> Tally:
        cpu, began = time.process_time(), time.perf_counter()
        offered, total = 0, round(self.order.seconds / self.interval)
        while offered < total or self.under_way:
            now = time.perf_counter()
            while offered < total and (due := began + offered * self.interval) <= now:
                self.send(due)
                offered += 1
            self.give_up(now - TIMEOUT)
            wake = began + offered * self.interval if offered < total else now + 0.1
            for descriptor, _ in self.poll.poll(max(0.0, min(wake - now, 0.1))):
                self.receive(descriptor)
        for descriptor in list(self.sockets):
            self.drop(descriptor)
        self.poll.close()
        latencies = sorted(self.latencies)
        return Tally(
            requests=len(latencies),
            seconds=self.order.seconds,
            all_requests=offered,
            cpu_seconds=time.process_time() - cpu,
            errors=self.kinds.total(),
            kinds=dict(self.kinds),
            offered=offered,
            p50=statistics.median(latencies) if latencies else 0.0,
            p99=latencies[len(latencies) * 99 // 100] if latencies else 0.0,
        )

    def send(self, due: float) -> None:
        if len(self.under_way) >= UNDER_WAY:
            self.kinds["too many under way"] += 1
            return
        descriptor = self.connection()
        self.under_way[descriptor] = (due, b"")
        try:
            self.sockets[descriptor].send(self.next())
        except OSError as error:
            self.end(descriptor, f"sending: {error}")

    def connection(self) -> int:
        """The one that was used last, or a new one."""
        if self.idle:
            since, descriptor = self.idle.pop()
            if time.perf_counter() - since < IDLE:
                return descriptor
            for _, old in [*self.idle, (since, descriptor)]:
                self.drop(old)
            self.idle.clear()
        link = socket.create_connection(("127.0.0.1", self.order.port), timeout=PATIENCE)
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sockets[link.fileno()] = link
        self.poll.register(link, select.EPOLLIN)
        return link.fileno()

    def receive(self, descriptor: int) -> None:
        try:
            data = self.sockets[descriptor].recv(65536)
        except OSError as error:
            data, kind = b"", f"receiving: {error}"
        else:
            kind = "the connection was closed"
        if descriptor not in self.under_way:
            self.idle = [(since, other) for since, other in self.idle if other != descriptor]
            self.drop(descriptor)
            return
        if not data:
            self.end(descriptor, kind)
            return
        due, before = self.under_way[descriptor]
        head, _, rest = (before + data).partition(b"\r\n\r\n")
        body = content(head.lower(), rest)
        if body is None:
            self.under_way[descriptor] = (due, before + data)
            return
        del self.under_way[descriptor]
        self.idle.append((time.perf_counter(), descriptor))
        status = head[9:12].decode("latin-1")
        if status == "201" and body == ANSWER:
            self.latencies.append(time.perf_counter() - due)
        else:
            self.kinds[f"status {status}"] += 1

    def give_up(self, before: float) -> None:
        """Requests that were due before."""
        for descriptor in [known for known, (due, _) in self.under_way.items() if due < before]:
            self.end(descriptor, "no response in time")

    def end(self, descriptor: int, kind: str) -> None:
        """A request that has no response."""
        self.kinds[kind] += 1
        del self.under_way[descriptor]
        self.drop(descriptor)

    def drop(self, descriptor: int) -> None:
        self.sockets.pop(descriptor).close()  # which takes it out of the poll, too
