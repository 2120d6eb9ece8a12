"""PostgreSQL: the store for production.  Many machines, many processes, threads and coroutines.

    store.py            an address, a pool or a function that connects
    database.py         what one process has open: a queue for its threads, and one for each event loop
    executor.py         runs batches; session.py one connection, by libpq; wire.py encodes and decodes
    connect.py          addresses; application_pool.py a pool that the application made
    listen.py           wakes waiters
    retry.py            errors of the server, and which are retried
    schema.py           tables, versions, and what a server must be able to do
    admin.py            the operator's end; doctor.py checks server, tables and records
    *.sql               the statements

**Durable**: an operation returns only after its commit has reached the server's disk, even where the role or
the database has `synchronous_commit=off`.
**Bounded**: no operation waits longer than the deadline, for a connection, a lock or a result.
**One clock**: all times are the server's; a worker sends durations only.
**Poolers**: nothing depends on a session, so a pooler in transaction mode may stand between.  Where it cannot
keep prepared statements, they are given up.
"""

from typing import TYPE_CHECKING

from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.stores.options import CLEANUP_INTERVAL

if TYPE_CHECKING:
    from retrysafe.stores.sql.postgresql.store import PostgresStore

__all__ = ["PostgresStore", "open_url"]


def open_url(
    url: str, *, deadline: float, cleanup_interval: Duration | None = CLEANUP_INTERVAL
) -> "PostgresStore":
    if not url.partition(":")[2].startswith("//"):
        raise ConfigurationError(
            "a PostgreSQL address needs two slashes and a host: postgresql://user:password@host:5432/database"
        )
    from retrysafe.stores.sql.postgresql.store import PostgresStore

    return PostgresStore(url, deadline=deadline, cleanup_interval=cleanup_interval)


def __getattr__(name: str) -> object:
    # Not before they are asked for: statements, checks and the operator's end are used with other drivers
    # too, where there may be no psycopg.
    if name in ("AsyncPostgresStore", "PostgresStore"):
        from retrysafe.stores.sql.postgresql import store

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
