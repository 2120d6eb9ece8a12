"""The transaction of one guarded call on a connection of SQLAlchemy's.

It is opened by the first session or connection that needs it, and ended by the guard alone.  On an
asynchronous engine the same code runs inside of SQLAlchemy's greenlets: only how it is called and how it
waits differ.
"""

import re
import time
from asyncio import sleep
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from retrysafe.errors import CommitRefused, NotJoined, StoreUnavailable
from retrysafe.events import log
from retrysafe.joining import Opening
from retrysafe.model import Claim, Final
from retrysafe.sqlalchemy.sqlite import ImmediateTransaction
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.joint import Joint, not_committed, sqlstate
from retrysafe.stores.sql.operations import Arguments, Row
from retrysafe.stores.sql.sqlite import SQLiteStore

_BY_HAND = (
    "the transaction of a guarded call is committed by its guard, together with the answer: inside of one "
    "use a session's commit() and rollback(), which are provisional, or leave the block of begin(guard)"
)

_ENDS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction|rollback(?!\s+(?:\w+\s+)?to\b))\b",
    re.IGNORECASE | re.DOTALL,
)
"""A statement that would end the transaction, or begin another.  Those of savepoints are not among them."""


class AlchemyTransaction:
    """The transaction of one guarded call."""

    def __init__(self, store: Any, engine: Engine) -> None:  # noqa: ANN401 - whatever has a joint and this engine
        joint = store.joint
        assert isinstance(joint, Joint)
        self._joint = joint
        self._engine = _watched(store, engine)
        self._sqlite = ImmediateTransaction(store, self._sleep) if isinstance(store, SQLiteStore) else None
        self.opening = Opening()
        self._connection: Connection | None = None
        self.ours = True
        """Whether it is the guard that is beginning or ending it just now."""

    _sleep: Callable[[float], None] = staticmethod(time.sleep)

    @property
    def begun(self) -> bool:
        return self._connection is not None

    def connection_for(self, bind: Engine | Connection) -> Connection:
        """The transaction's connection, for a session that would use this one."""
        if bind.engine.pool is not self._engine.pool:
            raise NotJoined(
                f"a session of the guard's was about to use another database, {bind.engine.url!r}: what is "
                "written there could not be committed with the answer. Use a session of its own for it"
            )
        return self.connection()

    def connection(self) -> Connection:
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
        connection = self._engine.connect().execution_options(**{_JOINED: self})
        try:
            if self._sqlite is not None:
                self._sqlite.prepare(connection)
            self._whole = connection.begin()
            if self._sqlite is not None:
                self._sqlite.begin(connection)
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
                raise CommitRefused(
                    "a handler closed or invalidated the connection of its guard's transaction"
                )
            self._undo_uncommitted(connection)
            kept = self._joint.perform(operations.conclude(claim, final), self._fetch)
            if kept:
                self._whole.commit()
        except DBAPIError as error:
            raise self._translated(error) from error
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

    def _fetch(self, sql: str, arguments: Arguments) -> list[Row]:
        assert self._connection is not None
        return [tuple(row) for row in self._connection.execute(_text(sql), arguments)]

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
        except SQLAlchemyError as error:
            # The server undoes what it was not told to commit, as soon as it notices that we are gone.
            log.warning("a guarded call was not rolled back but cut off: %s", error)
            connection.invalidate()
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        try:
            if self._sqlite is not None:
                self._sqlite.end(connection)
        finally:
            connection.close()


_JOINED = "retrysafe_transaction"

_engines: "WeakKeyDictionary[object, Engine]" = WeakKeyDictionary()


def _watched(store: object, engine: Engine) -> Engine:
    """The same engine, with the same pool, whose connections are ended by the guard alone.

    One for all calls: to listen to each connection anew costs as much as a statement.
    """
    try:
        return _engines[store]
    except KeyError:
        watched = engine.execution_options()
        event.listen(watched, "commit", _refuse)
        event.listen(watched, "rollback", _refuse)
        event.listen(watched, "before_cursor_execute", _refuse_statement)
        return _engines.setdefault(store, watched)


def _refuse(connection: Connection) -> None:
    if not _joined(connection).ours:
        raise NotJoined(_BY_HAND)


def _refuse_statement(connection: Connection, _: object, statement: str, *__: object) -> None:
    # What it had committed could not be undone any more, and its retry would do it again.
    if not _joined(connection).ours and _ENDS.match(statement):
        raise NotJoined(_BY_HAND)


def _joined(connection: Connection) -> AlchemyTransaction:
    found = connection.get_execution_options()[_JOINED]
    assert isinstance(found, AlchemyTransaction)
    return found


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

    async def connection_async(self) -> AsyncConnection:
        return AsyncConnection(self._async_engine, await greenlet_spawn(self.connection))

    async def commit_async(self, claim: Claim, final: Final) -> bool:
        return await greenlet_spawn(self.commit, claim, final)

    async def roll_back_async(self, *, discard: bool = False) -> None:
        await greenlet_spawn(self.roll_back, discard=discard)
