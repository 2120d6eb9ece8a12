"""The SQLite store: a file; the rest is `sql/store.py`.

Claims look before they write.  One that finds something is mostly a replay, and a reader answers it, past any
lock and any queue; one that finds nothing is decided by a writer alone, in its transaction.
"""

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from retrysafe._core.model import Claim, Found, Reservation
from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.stores.options import CLEANUP_INTERVAL, check_deadline
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.cleanup import Cleanup
from retrysafe.stores.sql.join import Joint
from retrysafe.stores.sql.keeper import SQLRenewer
from retrysafe.stores.sql.sqlite.admin import SQLiteAdmin
from retrysafe.stores.sql.sqlite.connection import Clock
from retrysafe.stores.sql.sqlite.database import Database
from retrysafe.stores.sql.sqlite.filelock import FileLock
from retrysafe.stores.sql.sqlite.join import not_committed
from retrysafe.stores.sql.store import AsyncSQLStore, SQLStore

C = TypeVar("C", bound=sqlite3.Connection)

_OLDEST = (3, 35, 0)
"""The first SQLite with RETURNING, which makes an operation one statement."""

_REST = 0.002
"""Seconds between two commits of a cleanup: a process that waits for the lock tries every half a millisecond,
and must find it free."""


class SQLiteStore(SQLStore):
    """Records in an SQLite file.

    A process has one connection that writes for its threads and one for each event loop, and up to two more
    of each after trouble; one for the lease keeper; and up to eight that read.  It creates its tables, unless
    `migrated_by` names a command that does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        deadline: float = 2.0,
        cleanup_interval: Duration | None = CLEANUP_INTERVAL,
        clock: Clock | None = None,
        migrated_by: str | None = None,
    ) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise ConfigurationError(
                f"this Python has SQLite {sqlite3.sqlite_version}: expected 3.35 or later. "
                "Use a Python that is linked with a newer SQLite"
            )
        check_deadline(deadline)
        # Absolute, because the file is opened later, and perhaps after a change of directory.
        self.path = os.path.abspath(path)
        self.deadline = deadline
        self._cleanup = Cleanup(cleanup_interval, _REST)
        self._sqlite = Database(self.path, deadline, clock, migrated_by)
        self.joint = Joint("sqlite", not_committed, self._sqlite.clock)
        super().__init__(self._sqlite)
        self.aio = AsyncSQLiteStore(self._sqlite)

    def __repr__(self) -> str:
        return f"<SQLiteStore {self.path}>"

    def file_lock(self) -> FileLock:
        """What a transaction of the caller's own has to hold while it writes; see `filelock.py`."""
        return FileLock(self.path)

    def connect(self, connect: Callable[[str], C]) -> C:
        """A connection of the caller's own to this file, opened by an SQLite URI."""
        return self._sqlite.connect(connect)

    def verify_file(self) -> None:
        """Raise `FileReplaced` if the path names another file than the one that the store began with."""
        self._sqlite.file.verify()

    def reserve(self, claim: Claim) -> Reservation:
        found = self._sqlite.read(partial(operations.find_existing, claim), claim.id)
        return super().reserve(claim) if found is None else found

    def look(self, id: bytes) -> Found | None:
        return self._sqlite.read(partial(operations.look, id), id)

    def open_keeper(self) -> SQLRenewer:
        return SQLRenewer(self._sqlite.executor(), self.deadline, self._cleanup)

    def open_admin(self) -> SQLiteAdmin:
        return SQLiteAdmin(self.path, self._sqlite.clock, self.deadline)

    def close(self) -> None:
        self._sqlite.close()


class AsyncSQLiteStore(AsyncSQLStore):
    """The same for coroutines."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._sqlite = database

    async def reserve(self, claim: Claim) -> Reservation:
        found = await self._sqlite.read_async(partial(operations.find_existing, claim), claim.id)
        return await super().reserve(claim) if found is None else found

    async def look(self, id: bytes) -> Found | None:
        return await self._sqlite.read_async(partial(operations.look, id), id)
