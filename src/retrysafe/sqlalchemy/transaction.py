"""The transaction of one guarded call on a connection of SQLAlchemy's.

The first session or connection that needs it begins it, and only the guard ends it.  On an asynchronous
engine the same code runs inside SQLAlchemy's greenlets: only how it is called and how it waits differ.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from retrysafe._core.model import Claim, Final, Found
from retrysafe._runtime.transactions import BeginLock, Previous, refuse_event_loop
from retrysafe.errors import CommitRefused, NotJoined, StoreUnavailable
from retrysafe.events import log
from retrysafe.sqlalchemy.dialect import INFO_KEY, watching
from retrysafe.sqlalchemy.savepoints import SavepointStack
from retrysafe.sqlalchemy.sqlite import ImmediateTransaction, sleep_in_greenlet
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.drivers import holder_of_socket, plain
from retrysafe.stores.sql.join import Joint, NotCommitted, connection_lost
from retrysafe.stores.sql.mysql.join import DEADLOCKED
from retrysafe.stores.sql.sqlite import SQLiteStore

T = TypeVar("T")

_CLOSED = (
    "a handler closed or invalidated the connection of its guarded call, so nothing was committed: close "
    "sessions instead, and leave the connection to the guard"
)

_LEFT_TO_CALLER = (
    "the session of an operation had uncommitted changes when its function returned, and they are undone: a "
    "caller that commits them afterwards would come too late, because the record is committed now. Call "
    "session.commit() to commit in the function"
)
"""A request that forgets its commit has no effect, as without a guard.  A function that is passed its session
often leaves the commit to its caller: the effect would be lost, and retries be told that it happened."""

_AUTOCOMMIT = (
    "this guard's engine is in autocommit, where every statement is committed by itself: nothing could be "
    "committed together with the response. Give the guard an engine without autocommit, and use "
    'engine.execution_options(isolation_level="AUTOCOMMIT") where you need it'
)


class AlchemyTransaction:
    """The transaction of one guarded call."""

    def __init__(self, store: Any, engine: Engine) -> None:  # noqa: ANN401 - any store with a joint and this engine
        joint = store.joint
        assert isinstance(joint, Joint)
        self._joint = joint
        self._store = store
        self._engine = engine
        self._sqlite = ImmediateTransaction(store, self._sleep) if isinstance(store, SQLiteStore) else None
        self.begin_lock = BeginLock()
        self._connection: Connection | None = None
        self.savepoints = SavepointStack()
        self.by_guard = True
        """Whether the guard is beginning or ending it at this moment."""
        self.mark = joint.mark
        self._concluded = False
        self._is_over = False
        self.commit_with: Callable[[], None] | None = None

    _sleep: Callable[[float], None] = staticmethod(time.sleep)
    _blocking = True

    @property
    def begun(self) -> bool:
        return self._connection is not None

    def connection_for(self, bind: Engine | Connection, session: object) -> Connection:
        """The transaction's connection, for a session that would use this one."""
        if bind.engine.pool is not self._engine.pool:
            raise NotJoined(
                f"a session of the guard's was about to use another database, {bind.engine.url!r}: what is "
                "written there could not be committed with the response. Use another session for it, one "
                "that is not the guard's"
            )
        return self.connection(session)

    def connection(self, user: object) -> Connection:
        """The transaction's connection, for a session or block."""
        self.savepoints.user = user
        if self._connection is None:
            with self.begin_lock.beginning():
                connection = self._begin()
                try:
                    self.begin_lock.begun(lambda: self._assign(connection))
                except BaseException:
                    self.by_guard = True
                    connection.invalidate()
                    self._close(connection)
                    raise
            return connection
        return self._connection

    def _assign(self, connection: Connection) -> None:
        self._connection = connection

    def _begin(self) -> Connection:
        if self._sqlite is not None and self._blocking:
            refuse_event_loop()
        self.by_guard = True
        engine = _watched(self._store, self._engine)
        connection = engine.connect()
        self._info = connection.info
        self._info[INFO_KEY] = self
        try:
            if self._sqlite is not None:
                self._sqlite.prepare(connection)
            self._whole = connection.begin()
            if self._sqlite is not None:
                self._sqlite.begin(connection)
            elif _commits_each_statement(connection):
                raise NotJoined(_AUTOCOMMIT)
            if self.mark is not None:
                connection.exec_driver_sql(self.mark)
        except BaseException:
            self._close(connection)
            raise
        self.by_guard = False
        return connection

    def commit(self, claim: Claim, final: Final) -> bool:
        connection = self._connection
        assert connection is not None
        self.by_guard = True
        try:
            if not self._whole.is_active:
                raise CommitRefused(_CLOSED)
            if claim.door == "operation" and self.savepoints.uncommitted:
                raise CommitRefused(_LEFT_TO_CALLER)
            self._undo_uncommitted(connection)
            if self.savepoints.lost:
                raise CommitRefused(DEADLOCKED, passing=True)
            if self.savepoints.refusal:
                raise CommitRefused(self.savepoints.refusal)
            if self._can_commit_with(connection):
                stored = self._joint.perform(operations.conclude_or_fail(claim, final), self._commit_with)
            else:
                self._concluded = True
                stored = self._joint.perform(operations.conclude(claim, final), self._fetch)
                if stored:
                    if self._sqlite is not None:
                        self._sqlite.verify_file()
                    self._whole.commit()
                    self._is_over = True
        except DBAPIError as error:
            raise self._translated(error) from error
        except connection.dialect.loaded_dbapi.Error as error:  # of the statements that go past SQLAlchemy
            raise self._joint.not_committed(error) from error
        except NotJoined as error:
            raise CommitRefused(str(error)) from error
        except OSError as error:  # pg8000 does not wrap all of them
            raise connection_lost(error) from error
        except SQLAlchemyError as error:
            raise CommitRefused(f"SQLAlchemy could not commit a guarded call: {error}") from error
        finally:
            self.roll_back()
        return stored

    @property
    def locks_database(self) -> bool:
        return self._sqlite is not None

    def look(self, id: bytes) -> Found | None:
        return self._perform(operations.look(id))

    def store_within(self, claim: Claim, final: Final, previous: Previous | None) -> bool:
        with self.savepoints.recording():
            return self._perform(operations.store_within(claim, final, previous))

    def _perform(self, operation: Operation[T]) -> T:
        try:
            return self._joint.perform(operation, self._fetch_watched)
        except (SQLAlchemyError, OSError) as error:
            raise StoreUnavailable(f"the database could not read or store a record: {error}") from error

    def _fetch_watched(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        """As a session's own statement: what is undone with its savepoint is undone with the record."""
        connection = self._connection
        assert connection is not None
        return _rows(connection, sql, arguments)

    def _translated(self, error: DBAPIError) -> NotCommitted:
        original = error.orig if isinstance(error.orig, Exception) else error
        if error.connection_invalidated:
            return connection_lost(original)
        return self._joint.not_committed(original)

    def _undo_uncommitted(self, connection: Connection) -> None:
        while (nested := connection.get_nested_transaction()) is not None:
            log.warning("a session was open when its guarded call ended: its uncommitted changes are undone")
            nested.rollback()

    def _fetch(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        connection = self._connection
        assert connection is not None
        if connection.dialect.driver != "psycopg":
            return _rows(connection, sql, arguments)
        # Past SQLAlchemy: its wrapping of one statement and one row would take as long again.
        driver = _driver(connection)
        if driver is None:
            raise CommitRefused(_CLOSED)
        return self._fetch_directly(driver, sql, arguments)

    def _can_commit_with(self, connection: Connection) -> bool:
        if connection.dialect.driver != "psycopg":
            return False
        from retrysafe.stores.sql.cursors import can_commit_with

        driver = _driver(connection)
        return driver is not None and can_commit_with(driver)

    def _commit_with(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        """A commit of SQLAlchemy's, for which its dialect sends the statement and the COMMIT."""
        connection = self._connection
        assert connection is not None
        rows: list[Row] = []

        def commit() -> None:
            rows.extend(self._commit_directly(_driver(connection), sql, arguments))

        self.commit_with = commit
        try:
            self._whole.commit()
        finally:
            self.commit_with = None
        return rows

    def _commit_directly(self, driver: Any, sql: str, arguments: Arguments) -> Sequence[Row]:  # noqa: ANN401 - a connection of psycopg's
        from retrysafe.stores.sql.cursors import commit_with

        return commit_with(driver, sql, arguments)

    def _fetch_directly(self, driver: Any, sql: str, arguments: Arguments) -> Sequence[Row]:  # noqa: ANN401 - a connection of psycopg's
        from retrysafe.stores.sql.cursors import fetch

        return fetch(driver, sql, arguments)

    def roll_back(self, *, discard: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self.by_guard = True
        try:
            if discard:
                connection.invalidate()
            elif self._whole.is_active:
                self._whole.rollback()
            elif not (self._is_over or connection.closed or connection.invalidated):
                connection.connection.rollback()  # ended for SQLAlchemy, and not for the database
            self._restore(connection)
        except (SQLAlchemyError, OSError, connection.dialect.loaded_dbapi.Error) as error:
            # The server rolls back what was not committed as soon as it notices that the connection is gone.
            log.warning("the rollback of a guarded call failed, its connection is dropped: %s", error)
            connection.invalidate()
        self._close(connection)

    def _restore(self, connection: Connection) -> None:
        restore = self._joint.restore
        if restore is not None and self._concluded and not (connection.closed or connection.invalidated):
            with closing(connection.connection.cursor()) as cursor:
                cursor.execute(restore)

    def fileno(self) -> int | None:
        connection = self._connection
        if connection is None or connection.closed or connection.invalidated:
            return None
        driver: Any = connection.connection.driver_connection
        try:
            found = holder_of_socket(driver)
            return None if found is None else found.fileno()
        except connection.dialect.loaded_dbapi.Error:  # closed by the handler, past SQLAlchemy
            return None

    def _close(self, connection: Connection) -> None:
        try:
            if self._sqlite is not None:
                self._sqlite.end(connection)
        finally:
            self._info.pop(INFO_KEY, None)
            connection.close()


def _rows(connection: Connection, sql: str, arguments: Arguments) -> Sequence[Row]:
    if arguments:
        result = connection.execute(_text(sql), arguments)
    else:  # nothing in it is an argument
        result = connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
    return [plain(row) for row in result] if result.returns_rows else ()


def _commits_each_statement(connection: Connection) -> bool:
    dbapi: Any = connection.connection.dbapi_connection
    if connection.dialect.name in ("mysql", "mariadb"):
        return connection.dialect.detect_autocommit_setting(dbapi)
    return bool(getattr(dbapi, "autocommit", False))


def _driver(connection: Connection) -> Any:  # noqa: ANN401 - each driver has its own
    """The driver's own connection, detached from its pool or not."""
    dbapi: Any = connection.connection.dbapi_connection
    return getattr(dbapi, "driver_connection", dbapi)


_engines: "WeakKeyDictionary[object, Engine]" = WeakKeyDictionary()


def _watched(store: object, engine: Engine) -> Engine:
    """The same engine and pool, whose connections are watched; made once per store."""
    try:
        return _engines[store]
    except KeyError:
        watched = engine.execution_options()
        watched.dialect = watching(engine)
        return _engines.setdefault(store, watched)


_text = cache(text)
"""One object per statement, so that SQLAlchemy's cache of compiled statements finds it."""


class AsyncAlchemyTransaction(AlchemyTransaction):
    """The same on an asynchronous engine."""

    def __init__(self, store: Any, engine: AsyncEngine) -> None:  # noqa: ANN401 - as above
        super().__init__(store, engine.sync_engine)
        self._async_engine = engine

    _sleep = staticmethod(sleep_in_greenlet)
    _blocking = False

    def _fetch_directly(self, driver: Any, sql: str, arguments: Arguments) -> Sequence[Row]:  # noqa: ANN401 - as above
        from retrysafe.stores.sql.cursors import fetch_async

        return await_only(fetch_async(driver, sql, arguments))

    def _commit_directly(self, driver: Any, sql: str, arguments: Arguments) -> Sequence[Row]:  # noqa: ANN401 - as above
        from retrysafe.stores.sql.cursors import commit_with_async

        return await_only(commit_with_async(driver, sql, arguments))

    async def connection_async(self) -> AsyncConnection:
        return AsyncConnection(self._async_engine, await greenlet_spawn(self.connection, object()))

    async def commit_async(self, claim: Claim, final: Final) -> bool:
        return await greenlet_spawn(self.commit, claim, final)

    async def roll_back_async(self, *, discard: bool = False) -> None:
        await greenlet_spawn(self.roll_back, discard=discard)

    async def look_async(self, id: bytes) -> Found | None:
        return await greenlet_spawn(self.look, id)

    async def store_within_async(self, claim: Claim, final: Final, previous: Previous | None) -> bool:
        return await greenlet_spawn(self.store_within, claim, final, previous)
