"""An operator's session by psycopg.

Blocking and simple: an operator asks one thing after the other.  A server that says nothing at all is not
waited for: a timer shuts the socket, which psycopg notices at once, and the session is over.
"""

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from typing import Any

import psycopg

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.sql import statements
from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.postgresql.desk import TookTooLong

_ARGUMENT = re.compile(r":(\w+)")


class PsycopgSession:
    """Runs statements on a connection of its own, which commits each of them unless it is told to BEGIN."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        try:
            self._connection = connect()
            self._connection.autocommit = True
            # Behind a pooler the next transaction may run in a session that knows no statement of ours.
            self._connection.prepare_threshold = None
        except psycopg.Error as error:
            raise StoreUnavailable(f"PostgreSQL cannot be reached: {_said(error)}") from error

    @property
    def process(self) -> int | None:
        return self._connection.info.backend_pid

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        with self._bounded(within):
            return self._connection.execute(_translated(name), arguments).fetchall()

    def command(self, sql: str, within: float) -> None:
        with self._bounded(within):
            self._connection.execute(sql.encode())

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _bounded(self, within: float) -> Generator[None]:
        timer = threading.Timer(within, _shut, (self._connection.fileno(),))
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.Error as error:
            raise _trouble(error) from error
        finally:
            timer.cancel()


@cache
def _translated(name: str) -> bytes:
    sql = statements.load("postgresql")[name]
    return _ARGUMENT.sub(r"%(\1)s", sql.replace("%", "%%")).encode()


def _shut(number: int) -> None:
    """End the conversation; the descriptor stays the connection's to close."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _trouble(error: psycopg.Error) -> StoreUnavailable | SchemaMismatch:
    said = _said(error)
    match error:
        case psycopg.errors.QueryCanceled():
            return TookTooLong(f"PostgreSQL broke it off: {said}")
        case psycopg.errors.LockNotAvailable():
            return StoreUnavailable(
                f"somebody else has a lock on it for longer than it can be waited for ({said}); nothing was "
                "done"
            )
        case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn():
            return SchemaMismatch(f"the tables are not those of this release: {said}")
        case psycopg.errors.InsufficientPrivilege():
            return StoreUnavailable(
                f"this role may not do that: {said}. `retrysafe doctor` lists the rights that it needs; "
                "tables can be made by another role with what `retrysafe sql --dialect postgresql` prints"
            )
        case psycopg.errors.ReadOnlySqlTransaction():
            return StoreUnavailable(f"this server takes no writes: {said}. Give the address of the primary")
        case _:
            return StoreUnavailable(f"PostgreSQL: {said}")


def _said(error: psycopg.Error) -> str:
    """The first line alone: what follows may quote a row."""
    return (error.diag.message_primary or str(error)).strip().partition("\n")[0] or type(error).__name__
