"""MySQL and MariaDB: statements for what both document, of which only MariaDB's are tested here.

    store.py            an address
    connect.py          what addresses say
    database.py         what one process has open: a queue for its threads, and one for each event loop
    executor.py         runs batches; session.py one connection, by PyMySQL or asyncmy
    batch.py            calls as statements; texts.py writes them; rows.py reads what came of them
    retry.py            errors of the server, and which are retried
    schema.py           tables, versions, and what a server must be able to do
    admin.py            the operator's end; doctor.py checks server, tables and records
    *.sql               the statements

**Durable**: as the server is; `innodb_flush_log_at_trx_commit=1` is its default, and `retrysafe doctor` says
if it is not so.
**Bounded**: no operation waits longer than the deadline, for a connection, a lock or a result.
**One clock**: all times are the server's, in UTC; a worker sends durations only.
"""

from typing import TYPE_CHECKING

from retrysafe._core.times import Duration
from retrysafe.stores.options import CLEANUP_INTERVAL

if TYPE_CHECKING:
    from retrysafe.stores.sql.mysql.store import MySQLStore

__all__ = ["MySQLStore", "open_url"]


def open_url(
    url: str, *, deadline: float, cleanup_interval: Duration | None = CLEANUP_INTERVAL
) -> "MySQLStore":
    from retrysafe.stores.sql.mysql.store import MySQLStore

    return MySQLStore(url, deadline=deadline, cleanup_interval=cleanup_interval)


def __getattr__(name: str) -> object:
    # Not before it is asked for: statements, checks and the operator's end are used with other drivers too,
    # where there may be no PyMySQL.
    if name == "MySQLStore":
        from retrysafe.stores.sql.mysql import store

        return store.MySQLStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
