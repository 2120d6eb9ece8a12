"""A connection of SQLAlchemy's that runs statements: once blocking, once for coroutines.

Every statement commits by itself.  A line that was cut, whose server is gone, or which was interrupted in the
middle of something is not usable any more, and is never given to anybody else.
"""

import contextlib
import selectors
import socket
import time
from collections.abc import Sequence
from functools import cache
from typing import Protocol, cast

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from retrysafe.stores.sql.operations import Arguments, Row

_QUIET = 1.0
"""Seconds after which a connection whose socket cannot be looked at is asked whether it is still there."""


class _Terminable(Protocol):
    """A connection of asyncpg's, as far as it is used here."""

    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float) -> None: ...


class _Closable(Protocol):
    def close(self) -> None: ...


class AsyncLine:
    def __init__(self, connection: AsyncConnection, driver: _Terminable) -> None:
        self._connection = connection
        self._driver = driver
        self._sound = True

    @classmethod
    async def open(cls, engine: AsyncEngine) -> "AsyncLine":
        connection = await engine.connect()
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        # No pool looks after it any more, so it can be left behind in a forked process.
        await connection.run_sync(lambda connection: connection.detach())
        return cls(connection, cast(_Terminable, (await connection.get_raw_connection()).driver_connection))

    @property
    def usable(self) -> bool:
        # The event loop has noticed by now if the server went away while nobody was using it.
        return self._sound and not self._driver.is_closed()

    async def execute(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        try:
            result = await self._connection.execute(_clause(sql), arguments)
            return result.all() if result.returns_rows else ()
        except DBAPIError as error:
            self._sound = not error.connection_invalidated
            raise
        except BaseException:
            self._sound = False
            raise

    def cut(self) -> None:
        """End it at once: an answer that is being waited for does not come any more."""
        self._sound = False
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its sockets with it
            self._driver.terminate()

    async def close(self, patience: float) -> None:
        self._sound = False
        with contextlib.suppress(Exception):  # whatever is wrong with it now, it is gone
            await self._driver.close(timeout=patience)


class Line:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._proxy = connection.connection
        self._socket = _socket_of(self._proxy.driver_connection)
        self._sound = True
        self._used = time.monotonic()

    @classmethod
    def open(cls, engine: Engine) -> "Line":
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()
        return cls(connection)

    @property
    def usable(self) -> bool:
        """Asked by whoever has it to himself."""
        if not self._sound:
            return False
        if self._socket is not None:
            # There is nothing to be read on a connection that nobody has asked anything, but its end.
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                return not selector.select(0)
        return time.monotonic() - self._used < _QUIET or self._answers()

    def _answers(self) -> bool:
        try:
            return self._connection.dialect.do_ping(self._proxy.dbapi_connection)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - drivers differ in how they say it
            return False

    def execute(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        try:
            result = self._connection.execute(_clause(sql), arguments)
            rows = [_plain(row) for row in result] if result.returns_rows else []
        except DBAPIError as error:
            self._sound = not error.connection_invalidated
            raise
        except BaseException:
            self._sound = False
            raise
        self._used = time.monotonic()
        return rows

    def cut(self) -> None:
        """End it at once, also from another thread: whoever waits for its answer wakes up with an error."""
        self._sound = False
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """By whoever has it to himself."""
        self._sound = False
        with contextlib.suppress(Exception):  # whatever is wrong with it now, it is gone
            cast(_Closable, self._proxy.driver_connection).close()
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
    for holder in (driver, getattr(driver, "_usock", None)):  # psycopg2 tells it, pg8000 must be looked into
        if callable(fileno := getattr(holder, "fileno", None)):
            with contextlib.suppress(Exception):  # then there is none that could be used
                return socket.socket(fileno=socket.dup(fileno()))
    return None
