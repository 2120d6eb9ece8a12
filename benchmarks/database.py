"""A PostgreSQL of the benchmark's own, which every server that needs one has a database in.

It is durable: a commit is answered when it has reached the disk.  It has the core of the load generator, so
what it costs is not taken from the server that is measured, and is told beside it.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

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


PATIENCE = 30.0
"""Seconds until connections that were closed are gone from the server."""


class Counters(NamedTuple):
    """What PostgreSQL has counted so far: in one database, and of its log in all."""

    commits: int
    """Without one for each session: to log in is a transaction."""
    sessions: int
    log_bytes: int
    flushes: int | None
    """`None`: before version 18 it does not count them where it counts all that is done to files."""


class Database:
    """The server, while it runs."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def new(self) -> str:
        """The address of a database that is empty."""
        return self._server.new_database()

    @property
    def port(self) -> int:
        return self._server.port

    def counters(self, url: str) -> Counters:
        """Once no client is connected to the database: a connection reports at its end what it has done."""
        import psycopg

        name = url.rpartition("/")[2]
        with psycopg.connect(self._server.url("postgres"), autocommit=True) as connection:
            until = time.monotonic() + PATIENCE
            while connection.execute(_CLIENTS, [name]).fetchone() != (0,):
                if time.monotonic() > until:
                    raise RuntimeError(f"clients are still connected to {name} after {PATIENCE:g} s")
                time.sleep(0.02)
            row = connection.execute(_COUNTERS, [name]).fetchone()
        assert row is not None
        commits, sessions, log_bytes, flushes = row
        return Counters(commits, sessions, int(log_bytes), None if flushes is None else int(flushes))

    def cpu(self) -> float:
        """Its processor time so far.  Its processes may come and go, and what is gone is not counted."""
        return cores.cpu_seconds(self._server.pid)


_CLIENTS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"

_COUNTERS = """
    SELECT xact_commit - sessions, sessions, pg_current_wal_lsn() - '0/0',
        (SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend')
    FROM pg_stat_database WHERE datname = %s
"""


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
