"""What a transaction on SQLite needs besides, whichever driver it goes through.

`BEGIN IMMEDIATE`, because a transaction that reads first and then writes is refused if another connection
wrote in between, and our own reservation did; the store's file lock, as every writer of the store takes it;
and durability, because a response is sent as soon as it is committed.  sqlite3 begins transactions by itself,
and only before some statements: that is switched off meanwhile.

Outside of guarded calls a session or connection of the guard's is an ordinary one, and takes the file lock
before its first statement that may write: see `stores/sql/sqlite/filelock.py`.
"""

import sqlite3
import time
from asyncio import sleep
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event, orm
from sqlalchemy.exc import OperationalError
from sqlalchemy.util import await_only

from retrysafe.errors import CommitRefused, NotDone, StoreUnavailable
from retrysafe.sqlalchemy.dialect import INFO_KEY
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.stores.sql.sqlite.file import FileReplaced
from retrysafe.stores.sql.sqlite.filelock import WriteLock

_SESSION_KEY = "retrysafe_write_locks"


def sleep_in_greenlet(seconds: float) -> None:
    await_only(sleep(seconds))


class ImmediateTransaction:
    def __init__(self, store: SQLiteStore, sleep: Callable[[float], None]) -> None:
        self._store = store
        self._sleep = sleep
        self._lock = store.file_lock()
        self._isolation_level: Any = None

    def prepare(self, connection: Connection) -> None:
        try:
            self._lock.acquire(self._store.deadline, self._sleep)
        except StoreUnavailable as error:
            raise NotDone("the database is busy") from error
        driver: Any = connection.connection.dbapi_connection
        self._isolation_level = driver.isolation_level
        driver.isolation_level = None
        cursor = driver.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA wal_autocheckpoint = 0")
        cursor.close()

    def begin(self, connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if driver.in_transaction:
            # A listener of the application's began it, as SQLAlchemy's documentation recommends for SQLite;
            # but not as an immediate transaction.
            connection.exec_driver_sql("ROLLBACK")
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            self._store.verify_file()
        except FileReplaced as error:
            raise NotDone("the database is not available") from error
        except Exception as error:
            raise NotDone("the database is busy") from error

    def verify_file(self) -> None:
        """Before the commit: to a file that was deleted or replaced meanwhile nothing is committed."""
        try:
            self._store.verify_file()
        except FileReplaced as error:
            raise CommitRefused(str(error), passing=True) from error

    def end(self, connection: Connection) -> None:
        driver: Any = (
            None if connection.invalidated or connection.closed else connection.connection.dbapi_connection
        )
        if driver is not None:
            driver.isolation_level = self._isolation_level
        self._lock.close()


@contextmanager
def locking_writes(store: object, connection: Connection) -> Generator[None]:
    """Have an ordinary connection take the file lock before it first writes, until the block ends."""
    if not isinstance(store, SQLiteStore):
        yield
        return
    lock = _lock_writes(store, connection)
    try:
        yield
    finally:
        lock()


def lock_writes_of(sessions: type[orm.Session], store: object) -> None:
    """The same for sessions of this class: from their first write to the end of their transaction."""
    if not isinstance(store, SQLiteStore):
        return

    def began(session: orm.Session, _: orm.SessionTransaction, connection: Connection) -> None:
        if INFO_KEY not in connection.info:  # else it has joined a guarded call, which holds the lock
            session.info.setdefault(_SESSION_KEY, []).append(_lock_writes(store, connection))

    def ended(session: orm.Session, transaction: orm.SessionTransaction) -> None:
        if transaction.parent is None:
            for release in session.info.pop(_SESSION_KEY, ()):
                release()

    event.listen(sessions, "after_begin", began)
    event.listen(sessions, "after_transaction_end", ended)


def _lock_writes(store: SQLiteStore, connection: Connection) -> Callable[[], None]:
    """Gives the function that releases it."""
    wait = sleep_in_greenlet if connection.dialect.is_async else time.sleep
    lock = WriteLock(store.path, store.deadline, wait)

    def before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        try:
            lock.acquire_for(statement)
        except StoreUnavailable as error:
            original = sqlite3.OperationalError(f"database is locked: {error}")
            raise OperationalError(statement, None, original) from error

    event.listen(connection, "before_cursor_execute", before)

    def release() -> None:
        event.remove(connection, "before_cursor_execute", before)
        lock.release()

    return release
