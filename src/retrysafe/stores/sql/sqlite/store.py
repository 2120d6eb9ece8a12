"""The SQLite store as the contract wants it: named methods, once blocking and once for coroutines.

Claims look before they write.  One that finds something is mostly a replay, and a reader answers it without
the writer; one that finds nothing is decided by the writer alone, in its transaction.
"""

import os
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Purged,
    Reservation,
    Response,
    Unsettled,
)
from retrysafe.errors import ConfigurationError
from retrysafe.stores.sql import cleanup, operations
from retrysafe.stores.sql.sqlite.admin import SQLiteAdmin
from retrysafe.stores.sql.sqlite.connection import Clock
from retrysafe.stores.sql.sqlite.database import Database
from retrysafe.stores.sql.sqlite.filelock import FileLock
from retrysafe.stores.sql.sqlite.keeper import SQLiteRenewer

C = TypeVar("C", bound=sqlite3.Connection)

_OLDEST = (3, 35, 0)
"""The first SQLite with RETURNING, which makes an operation one statement."""


class SQLiteStore:
    """Records in an SQLite file."""

    def __init__(
        self, path: str | os.PathLike[str], *, deadline: float = 2.0, clock: Clock | None = None
    ) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise ConfigurationError(
                f"this Python has SQLite {sqlite3.sqlite_version}: expected 3.35 or later. "
                "Use a Python that is linked with a newer SQLite"
            )
        if not deadline > 0:
            raise ConfigurationError(f"deadline must be greater than 0, got {deadline:g}")
        # Absolute, because the file is opened later, and perhaps after a change of directory.
        self._database = Database(os.path.abspath(path), deadline, clock)
        self.path = self._database.path
        self.deadline = deadline
        self.joint = self._database.joint
        self.aio = AsyncSQLiteStore(self._database)

    def __repr__(self) -> str:
        return f"<SQLiteStore {self.path}>"

    def file_lock(self) -> FileLock:
        """What a transaction of the caller's own has to hold while it writes; see `filelock.py`."""
        return FileLock(self.path)

    def connect(self, connect: Callable[[str], C]) -> C:
        """A connection of the caller's own to this file, opened by an SQLite URI."""
        return self._database.connect(connect)

    def verify_file(self) -> None:
        """Raise `FileReplaced` if the path names another file than the one that the store began with."""
        self._database.verify_file()

    def reserve(self, claim: Claim) -> Reservation:
        found = self._database.read(operations.find_existing(claim), operations.reserve(claim))
        return self._database.write(operations.reserve(claim)) if found is None else found

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return self._database.write(operations.take_over(claim, previous, state))

    def look(self, id: bytes) -> Found | None:
        return self._database.read(operations.look(id), operations.look(id))

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        return self._database.write(operations.checkpoint(claim, head))

    def finish(self, claim: Claim, final: Final) -> bool:
        return self._database.write(operations.finish(claim, final))

    def release(self, claim: Claim) -> None:
        self._database.write(operations.release(claim))

    def purge(self, limit: int = 500) -> Purged:
        return cleanup.purge(self._database.write, limit)

    def open_keeper(self) -> SQLiteRenewer:
        return self._database.renewer()

    def open_admin(self) -> SQLiteAdmin:
        return self._database.admin()

    def close(self) -> None:
        self._database.close()


class AsyncSQLiteStore:
    """The same for coroutines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, claim: Claim) -> Reservation:
        found = await self._database.read_async(operations.find_existing(claim), operations.reserve(claim))
        return await self._database.write_async(operations.reserve(claim)) if found is None else found

    async def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return await self._database.write_async(operations.take_over(claim, previous, state))

    async def look(self, id: bytes) -> Found | None:
        return await self._database.read_async(operations.look(id), operations.look(id))

    async def checkpoint(self, claim: Claim, head: Response) -> bool:
        return await self._database.write_async(operations.checkpoint(claim, head))

    async def finish(self, claim: Claim, final: Final) -> bool:
        return await self._database.write_async(operations.finish(claim, final))

    async def release(self, claim: Claim) -> None:
        await self._database.write_async(operations.release(claim))
