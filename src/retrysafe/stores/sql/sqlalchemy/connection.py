"""A connection of SQLAlchemy's that runs statements: once blocking, once for coroutines.

Every statement commits by itself, unless a BEGIN came before it.  What goes wrong is a `Trouble`.  A
connection that was cut, whose server is gone, or whose statement was interrupted is not usable any more, and
is never used again.

A child process inherits connections, and must leave them alone: socket and event loop are shared with its
parent, and whatever is done to them there is done to the parent's.
"""

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Protocol, TypeVar, cast

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from retrysafe.errors import UnreadableRecord
from retrysafe.stores.queue import Row
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.backend import Backend
from retrysafe.stores.sql.drivers import (
    Terminable,
    holder_of_socket,
    plain,
    process_of,
    sends_several,
    terminable,
)
from retrysafe.stores.sql.sqlalchemy.engines import detached
from retrysafe.stores.sql.sqlalchemy.errors import trouble, unreachable

T = TypeVar("T")

_QUIET = 1.0
"""Seconds after which a connection whose socket cannot be looked at is asked whether it is still there."""


class _Closable(Protocol):
    def close(self) -> None: ...


class AsyncStoreConnection:
    """For coroutines of the event loop that opened it."""

    def __init__(self, connection: AsyncConnection, driver: Terminable, backend: Backend) -> None:
        self.has_worked = False
        """Whether a statement has succeeded on it since it was opened."""
        self._connection = connection
        self._driver = driver
        self._backend = backend
        self._execute = Statements(cast(Connection, connection.sync_connection), backend)
        self._sound = True
        self._process = os.getpid()

    @classmethod
    async def open(cls, engine: AsyncEngine, backend: Backend) -> "AsyncStoreConnection":
        try:
            connection = await engine.connect()
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            opened = detached(await connection.get_raw_connection())
        except Exception as error:  # drivers differ in what they raise
            raise unreachable(error, backend) from error
        # No pool looks after it, so it can be left behind in a forked process without a word.
        made = cls(connection, terminable(opened.driver), backend)
        try:
            await made.run(backend.begin)
        except BaseException:
            made.cut()
            raise
        return made

    @property
    def usable(self) -> bool:
        # The event loop has noticed by now if the server went away while it was idle.
        return self._sound and not self._driver.is_closed()

    @property
    def process(self) -> int | None:
        return self._driver.process

    async def run(self, about: "Callable[[Statements], T]") -> T:
        """Run several statements, each with what came of the one before it."""
        sound, self._sound = self._sound, False
        try:
            answer = await self._connection.run_sync(lambda _: about(self._execute))
        except Trouble as trouble:
            self._sound = sound and not trouble.disconnected
            raise
        self._sound = sound
        return answer

    def cut(self) -> None:
        """End it at once: an answer that is being waited for does not come any more."""
        self._sound = False
        if os.getpid() != self._process:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it whatever was in it
            self._driver.terminate()

    async def close(self, patience: float) -> None:
        self._sound = False
        with contextlib.suppress(Exception):  # whatever is wrong with it now, it is gone
            await self._driver.close(patience)


class StoreConnection:
    """For one thread at a time; others may cut it."""

    def __init__(self, connection: Connection, backend: Backend) -> None:
        self.has_worked = False
        # No pool looks after it, so it can be left behind in a forked process without a word.
        self._connection = connection
        self._statements = Statements(connection, backend)
        self._adapted, driver = detached(connection.connection)
        self._driver = cast(_Closable, driver)
        self._socket = _socket_of(self._driver)
        self._sound = True
        self._process = os.getpid()
        self._used = time.monotonic()

    @classmethod
    def open(cls, engine: Engine, backend: Backend) -> "StoreConnection":
        try:
            made = cls(engine.connect().execution_options(isolation_level="AUTOCOMMIT"), backend)
        except Exception as error:  # drivers differ in what they raise
            raise unreachable(error, backend) from error
        try:
            made.run(backend.begin)
        except BaseException:
            made.discard()
            raise
        return made

    @property
    def usable(self) -> bool:
        """To be called while it is idle."""
        if not self._sound:
            return False
        if self._socket is None:
            return time.monotonic() - self._used < _QUIET or self._answers()
        with selectors.DefaultSelector() as selector:
            # On an idle connection there is nothing to be read but its end.
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def _answers(self) -> bool:
        try:
            return self._connection.dialect.do_ping(self._adapted)
        except Exception:  # noqa: BLE001 - drivers differ in how they say no
            return False

    @property
    def process(self) -> int | None:
        return process_of(self._driver)

    def run(self, about: "Callable[[Statements], T]") -> T:
        """Run several statements, each with what came of the one before it."""
        try:
            answer = about(self._statements)
        except BaseException as error:
            if not isinstance(error, Trouble) or error.disconnected:
                self._sound = False
            raise
        self._used = time.monotonic()
        return answer

    def fileno(self) -> int | None:
        """Its socket, so that a wait for it can be cut; `None` where the driver shows none."""
        return None if self._socket is None else self._socket.fileno()

    def cut(self) -> None:
        """End it at once, also from another thread: a thread that waits for its result gets an error."""
        self._sound = False
        if self._socket is not None and os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def discard(self) -> None:
        self.cut()
        self.close()

    def close(self) -> None:
        self._sound = False
        with contextlib.suppress(Exception):  # whatever is wrong with it now, it is gone
            self._driver.close()
        if self._socket is not None:
            self._socket.close()


class Statements:
    """Runs them on one connection, and makes trouble of what drivers raise."""

    def __init__(self, connection: Connection, backend: Backend) -> None:
        self.largest = 0
        self._connection = connection
        self._backend = backend
        self._is_together: bool | None = None

    def __call__(self, sql: str, arguments: Mapping[str, object], /) -> Sequence[Row]:
        with self._troubled():
            result = self._connection.execute(_clause(sql), arguments)
            return [plain(row) for row in result] if result.returns_rows else ()

    def together(self, texts: Sequence[str], /) -> list[Sequence[Row]]:
        # Past SQLAlchemy, which would take each of them apart, and knows of one result only.
        with self._troubled(), closing(self._connection.connection.cursor()) as cursor:
            if self._is_together is None:
                self._is_together = sends_several(self._connection.connection.driver_connection, cursor)
            if not self._is_together:
                return [_run(cursor, text) for text in texts]
            found = [_run(cursor, ";\n".join(texts))]
            for _ in texts[1:]:
                cursor.nextset()
                found.append(_rows(cursor))
            return found

    @contextlib.contextmanager
    def _troubled(self) -> Generator[None]:
        try:
            yield
        except UnicodeDecodeError:
            # Its message quotes the text, so it goes no further.
            raise UnreadableRecord(
                "a text in the database is not UTF-8, so another program has written it"
            ) from None
        except Exception as error:  # drivers differ in what they raise
            raise trouble(error, self._backend) from error


def _run(cursor: DBAPICursor, sql: str) -> Sequence[Row]:
    cursor.execute(sql)
    return _rows(cursor)


def _rows(cursor: DBAPICursor) -> Sequence[Row]:
    return [plain(row) for row in cursor.fetchall()] if cursor.description else ()


@cache
def _clause(sql: str) -> TextClause:
    return text(sql)


def _socket_of(driver: object) -> socket.socket | None:
    """Another handle of the driver's socket, so that it can be looked at, and shut down by another thread."""
    holder = holder_of_socket(driver)
    if holder is not None:
        with contextlib.suppress(OSError):  # then there is none that could be used
            return socket.socket(fileno=socket.dup(holder.fileno()))
    return None
