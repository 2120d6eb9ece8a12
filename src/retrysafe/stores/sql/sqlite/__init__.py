"""SQLite: the default store.  No server, one machine, any number of processes and threads.

    store.py        the store: claims look before they write
    database.py     what one process has open: queues, readers, a clock
    executor.py     runs a batch as one transaction, in a thread or for an event loop
    readers.py      connections that read in the caller's own thread, past any lock
    admin.py        the operator's connection; doctor.py checks the file and what it depends on
    connection.py   sqlite3 itself: pragmas, transactions, errors; schema.py tables and their version
    file.py         the file: its mode, and whether its path still names it
    filelock.py     keeps checkpoints and writes apart; forking.py keeps forks and connections apart
    clock.py        one time for all processes
    *.sql           the statements: schema, records, leases, admin, doctor, fragments

**Durable**: WAL with `synchronous=FULL`; an operation returns only after its commit has reached the disk.
**Bounded**: no operation waits for another one, or for a lock, for longer than the deadline (the first of a
process, which opens the file, twice that), even if a frozen process holds the write lock, and replays do not
wait for that lock at all.  An event loop does not wait for the disk either; a thread waits for its commit.
**Local**: the file must be on a disk of this machine, never on a network share.
"""

from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.stores.options import CLEANUP_INTERVAL
from retrysafe.stores.sql.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore", "open_url"]


def open_url(
    url: str, *, deadline: float, cleanup_interval: Duration | None = CLEANUP_INTERVAL
) -> SQLiteStore:
    rest = url.removeprefix("sqlite:")
    if rest.strip("/") in ("", ":memory:"):
        raise ConfigurationError(
            "an SQLite database in memory belongs to one connection and cannot be shared by threads or "
            "processes: write memory: for a store in memory, or sqlite:///keys.db for a file"
        )
    path = rest.removeprefix("///")
    if path == rest:
        raise ConfigurationError(
            "an SQLite address needs three slashes and a path: sqlite:///relative.db or sqlite:////absolute.db"
        )
    if "?" in path:
        raise ConfigurationError(
            "an SQLite address takes no ?options: pass them as keywords, "
            "as in open('sqlite:///keys.db', deadline=2.0)"
        )
    return SQLiteStore(path, deadline=deadline, cleanup_interval=cleanup_interval)
