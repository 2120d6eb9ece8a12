"""A PostgreSQL of the benchmark's own, which every server that needs one has a database in.

It is durable: a commit is answered when it has reached the disk.  It has the core of the load generator, so
what it costs is not taken from the server that is measured, and is told beside it.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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

FLUSHES = 200


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

    def flush_seconds(self) -> float:
        """How long the disk takes to keep a page: what a lone commit waits for in any case."""
        return flush_seconds(self._server.log_file.parent)


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


def flush_seconds(folder: Path) -> float:
    """The median of some."""
    took: list[float] = []
    file = os.open(folder / "flushed", os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(FLUSHES):
            began = time.perf_counter()
            os.pwrite(file, bytes(8192), 0)
            os.fdatasync(file)
            took.append(time.perf_counter() - began)
    finally:
        os.close(file)
    return sorted(took)[len(took) // 2]
