"""A connection of SQLAlchemy's that runs statements: once blocking, once for coroutines.

Every statement commits by itself, unless a BEGIN came before it.  What goes wrong is a `Trouble`.  A line
that was cut, whose server is gone, or which was interrupted in the middle of something is not usable any more,
and is never given to anybody else.
"""

import contextlib
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol, cast

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from retrysafe.stores.sql.alchemy.reports import trouble
from retrysafe.stores.sql.operations import Row

_QUIET = 1.0
"""Seconds after which a connection whose socket cannot be looked at is asked whether it is still there."""


class _Terminable(Protocol):
    """What is used of asyncpg's connections."""

    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float) -> None: ...  # noqa: ASYNC109 - asyncpg's signature


class _Closable(Protocol):
    def close(self) -> None: ...


class AsyncLine:
    """For coroutines of the event loop that opened it."""

    def __init__(self, connection: AsyncConnection, driver: _Terminable) -> None:
        self.seasoned = False
        """Whether it has done something for somebody since it was opened."""
        self._connection = connection
        self._driver = driver
        self._sound = True

    @classmethod
    async def open(cls, engine: AsyncEngine) -> "AsyncLine":
        try:
            connection = await engine.connect()
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            raw = await connection.get_raw_connection()
            driver = cast(_Terminable, raw.driver_connection)
        except Exception as error:  # drivers differ in what they raise
            raise trouble(error) from error
        # No pool looks after it, so it can be left behind in a forked process without a word.
        raw.detach()
        return cls(connection, driver)

    @property
    def usable(self) -> bool:
        # The event loop has noticed by now if the server went away while nobody was using it.
        return self._sound and not self._driver.is_closed()

    async def execute(self, sql: str, arguments: Mapping[str, object]) -> Sequence[Row]:
        sound, self._sound = self._sound, False
        try:
            result = await self._connection.execute(_clause(sql), arguments)
            rows: Sequence[Row] = result.all() if result.returns_rows else ()
        except DBAPIError as error:
            self._sound = sound and not error.connection_invalidated
            raise trouble(error) from error
        except Exception as error:
            raise trouble(error) from error
        self._sound = sound
        return rows

    def cut(self) -> None:
        """End it at once: an answer that is being waited for does not come any more."""
        self._sound = False
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it whatever was in it
            self._driver.terminate()

    async def close(self, patience: float) -> None:
        self._sound = False
        with contextlib.suppress(Exception):  # whatever is wrong with it now, it is gone
            await self._driver.close(timeout=patience)


class Line:
    """For the thread that opened it; others may cut it."""

    def __init__(self, connection: Connection) -> None:
        self.seasoned = False
        self._connection = connection
        raw = connection.connection
        self._dbapi = raw.dbapi_connection
        self._driver = cast(_Closable, raw.driver_connection)
        self._socket = _socket_of(self._driver)
        # No pool looks after it, so it can be left behind in a forked process without a word.
        raw.detach()
        self._sound = True
        self._used = time.monotonic()

    @classmethod
    def open(cls, engine: Engine) -> "Line":
        try:
            connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            return cls(connection)
        except Exception as error:
            raise trouble(error) from error

    @property
    def usable(self) -> bool:
        """To be asked while nobody is using it."""
        if not self._sound:
            return False
        if self._socket is None:
            return time.monotonic() - self._used < _QUIET or self._answers()
        with selectors.DefaultSelector() as selector:
            # On a connection that nobody has asked anything, there is nothing to be read but its end.
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def _answers(self) -> bool:
        try:
            return self._dbapi is not None and self._connection.dialect.do_ping(self._dbapi)
        except Exception:  # noqa: BLE001 - drivers differ in how they say no
            return False

    def execute(self, sql: str, arguments: Mapping[str, object]) -> Sequence[Row]:
        try:
            result = self._connection.execute(_clause(sql), arguments)
            rows = [_plain(row) for row in result] if result.returns_rows else []
        except DBAPIError as error:
            if error.connection_invalidated:
                self._sound = False
            raise trouble(error) from error
        except BaseException as error:
            self._sound = False
            if not isinstance(error, Exception):
                raise
            raise trouble(error) from error
        self._used = time.monotonic()
        return rows

    def cut(self) -> None:
        """End it at once, also from another thread: whoever waits for its answer wakes up with an error."""
        self._sound = False
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sound = False
        with contextlib.suppress(Exception):  # whatever is wrong with it now, it is gone
            self._driver.close()
        if self._socket is not None:
            self._socket.close()


@cache
def _clause(sql: str) -> TextClause:
    return text(sql)


def _plain(row: Sequence[object]) -> Row:
    # psycopg2 gives bytes as views of its own memory.
    return [bytes(value) if isinstance(value, memoryview) else value for value in row]


def _socket_of(driver: object) -> socket.socket | None:
    """Another handle of the driver's socket, so that it can be looked at, and shut down by another thread."""
    for holder in (driver, getattr(driver, "_usock", None)):  # psycopg2's, and inside of pg8000's
        if callable(fileno := getattr(holder, "fileno", None)):
            with contextlib.suppress(Exception):  # then there is none that could be used
                return socket.socket(fileno=socket.dup(fileno()))
    return None
