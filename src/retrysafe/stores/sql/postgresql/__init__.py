"""PostgreSQL: the store for production.  Many machines, many processes, threads and coroutines.

    store.py        the two faces, blocking and for coroutines
    database.py     what one process has of the database, and how operations run
    pooling.py      connections for threads; looping.py connections for the coroutines of an event loop
    executor.py     one blocking connection, for whoever needs it to himself
    renewer.py      the lease keeper's; chores.py what it does besides; listening.py hears when records end
    session.py      what is said on a connection, by libpq; wire.py how; waiting.py how a thread waits for it
    trouble.py      what went wrong, and whether to try again; burial.py ends what broke off
    connecting.py   addresses; borrowing.py the application's pools; opening.py tables, versions, replicas
    layout.py       which of our tables are there, and of which version; migration.py makes them
    admin.py        the operator's end; desk.py its transactions, operator.py its connection
    diagnosis.py    what could be wrong with records and tables; surroundings.py with what they depend on
    statements/     the SQL

**Durable**: an answer is given only after its commit has reached the server's disk, even where the role or
the database has `synchronous_commit=off`.
**Bounded**: no operation waits longer than the deadline, for a connection, a lock or an answer.
**One clock**: all times are the server's; a worker sends durations only.
**Poolers**: nothing depends on a session, so a pooler in transaction mode may stand between.  Where it cannot
keep prepared statements, they are given up.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrysafe.stores.sql.postgresql.store import AsyncPostgresStore, PostgresStore

__all__ = ["AsyncPostgresStore", "PostgresStore"]


def __getattr__(name: str) -> object:
    # Not before they are asked for: statements, checks and the operator's end are used with other drivers
    # too, where there may be no psycopg.
    if name in __all__:
        from retrysafe.stores.sql.postgresql import store

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
