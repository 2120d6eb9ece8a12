"""The transaction of one guarded call on a connection of SQLAlchemy's.

It is opened by the first session or connection that needs it, and ended by the guard alone.  On an
asynchronous engine the same code runs inside of SQLAlchemy's greenlets: only how it is called and how it
waits differ.
"""

import time
from asyncio import sleep
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from retrysafe._core.model import Claim, Final
from retrysafe._runtime.transactions import Opening
from retrysafe.errors import CommitRefused, NotJoined, StoreUnavailable
from retrysafe.events import log
from retrysafe.sqlalchemy.dialect import JOINED, watching
from retrysafe.sqlalchemy.savepoints import Turns
from retrysafe.sqlalchemy.sqlite import ImmediateTransaction
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.join import Joint, not_committed, sqlstate
from retrysafe.stores.sql.operations import Arguments, Row
from retrysafe.stores.sql.sqlite import SQLiteStore

_CLOSED = "a handler closed or invalidated the connection of its guard's transaction"

_AUTOCOMMIT = (
    "this guard's engine is in autocommit, where every statement is committed by itself: nothing could be "
    "committed together with the answer. Give the guard an engine that is not, and use "
    'engine.execution_options(isolation_level="AUTOCOMMIT") for what needs it'
)


class AlchemyTransaction:
    """The transaction of one guarded call."""

    def __init__(self, store: Any, engine: Engine) -> None:  # noqa: ANN401 - whatever has a joint and this engine
        joint = store.joint
        assert isinstance(joint, Joint)
        self._joint = joint
        self._store = store
        self._engine = engine
        self._sqlite = ImmediateTransaction(store, self._sleep) if isinstance(store, SQLiteStore) else None
        self.opening = Opening()
        self._connection: Connection | None = None
        self.turns = Turns()
        self.ours = True
        """Whether it is the guard that is beginning or ending it just now."""

    _sleep: Callable[[float], None] = staticmethod(time.sleep)

    @property
    def begun(self) -> bool:
        return self._connection is not None

    def connection_for(self, bind: Engine | Connection, session: object) -> Connection:
        """The transaction's connection, for a session that would use this one."""
        if bind.engine.pool is not self._engine.pool:
            raise NotJoined(
                f"a session of the guard's was about to use another database, {bind.engine.url!r}: what is "
                "written there could not be committed with the answer. Use a session of its own for it"
            )
        return self.connection(session)

    def connection(self, user: object) -> Connection:
        """The transaction's connection, for a session or block."""
        self.turns.asking = user
        if self._connection is None:
            with self.opening.once():
                connection = self._begin()
                try:
                    self.opening.keep(lambda: self._take(connection))
                except BaseException:
                    self.ours = True
                    connection.invalidate()
                    self._close(connection)
                    raise
            return connection
        return self._connection

    def _take(self, connection: Connection) -> None:
        self._connection = connection

    def _begin(self) -> Connection:
        self.ours = True
        engine = _watched(self._store, self._engine)
        connection = engine.connect()
        self._info = connection.info
        self._info[JOINED] = self
        try:
            if self._sqlite is not None:
                self._sqlite.prepare(connection)
            self._whole = connection.begin()
            if self._sqlite is not None:
                self._sqlite.begin(connection)
            elif getattr(connection.connection.dbapi_connection, "autocommit", False):
                raise NotJoined(_AUTOCOMMIT)
        except BaseException:
            self._close(connection)
            raise
        self.ours = False
        return connection

    def commit(self, claim: Claim, final: Final) -> bool:
        connection = self._connection
        assert connection is not None
        self.ours = True
        try:
            if not self._whole.is_active:
                raise CommitRefused(_CLOSED)
            self._undo_uncommitted(connection)
            if self.turns.spoiled:
                raise CommitRefused(self.turns.spoiled)
            kept = self._joint.perform(operations.conclude(claim, final), self._fetch)
            if kept:
                self._whole.commit()
        except DBAPIError as error:
            raise self._translated(error) from error
        except connection.dialect.loaded_dbapi.Error as error:  # what was said to the driver itself
            raise not_committed(error, sqlstate(error)) from error
        except NotJoined as error:
            raise CommitRefused(str(error)) from error
        except OSError as error:  # pg8000 lets some of them through
            raise StoreUnavailable(f"a guarded call was cut off at its commit: {error}") from error
        except SQLAlchemyError as error:
            raise CommitRefused(f"SQLAlchemy refused the commit: {error}") from error
        finally:
            self.roll_back()
        return kept

    def _translated(self, error: DBAPIError) -> CommitRefused | StoreUnavailable:
        original = error.orig if isinstance(error.orig, Exception) else error
        if self._sqlite is not None:
            return self._sqlite.not_committed(original)
        return not_committed(original, None if error.connection_invalidated else sqlstate(original))

    def _undo_uncommitted(self, connection: Connection) -> None:
        while (nested := connection.get_nested_transaction()) is not None:
            log.warning("a session was in use when its call had answered: its last changes are undone")
            nested.rollback()

    def _fetch(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        connection = self._connection
        assert connection is not None
        if connection.dialect.driver != "psycopg":
            return [tuple(row) for row in connection.execute(_text(sql), arguments)]
        # Past SQLAlchemy, which would need as long again to wrap one statement and the row that comes back.
        driver: Any = connection.connection.dbapi_connection
        if driver is None:
            raise CommitRefused(_CLOSED)
        return self._fetch_directly(getattr(driver, "driver_connection", driver), sql, arguments)

    def _fetch_directly(self, driver: Any, sql: str, arguments: Arguments) -> Sequence[Row]:  # noqa: ANN401 - a connection of psycopg's
        from retrysafe.stores.sql.cursors import fetch

        return fetch(driver, sql, arguments)

    def roll_back(self, *, discard: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self.ours = True
        try:
            if discard:
                connection.invalidate()
            elif self._whole.is_active:
                self._whole.rollback()
            elif not (connection.closed or connection.invalidated):
                connection.connection.rollback()  # over in SQLAlchemy's eyes, and not in the database's
        except (SQLAlchemyError, OSError) as error:
            # The server undoes what it was not told to commit, as soon as it notices that we are gone.
            log.warning("a guarded call was not rolled back but cut off: %s", error)
            connection.invalidate()
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        try:
            if self._sqlite is not None:
                self._sqlite.end(connection)
        finally:
            self._info.pop(JOINED, None)
            connection.close()


_engines: "WeakKeyDictionary[object, Engine]" = WeakKeyDictionary()


def _watched(store: object, engine: Engine) -> Engine:
    """The same engine, with the same pool, whose connections are ended by the guard alone; once made."""
    try:
        return _engines[store]
    except KeyError:
        watched = engine.execution_options()
        watched.dialect = watching(engine)
        return _engines.setdefault(store, watched)


_text = cache(text)
"""Made once of each of our statements: SQLAlchemy then remembers what it has compiled of it, too."""


def _sleep_in_greenlet(seconds: float) -> None:
    await_only(sleep(seconds))


class AsyncAlchemyTransaction(AlchemyTransaction):
    """The same on an asynchronous engine."""

    def __init__(self, store: Any, engine: AsyncEngine) -> None:  # noqa: ANN401 - as above
        super().__init__(store, engine.sync_engine)
        self._async_engine = engine

    _sleep = staticmethod(_sleep_in_greenlet)

    def _fetch_directly(self, driver: Any, sql: str, arguments: Arguments) -> Sequence[Row]:  # noqa: ANN401 - as above
        from retrysafe.stores.sql.cursors import fetch_async

        return await_only(fetch_async(driver, sql, arguments))

    async def connection_async(self) -> AsyncConnection:
        return AsyncConnection(self._async_engine, await greenlet_spawn(self.connection, object()))

    async def commit_async(self, claim: Claim, final: Final) -> bool:
        return await greenlet_spawn(self.commit, claim, final)

    async def roll_back_async(self, *, discard: bool = False) -> None:
        await greenlet_spawn(self.roll_back, discard=discard)
