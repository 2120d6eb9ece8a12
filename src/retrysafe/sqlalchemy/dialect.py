"""What is said in a guarded call's transaction, seen where SQLAlchemy says it: in its dialect.

Every statement, savepoint and commit of a connection goes through the dialect, so one that looks at them sees
all.  (Events would do as well, but they make every statement noticeably slower.)

- A commit or rollback is the guard's alone.
- Sessions join with savepoints, and `Turns` keeps them apart.
- A savepoint before which nothing was said costs nothing: to undo what is in it is to undo everything, which
  a `ROLLBACK` does, too.  So it is only pretended, and the usual call with its one session is spared two of
  the five statements that it would say.  Whether anything was said is asked of the driver, who also knows
  what listeners and raw cursors have said; of a driver that cannot tell, no savepoint is pretended.
"""

import re
from typing import Any, Protocol, cast

from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.engine.interfaces import DBAPICursor, ExecutionContext
from sqlalchemy.pool import PoolProxiedConnection

from retrysafe.errors import NotJoined
from retrysafe.events import log
from retrysafe.sqlalchemy.savepoints import Turns

_BY_HAND = (
    "the transaction of a guarded call is committed by its guard, together with the answer: inside of one "
    "use a session's commit() and rollback(), which are provisional, or leave the block of begin(guard)"
)

_ANOTHER = (
    "the connection of a guarded call was invalidated, and SQLAlchemy has opened another one: what is "
    "written there could not be committed with the answer"
)

_ENDS = re.compile(
    r"(?:[\s;]|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction|rollback(?!\s+(?:\w+\s+)?to\b))\b",
    re.IGNORECASE | re.DOTALL,
)
"""A statement that would end the transaction, or begin another.  Those of savepoints are not among them."""

_IDLE = 0
"""libpq's `PQTRANS_IDLE`."""

JOINED = "retrysafe_transaction"
"""Under this name a connection knows the transaction of the guarded call that it belongs to."""


class Joined(Protocol):
    """What is to be known of that transaction."""

    ours: bool
    """Whether it is the guard that is beginning or ending it just now."""
    turns: Turns


class _Watching(Dialect):
    """To be put before any other dialect."""

    def do_execute(
        self,
        cursor: DBAPICursor,
        statement: str,
        parameters: Any,  # noqa: ANN401 - each driver has its own
        context: ExecutionContext | None = None,
    ) -> None:
        _before(context, statement)
        super().do_execute(cursor, statement, parameters, context)
        _after(context)

    def do_execute_no_params(
        self, cursor: DBAPICursor, statement: str, context: ExecutionContext | None = None
    ) -> None:
        _before(context, statement)
        super().do_execute_no_params(cursor, statement, context)
        _after(context)

    def do_executemany(
        self,
        cursor: DBAPICursor,
        statement: str,
        parameters: Any,  # noqa: ANN401 - the same
        context: ExecutionContext | None = None,
    ) -> None:
        _before(context, statement)
        super().do_executemany(cursor, statement, parameters, context)
        _after(context)

    def do_commit(self, dbapi_connection: PoolProxiedConnection) -> None:
        _refuse(dbapi_connection)
        super().do_commit(dbapi_connection)

    def do_rollback(self, dbapi_connection: PoolProxiedConnection) -> None:
        _refuse(dbapi_connection)
        super().do_rollback(dbapi_connection)

    def do_savepoint(self, connection: Connection, name: str) -> None:
        if _of(connection).turns.begins(name, nothing_said=_is_idle(connection)):
            super().do_savepoint(connection, name)

    def do_release_savepoint(self, connection: Connection, name: str) -> None:
        if _of(connection).turns.releases(name):
            super().do_release_savepoint(connection, name)
        else:
            _check(connection)

    def do_rollback_to_savepoint(self, connection: Connection, name: str) -> None:
        if _of(connection).turns.rolls_back(name, connection):
            super().do_rollback_to_savepoint(connection, name)
            return
        try:
            super().do_rollback(connection.connection)
        except self.loaded_dbapi.Error as error:
            # Then it is lost, and the server undoes what it was not told to commit.
            log.warning("the connection of a guarded call was lost at a rollback: %s", error)
            connection.invalidate()
        except BaseException:
            connection.invalidate()  # cancelled in the middle of it: nobody knows what comes next on it
            raise


def _before(context: ExecutionContext | None, statement: str) -> None:
    assert context is not None
    joined = _of(context.root_connection)
    if joined.ours:
        return
    # What it had committed could not be undone any more, and its retry would do it again.
    if _ENDS.match(statement):
        raise NotJoined(_BY_HAND)
    joined.turns.executes(context.root_connection, statement)


def _after(context: ExecutionContext | None) -> None:
    assert context is not None
    joined = _of(context.root_connection)
    if not joined.ours:
        joined.turns.said = True
        _check(context.root_connection)


def _check(connection: Connection) -> None:
    """Something was said, so there is a transaction; or else it was ended, or there never was one."""
    turns = _of(connection).turns
    if turns.said and _is_idle(connection):
        raise turns.spoil(_BY_HAND)


def _is_idle(connection: Connection) -> bool:
    """Whether the driver is in no transaction.  They begin one with the first statement."""
    driver: Any = connection.connection.driver_connection
    if driver is None:
        return False
    match connection.dialect.driver:
        case "psycopg":
            return bool(driver.pgconn.transaction_status == _IDLE)
        case "asyncpg":
            return not driver.is_in_transaction()
        case _:
            return False


def _refuse(dbapi_connection: PoolProxiedConnection) -> None:
    joined: Joined | None = dbapi_connection.info.get(JOINED)
    if joined is not None and not joined.ours:
        raise NotJoined(_BY_HAND)


def _of(connection: Connection) -> Joined:
    joined: Joined | None = connection.info.get(JOINED)
    if joined is None:
        raise NotJoined(_ANOTHER)
    return joined


def watching(engine: Engine) -> Dialect:
    """The engine's own dialect, but looking.

    It has the same memory, and not a copy of it: what either learns about the server, both have to know.
    """
    looking = _looking(type(engine.dialect))
    dialect = looking.__new__(looking)
    dialect.__dict__ = engine.dialect.__dict__
    return dialect


_made: dict[object, type[Dialect]] = {}


def _looking(kind: type[Dialect]) -> type[Dialect]:
    if kind in _made:
        return _made[kind]
    # Not inherited: each class has to say anew that its SQL may be remembered.
    remembers = {name: value for name, value in vars(kind).items() if name == "supports_statement_cache"}
    made = cast(type[Dialect], type(kind.__name__, (_Watching, kind), remembers))
    return _made.setdefault(kind, made)
