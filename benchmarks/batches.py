"""How many operations a store puts into one commit, and what that saves, by the number of connections.

Counted by the databases themselves, from outside, so it holds for whatever the store does inside.  A fresh
key is two operations, a reservation and a completion, and has to be durable after each: two commits when it
is alone.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import cores, records
from benchmarks.client import Client
from benchmarks.database import Database
from benchmarks.growth import available, server_of, trust
from benchmarks.load import Order, Tally
from benchmarks.records import Place
from benchmarks.rounds import Progress
from retrysafe import stores

OPERATIONS = 2
"""Of a fresh key."""

LEVELS = (1, 8, 32, 128)
"""Connections."""

INDEXED = 32
"""Connections, to see what more indexes cost."""


@dataclass(frozen=True)
class Batches:
    """What the database counted while fresh keys came over so many connections."""

    store: str
    connections: int
    keys: int
    commits: int
    flushes: int | None = None
    """Of the log.  SQLite has one per commit, and counts none; nor does Valkey."""
    log_bytes: int | None = None
    database_cpu: float | None = None
    """Seconds of the database server per key."""
    opened: int | None = None
    """Connections to the database server, in all."""
    indexes: bool = False
    """Whether operators have asked for all indexes that they can have."""

    @property
    def commits_per_key(self) -> float:
        return self.commits / self.keys

    @property
    def size(self) -> float:
        """Operations per commit."""
        return OPERATIONS * self.keys / self.commits

    def document(self) -> dict[str, object]:
        return {**asdict(self), "operations_per_commit": self.size}


def measure(
    seconds: float, levels: Sequence[int], folder: Path, tell: Progress, only: Sequence[str] = ()
) -> list[Batches]:
    found: list[Batches] = []
    for store in available(only):
        with server_of(store) as shared:
            for connections in levels:
                tell(f"{store}: batches, {connections} connections")
                place = Place.new(store, folder / store / str(connections), shared)
                records.fill(place, 1)  # makes the tables
                if shared is None:
                    found.append(_sqlite(place, connections, seconds))
                else:
                    found.append(_on_server(place, connections, seconds, shared))
            if store == "PostgreSQL" and shared is not None:
                tell(f"{store}: batches, with indexes for operators")
                place = Place.new(store, folder / store / "indexes", shared)
                with (
                    closing(stores.open(place.url)) as store_there,
                    closing(store_there.open_admin()) as admin,
                ):
                    admin.migrate(["request-id", "scope"])
                measured = _on_server(place, INDEXED, seconds, shared)
                found.append(replace(measured, indexes=True))
    return found


def _sqlite(place: Place, connections: int, seconds: float) -> Batches:
    with _traffic(place) as (client, port):
        trust(client.carry_out(Order(port, "fresh", seconds / 4, connections)))
        before = sqlite_commits(place)
        tally = client.carry_out(Order(port, "fresh", seconds, connections))
        trust(tally)
        commits = (sqlite_commits(place) - before) % 2**32
        return Batches("SQLite", connections, tally.all_requests, commits)


def sqlite_commits(place: Place) -> int:
    """So many transactions have been written to the log.

    The third word of the log's index counts them, whichever connection they came by (`iChange` in the file
    format's "WAL-Index Header", in the byte order of the machine).
    """
    assert place.file is not None
    with place.file.with_name(place.file.name + "-shm").open("rb") as index:
        _version, _unused, commits = struct.unpack("=3I", index.read(12))
    return int(commits)


def _on_server(place: Place, connections: int, seconds: float, shared: Database) -> Batches:
    """A process of PostgreSQL reports late, but at its end at the latest: so counts are read without any.

    What a server does as it starts is among them, some statements beside thousands.
    """
    before = shared.counters(place.url)
    with _traffic(place) as (client, port):
        tally: Tally = client.carry_out(Order(port, "fresh", seconds / 4, connections))
        trust(tally)
        keys, used = tally.all_requests, shared.cpu()
        tally = client.carry_out(Order(port, "fresh", seconds, connections))
        trust(tally)
        used, keys = shared.cpu() - used, keys + tally.all_requests
    after = shared.counters(place.url)
    return Batches(
        place.store,
        connections,
        keys,
        commits=after.commits - before.commits,
        flushes=None if after.flushes is None or before.flushes is None else after.flushes - before.flushes,
        log_bytes=after.log_bytes - before.log_bytes,
        database_cpu=used / tally.all_requests,
        opened=after.sessions - before.sessions,
    )


@contextmanager
def _traffic(place: Place) -> Iterator[tuple[Client, int]]:
    server_core, client_core = cores.plan()
    server = place.serve(server_core)
    try:
        server.wait()
        with Client(client_core) as client:
            yield client, server.port
    finally:
        server.stop()
