"""A PostgreSQL primary and its standby, synchronous or not: to be cut off, killed and promoted.

    with PostgresReplication(synchronous=True) as servers:
        store = stores.open(servers.new_database())
        servers.fail_over()

Addresses name both servers, as those of an application do that finds the new primary by itself.
"""

import contextlib
import time
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

from retrysafe.testing.postgres import PATIENCE, PostgresServer


class PostgresReplication:
    """`synchronous`: the primary acknowledges no commit that the standby does not have on its disk."""

    def __init__(self, *, synchronous: bool, **settings: str) -> None:
        self.primary = PostgresServer(**settings)
        try:
            self.standby = self.primary.replica()
            if synchronous:
                # Not before there is one: the primary would wait for it.  And not in the standby's copy of
                # the configuration: once promoted it has none of its own.
                _set(self.primary, "synchronous_standby_names", "*")
                _until(self.primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
        except BaseException:
            self.close()
            raise
        self._link = _ask(self.standby, "SELECT current_setting('primary_conninfo')")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "standby"):
            self.standby.close()
        self.primary.close()

    def url(self, database: str) -> str:
        """Of whichever of the two takes writes."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    def new_database(self) -> str:
        """The address of an empty database, by both servers, once the standby has it."""
        name = self.primary.new_database().rpartition("/")[2]
        self.catch_up()
        return self.url(name)

    def catch_up(self) -> None:
        """Wait until the standby has replayed what the primary has committed."""
        position = _ask(self.primary, "SELECT pg_current_wal_flush_lsn()::text")
        _until(self.standby, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", position)

    def cut(self) -> None:
        """Let the standby receive nothing more; the primary goes on, or waits, if it is synchronous."""
        _set(self.standby, "primary_conninfo", "")
        _until(self.standby, "SELECT count(*) = 0 FROM pg_stat_wal_receiver")
        _until(self.primary, "SELECT count(*) = 0 FROM pg_stat_replication")

    def repair(self) -> None:
        """Let the standby receive again, and catch up."""
        _set(self.standby, "primary_conninfo", self._link)
        _until(self.primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'")

    def promote(self) -> None:
        """Make the standby a primary."""
        with _connect(self.standby) as connection:
            promoted = connection.execute("SELECT pg_promote(true, %s)", (int(PATIENCE),)).fetchone()
        if promoted != (True,):
            raise RuntimeError(f"the standby was not promoted:\n{self.standby.log}")

    def fail_over(self) -> None:
        """Kill the primary, then promote the standby."""
        self.primary.kill()
        self.promote()


def _connect(server: PostgresServer) -> "psycopg.Connection[Any]":
    return psycopg.connect(server.url("postgres"), autocommit=True, connect_timeout=5)


def _set(server: PostgresServer, name: str, value: str) -> None:
    with _connect(server) as connection:
        connection.execute(
            sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
        )
        connection.execute("SELECT pg_reload_conf()")


def _ask(server: PostgresServer, question: str, *values: str) -> str:
    with _connect(server) as connection:
        row = connection.execute(question.encode(), values).fetchone()
    assert row is not None
    value: str = row[0]
    return value


def _until(server: PostgresServer, condition: str, *values: str) -> None:
    until = time.monotonic() + PATIENCE
    with contextlib.closing(_connect(server)) as connection:
        while connection.execute(condition.encode(), values).fetchone() != (True,):
            if time.monotonic() > until:
                raise RuntimeError(f"the server did not get to {condition!r}:\n{server.log}")
            time.sleep(0.02)
