"""What a transaction on SQLite needs besides, whichever driver it goes through.

`BEGIN IMMEDIATE`, because a transaction that reads first and then writes is refused if another connection
wrote in between, and our own reservation did; the store's file lock, as every writer of the store takes it;
and durability, because a response is sent as soon as it is committed.  sqlite3 begins transactions by itself,
and only before some statements: that is switched off meanwhile.
"""

import sqlite3
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from retrysafe.errors import CommitRefused, NotDone, StoreUnavailable
from retrysafe.stores.sql.sqlite import SQLiteStore


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
        except Exception as error:
            raise NotDone("the database is busy") from error

    def end(self, connection: Connection) -> None:
        driver: Any = (
            None if connection.invalidated or connection.closed else connection.connection.dbapi_connection
        )
        if driver is not None:
            driver.isolation_level = self._isolation_level
        self._lock.close()

    def not_committed(self, error: Exception) -> CommitRefused | StoreUnavailable:
        if isinstance(error, sqlite3.IntegrityError) or "no such table" in str(error):
            return CommitRefused(f"SQLite refused to commit a guarded call: {error}")
        return StoreUnavailable(f"SQLite could not commit a guarded call: {error}")
