"""A dialect that watches what is executed in a guarded call's transaction.

Every statement, savepoint and commit of a connection goes through SQLAlchemy's dialect, so a dialect that
looks at them misses none.  (Events would do as well, but they make every statement noticeably slower.)

- Only the guard commits or rolls back.
- Sessions join with savepoints, and `SavepointStack` separates them.
- A savepoint before the first statement is not sent to the server: undoing what is in it undoes everything,
  which a `ROLLBACK` does, too.  That saves the usual call with its one session two of five statements.
  Whether anything was executed is asked of the driver, which also knows of listeners and raw cursors; with a
  driver that cannot tell, every savepoint is sent.
- MySQL rolls back all of a transaction after a deadlock, and its session goes on in another one.  Nothing is
  executed there: see `stores/sql/mysql/join.py`, which also has the mark that such a transaction begins with.
"""

import re
from collections.abc import Callable
from typing import Any, Protocol, cast

from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.engine.interfaces import DBAPICursor, ExecutionContext
from sqlalchemy.pool import PoolProxiedConnection

from retrysafe.errors import NotJoined
from retrysafe.events import log
from retrysafe.sqlalchemy.savepoints import SavepointStack
from retrysafe.stores.sql.mysql.endings import ends_transaction
from retrysafe.stores.sql.mysql.join import DEADLOCKED, LOST, is_without_mark, rolls_back

_ENDED_BY_HANDLER = (
    "a handler ended, or tried to end, the transaction of its guarded call: only the guard commits it, "
    "together with the response. Use a session's commit() and rollback(), which are provisional, or leave "
    "the block of begin(guard)"
)

_OTHER_CONNECTION = (
    "the connection of a guarded call was invalidated, and SQLAlchemy has opened another one: what is "
    "written there could not be committed with the response. Do not use a connection after invalidate()"
)

_ENDS = re.compile(
    r"(?:[\s;]|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction|rollback(?!\s+(?:\w+\s+)?to\b))\b",
    re.IGNORECASE | re.DOTALL,
)
"""A statement that would end the transaction, or begin another; not those of savepoints."""

_IDLE = 0
"""libpq's `PQTRANS_IDLE`."""

_IN_TRANSACTION = 1
"""MySQL's `SERVER_STATUS_IN_TRANS`.  It is as old as the last statement that succeeded."""

INFO_KEY = "retrysafe_transaction"
"""Where `connection.info` has the transaction of the guarded call that the connection belongs to."""


class Watched(Protocol):
    """What the dialect needs to know of that transaction."""

    by_guard: bool
    """Whether the guard is beginning or ending it at this moment."""
    savepoints: SavepointStack
    mark: str | None
    """The savepoint that it begins with, on MySQL: undoing everything is to go back to it."""
    commit_with: Callable[[], None] | None
    """What commits it in place of the driver's `commit()`: the COMMIT is sent with the completion."""


class _Watching(Dialect):
    """Mixed in before any other dialect."""

    def do_execute(
        self,
        cursor: DBAPICursor,
        statement: str,
        parameters: Any,  # noqa: ANN401 - each driver has its own
        context: ExecutionContext | None = None,
    ) -> None:
        _before(context, statement)
        try:
            super().do_execute(cursor, statement, parameters, context)
        except Exception as error:
            _failed(context, error)
            raise
        _after(context)

    def do_execute_no_params(
        self, cursor: DBAPICursor, statement: str, context: ExecutionContext | None = None
    ) -> None:
        _before(context, statement)
        try:
            super().do_execute_no_params(cursor, statement, context)
        except Exception as error:
            _failed(context, error)
            raise
        _after(context)

    def do_executemany(
        self,
        cursor: DBAPICursor,
        statement: str,
        parameters: Any,  # noqa: ANN401 - the same
        context: ExecutionContext | None = None,
    ) -> None:
        _before(context, statement)
        try:
            super().do_executemany(cursor, statement, parameters, context)
        except Exception as error:
            _failed(context, error)
            raise
        _after(context)

    def do_commit(self, dbapi_connection: PoolProxiedConnection) -> None:
        watched = _refuse(dbapi_connection)
        if watched is not None and watched.commit_with is not None:
            watched.commit_with()
        else:
            super().do_commit(dbapi_connection)

    def do_rollback(self, dbapi_connection: PoolProxiedConnection) -> None:
        _refuse(dbapi_connection)
        super().do_rollback(dbapi_connection)

    def do_savepoint(self, connection: Connection, name: str) -> None:
        watched = _of(connection)
        _refuse_lost(watched)
        if watched.savepoints.begin(name, nothing_executed=_is_idle(connection)):
            super().do_savepoint(connection, name)

    def do_release_savepoint(self, connection: Connection, name: str) -> None:
        watched = _of(connection)
        if watched.savepoints.release(name):
            _refuse_lost(watched)
            super().do_release_savepoint(connection, name)
        else:
            _check(connection)

    def do_rollback_to_savepoint(self, connection: Connection, name: str) -> None:
        watched = _of(connection)
        if watched.savepoints.roll_back(name, connection):
            if not watched.savepoints.lost:
                super().do_rollback_to_savepoint(connection, name)
            return
        try:
            if watched.mark is None:
                super().do_rollback(connection.connection)
            else:
                _roll_back_to_mark(connection, watched, watched.mark)
        except self.loaded_dbapi.Error as error:
            if is_without_mark(error):
                raise watched.savepoints.refuse(LOST) from error
            # The connection is lost, and the server rolls back what was not committed.
            log.warning("the connection of a guarded call was lost during a rollback: %s", error)
            connection.invalidate()
        except BaseException:
            connection.invalidate()  # cancelled half-way: its next response may belong to the rollback
            raise


def _before(context: ExecutionContext | None, statement: str) -> None:
    assert context is not None
    watched = _of(context.root_connection)
    if watched.by_guard:
        return
    # What it committed could not be undone any more, and the retry would do it again.
    if _ENDS.match(statement) if watched.mark is None else ends_transaction(statement):
        raise NotJoined(_ENDED_BY_HANDLER)
    _refuse_lost(watched)
    watched.savepoints.before_statement(context.root_connection, statement)


def _after(context: ExecutionContext | None) -> None:
    assert context is not None
    watched = _of(context.root_connection)
    if not watched.by_guard:
        watched.savepoints.used = True
        _check(context.root_connection)


def _failed(context: ExecutionContext | None, error: Exception) -> None:
    assert context is not None
    watched = _of(context.root_connection)
    if watched.mark is not None and rolls_back(error):
        watched.savepoints.lost = True


def _refuse_lost(watched: Watched) -> None:
    if watched.savepoints.lost and not watched.by_guard:
        raise NotJoined(DEADLOCKED)


def _roll_back_to_mark(connection: Connection, watched: Watched, mark: str) -> None:
    """Undo everything, on MySQL; after a deadlock it is undone, and begins anew."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute(mark if watched.savepoints.lost else f"ROLLBACK TO {mark}")
        watched.savepoints.lost = False
    finally:
        cursor.close()


def _check(connection: Connection) -> None:
    """After a statement without a transaction: it was ended past SQLAlchemy, or there never was one."""
    watched = _of(connection)
    # MySQL says that it is in a transaction only once a table was used; where there is a mark, it is missed.
    if watched.savepoints.used and watched.mark is None and _is_idle(connection):
        raise watched.savepoints.refuse(_ENDED_BY_HANDLER)


def _is_idle(connection: Connection) -> bool:
    """Whether the driver is in no transaction.  Drivers begin one with the first statement."""
    driver: Any = connection.connection.driver_connection
    if driver is None:
        return False
    match connection.dialect.driver:
        case "psycopg":
            return bool(driver.pgconn.transaction_status == _IDLE)
        case "asyncpg":
            return not driver.is_in_transaction()
        case "pymysql":
            return not (_of(connection).savepoints.used or driver.server_status & _IN_TRANSACTION)
        case "asyncmy" | "aiomysql":
            return not (_of(connection).savepoints.used or driver.get_transaction_status())
        case _:
            return False


def _refuse(dbapi_connection: PoolProxiedConnection) -> Watched | None:
    watched: Watched | None = dbapi_connection.info.get(INFO_KEY)
    if watched is not None and not watched.by_guard:
        raise NotJoined(_ENDED_BY_HANDLER)
    return watched


def _of(connection: Connection) -> Watched:
    watched: Watched | None = connection.info.get(INFO_KEY)
    if watched is None:
        raise NotJoined(_OTHER_CONNECTION)
    return watched


def watching(engine: Engine) -> Dialect:
    """The engine's own dialect, with `_Watching` mixed in.

    It shares the state of the engine's, rather than a copy: what either learns about the server (types, or
    statements that are no longer valid) the other has to know.
    """
    class_ = _watching_class(type(engine.dialect))
    dialect = class_.__new__(class_)
    dialect.__dict__ = engine.dialect.__dict__
    return dialect


_classes: dict[object, type[Dialect]] = {}


def _watching_class(class_: type[Dialect]) -> type[Dialect]:
    if class_ in _classes:
        return _classes[class_]
    # Not inherited: each class has to declare that its compiled SQL may be cached.
    declared = {name: value for name, value in vars(class_).items() if name == "supports_statement_cache"}
    made = cast(type[Dialect], type(class_.__name__, (_Watching, class_), declared))
    return _classes.setdefault(class_, made)
