"""Goodput when more is asked for than a slow store can do.

PostgreSQL is behind a proxy that delays everything it says, as a server far away or under stress would.  What
the store can take is found by closed loops of more and more connections.  Then requests come at half of that
rate, at that rate, and at twice that rate, whatever becomes of those before.  A store that is overloaded may
refuse the rest, but must not do less than before.
"""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import cores, database, goals, records
from benchmarks.client import Client
from benchmarks.load import Order, Tally
from benchmarks.records import Place
from benchmarks.rounds import Progress
from retrysafe.testing.proxy import Proxy

MORE = 1.1
"""As long as twice the connections do so many times as much, the store can take more."""

SATURATED = 0.9
"""A server that uses so much of its core is itself what limits, and not the store."""


@dataclass(frozen=True)
class Size:
    delay: float = 0.08
    """Seconds by which everything that the database says is late: one round trip."""
    seconds: float = 12.0
    """Of each load: several times the store's deadline, or a collapse would not be seen."""
    search_seconds: float = 3.0
    most_connections: int = 256
    loads: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Times what the store can take."""

    @classmethod
    def quick(cls) -> "Size":
        return cls(delay=0.02, seconds=1.0, search_seconds=0.4, most_connections=4, loads=(1.0, 2.0))


@dataclass(frozen=True)
class Level:
    """One load, and what came of it."""

    times: float
    """Of the capacity."""
    offered: int
    offered_per_second: float
    succeeded: int
    goodput: float
    """Successes per second."""
    p50: float
    p99: float
    connections_opened: int
    """To the database, this server's start included."""
    server_share: float
    """Of its core."""
    failures: dict[str, int]

    @property
    def share(self) -> float:
        return self.succeeded / self.offered


@dataclass(frozen=True)
class Overload:
    delay: float
    seconds: float
    """Of each load."""
    capacity: float
    """Successes per second of the best closed loop."""
    connections: int
    """Of that loop."""
    search: dict[int, float]
    """Successes per second by connections."""
    is_exhausted: bool
    """Whether more connections did no more."""
    levels: list[Level] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        return asdict(self)

    def figures(self) -> dict[str, float]:
        """The one that a goal is about; none, if it was too short for a collapse to show."""
        if self.seconds < Size().seconds:
            return {}
        [twice] = [level for level in self.levels if level.times == 2]
        return {goals.OVERLOAD: twice.goodput / self.capacity}


def measure(size: Size, folder: Path, tell: Progress) -> Overload:
    server_core, client_core = cores.plan()
    with (
        database.running("PostgreSQL", client_core) as shared,
        Proxy(shared.port) as proxy,
        Client(client_core) as client,
    ):
        place = Place("PostgreSQL", folder, proxy.through(shared.new()))
        records.fill(place, 1)  # makes the tables
        proxy.delay(size.delay)
        search: dict[int, float] = {}
        connections, exhausted = 2, False
        while connections <= size.most_connections and not exhausted:
            tell(f"what the store can take: {connections} connections")
            search[connections] = _closed(client, place, server_core, connections, size.search_seconds)
            exhausted = search[connections] < MORE * search.get(connections // 2, 0.0)
            connections *= 2
        best = max(search, key=lambda known: search[known])
        found = Overload(size.delay, size.seconds, search[best], best, search, exhausted)
        for times in size.loads:
            tell(f"{times:g} times what it can take: {times * found.capacity:.0f} requests a second")
            found.levels.append(
                _open(client, place, server_core, proxy, times, times * found.capacity, size.seconds)
            )
        return found


# Each load has a server of its own: what the one before has left undone would count against it.


def _closed(client: Client, place: Place, core: int | None, connections: int, seconds: float) -> float:
    server = place.serve(core)
    try:
        server.wait()
        client.carry_out(Order(server.port, "fresh", seconds / 3, connections))
        tally = client.carry_out(Order(server.port, "fresh", seconds, connections))
        return (tally.requests - tally.errors) / tally.seconds
    finally:
        server.stop()


def _open(
    client: Client, place: Place, core: int | None, proxy: Proxy, times: float, rate: float, seconds: float
) -> Level:
    before = proxy.accepted
    server = place.serve(core)
    try:
        server.wait()
        cpu, began = server.cpu(), time.perf_counter()
        tally: Tally = client.carry_out(Order(server.port, "fresh", seconds, rate=rate))
        share = (server.cpu() - cpu) / (time.perf_counter() - began)
        return Level(
            times=times,
            offered=tally.offered,
            offered_per_second=rate,
            succeeded=tally.requests,
            goodput=tally.requests / seconds,
            p50=tally.p50,
            p99=tally.p99,
            connections_opened=proxy.accepted - before,
            server_share=share,
            failures=tally.kinds,
        )
    finally:
        server.stop()
