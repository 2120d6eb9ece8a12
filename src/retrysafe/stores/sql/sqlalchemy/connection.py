"""A connection of SQLAlchemy's that runs statements: once blocking, once for coroutines.

Every statement commits by itself, unless a BEGIN came before it.  What goes wrong is a `Trouble`.  A
connection that was cut, whose server is gone, or whose statement was interrupted is not usable any more, and
is never used again.

A child process inherits connections, and must leave them alone: socket and event loop are shared with its
parent, and whatever is done to them there is done to the parent's.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache, partial
from typing import TypeVar, cast

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from retrysafe.errors import UnreadableRecord
from retrysafe.stores.queue import Row
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.backend import Backend
from retrysafe.stores.sql.blocking import BlockingConnection
from retrysafe.stores.sql.drivers import Terminable, Texts, plain, terminable
from retrysafe.stores.sql.sqlalchemy.engines import detached
from retrysafe.stores.sql.sqlalchemy.errors import trouble, unreachable

T = TypeVar("T")

_QUIET = 1.0
"""Seconds after which a connection whose socket cannot be looked at is asked whether it is still there."""


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


def open_connection_of(engine: Engine, backend: Backend) -> BlockingConnection:
    """A connection of this engine's, that no pool looks after."""
    try:
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        # So it can be left behind in a forked process without a word.
        adapted, driver = detached(connection.connection)
    except Exception as error:  # drivers differ in what they raise
        raise unreachable(error, backend) from error
    ping = partial(connection.dialect.do_ping, adapted)
    made = BlockingConnection(Statements(connection, backend), driver, ping)
    try:
        made.run(backend.begin)
    except BaseException:
        made.discard()
        raise
    return made


class Statements:
    """Runs them on one connection, and makes trouble of what drivers raise."""

    def __init__(self, connection: Connection, backend: Backend) -> None:
        self.largest = 0
        self._connection = connection
        self._backend = backend
        opened = connection.connection
        self._texts = Texts(opened.driver_connection, opened.cursor)

    def __call__(self, sql: str, arguments: Mapping[str, object], /) -> Sequence[Row]:
        with self._troubled():
            result = self._connection.execute(_clause(sql), arguments)
            return [plain(row) for row in result] if result.returns_rows else ()

    def together(self, texts: Sequence[str], /) -> list[Sequence[Row]]:
        # Past SQLAlchemy, which would take each of them apart, and knows of one result only.
        with self._troubled():
            return self._texts.together(texts)

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


@cache
def _clause(sql: str) -> TextClause:
    return text(sql)
