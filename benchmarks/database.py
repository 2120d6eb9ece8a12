"""A PostgreSQL of the benchmark's own, which every server that needs one has a database in.

It is durable: a commit is answered when it has reached the disk.  It has the core of the load generator, so
what it costs is not taken from the server that is measured, and is told beside it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import cores
from retrysafe.testing.postgres import PostgresServer

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    # A checkpoint is due by time, as on any server, and not because so many servers write in so short a time.
    "max_wal_size": "4GB",
    # All of them are running at once, each with pools of its own.
    "max_connections": "500",
}


class Database:
    """The server, while it runs."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def new(self) -> str:
        """The address of a database that is empty."""
        return self._server.new_database()

    def cpu(self) -> float:
        """Its processor time so far.  Its processes may come and go, and what is gone is not counted."""
        return cores.cpu_seconds(self._server.pid)


@contextmanager
def running(core: int | None) -> Iterator[Database]:
    """Start it on this core."""
    before = os.sched_getaffinity(0)
    cores.pin(core)  # children begin where their parent is
    try:
        server = PostgresServer(**SETTINGS)
    finally:
        os.sched_setaffinity(0, before)
    with server:
        yield Database(server)
