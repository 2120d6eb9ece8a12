"""SQLite: the default store.  No server, one machine, any number of processes and threads.

    store.py        the two faces, blocking and for coroutines
    database.py     what one process has of the file
    writer.py       the one thread that writes, with group commit; jobs.py what it is given, chores.py what
                    it does besides
    readers.py      connections that read in the caller's own thread, past any lock
    renewer.py      the lease keeper's connection
    admin.py        the operator's connection; diagnosis.py what could be wrong with the file, surroundings.py
                    with what it depends on
    connection.py   sqlite3 itself: pragmas, transactions, errors; opening.py tables and their version
    filelock.py     keeps checkpoints and writes apart; forking.py keeps forks and connections apart
    hostclock.py    one time for all processes
    statements/     the SQL

**Durable**: WAL with `synchronous=FULL`; an answer is given only after its commit has reached the disk.
**Bounded**: no operation waits longer than the deadline (the first of a process, which opens the file, twice
that), whoever is frozen holding the write lock, and replays do not wait for that lock at all.
**Local**: the file must be on a disk of this machine, never on a network share.
"""

from retrysafe.stores.sql.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
