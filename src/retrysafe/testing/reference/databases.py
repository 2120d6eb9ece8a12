"""How an application reaches its database, once per library: ordinary outside of a guarded call, and inside
one in its transaction.

    sqlite:///keys.db              sqlite3
    postgresql://…                 psycopg, with a pool
    mysql://…  mariadb://…         PyMySQL
    sqlite+pysqlite:///…  postgresql+psycopg://…  mysql+pymysql://…     SQLAlchemy
    sqlite+aiosqlite:///… postgresql+asyncpg://…  mysql+asyncmy://…     SQLAlchemy, asynchronous

With a driver in the address the store has an engine (`stores.from_engine`), without one it is opened by its
address.  Parameters in SQL are `:named`.
"""

import asyncio
import re
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

from retrysafe import Guard, stores
from retrysafe.errors import ConfigurationError
from retrysafe.stores.contract import Store

if TYPE_CHECKING:
    import pymysql
    from psycopg_pool import ConnectionPool
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

Rows = Sequence[Sequence[Any]]

PATIENCE = 2.0
"""Seconds to wait for a connection: as long as the store has for an operation."""

CONNECTIONS = 16
"""Of one process, at most: more than there are handlers at work at once."""


class Database(Protocol):
    def open(self) -> None:
        """Called in the process that serves, in its event loop if it has one."""
        ...

    def ask(self, sql: str, **values: str) -> Rows:
        """The rows of a query, in the transaction of the guarded call if there is one."""
        ...

    def insert(self, sql: str, **values: str) -> int:
        """Insert in the transaction of the guarded call, or else commit it by itself; how many rows."""
        ...

    def close(self) -> None: ...


def names_driver(url: str) -> bool:
    """Whether an address is for SQLAlchemy: `redis+cluster:` is not."""
    scheme = url.partition(":")[0]
    return "+" in scheme and scheme not in stores.SCHEMES


def percent_style(sql: str) -> str:
    """With parameters as most drivers have them."""
    return re.sub(r":(\w+)", r"%(\1)s", sql)


def open_store(url: str) -> Store:
    """The store that an address names, with or without a driver of SQLAlchemy's."""
    if not names_driver(url):
        return stores.open(url)
    return stores.from_engine(_engine(url))


def is_asynchronous(url: str) -> bool:
    """Whether everything that uses it needs an event loop."""
    if not names_driver(url):
        return False
    from sqlalchemy import exc, make_url

    try:
        return bool(make_url(url).get_dialect().is_async)
    except (exc.ArgumentError, ImportError) as error:
        raise ConfigurationError(f"SQLAlchemy has no driver for this address: {error}") from error


def database_of(url: str, guard: Guard) -> Database:
    """The application's own way to the database that the guard's store is in."""
    match url.partition(":")[0]:
        case "sqlite":
            return Sqlite3(guard)
        case "postgresql" | "postgres":
            return Psycopg(guard, url)
        case "mysql" | "mariadb":
            return PyMySQL(guard, url)
        case _ if names_driver(url):
            return AsyncAlchemy(guard) if is_asynchronous(url) else Alchemy(guard)
        case scheme:
            raise ConfigurationError(
                f"--tx needs a store in an SQL database, and {scheme}: is none: "
                "use sqlite:///keys.db, postgresql://… or mysql://…"
            )


def _engine(url: str) -> "Engine | AsyncEngine":
    from sqlalchemy import create_engine
    from sqlalchemy.ext.asyncio import create_async_engine

    # A server that was restarted must not make the next request fail.
    make = create_async_engine if is_asynchronous(url) else create_engine
    return make(url, pool_pre_ping=True)


class Sqlite3:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def open(self) -> None:
        """A connection is opened where it is used."""

    def ask(self, sql: str, **values: str) -> Rows:
        from retrysafe.sqlite3 import connection

        with connection(self._guard) as database:
            return database.execute(sql, values).fetchall()

    def insert(self, sql: str, **values: str) -> int:
        from retrysafe.sqlite3 import connection

        with connection(self._guard) as database:
            return database.execute(sql, values).rowcount

    def close(self) -> None:
        """And closed there."""


class Psycopg:
    def __init__(self, guard: Guard, url: str) -> None:
        self._guard = guard
        self._url = url
        self._pool: ConnectionPool[Any] | None = None

    def open(self) -> None:
        from psycopg_pool import ConnectionPool

        self._pool = ConnectionPool(
            self._url,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=PATIENCE,
            # A server that was restarted must not make the next request fail.
            check=ConnectionPool.check_connection,
            open=True,
        )

    def ask(self, sql: str, **values: str) -> Rows:
        from retrysafe.psycopg import connection

        assert self._pool is not None, "it is opened first"
        with connection(self._guard, self._pool) as database:
            rows: Rows = database.execute(percent_style(sql).encode(), values).fetchall()
            return rows

    def insert(self, sql: str, **values: str) -> int:
        from retrysafe.psycopg import connection

        assert self._pool is not None, "it is opened first"
        with connection(self._guard, self._pool) as database:
            return int(database.execute(percent_style(sql).encode(), values).rowcount)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


def connect_to_mysql(url: str) -> "pymysql.Connection[Any]":
    """A connection of the application's own."""
    import pymysql

    found = urlsplit(url)
    return pymysql.connect(
        host=found.hostname or "127.0.0.1",
        port=found.port or 3306,
        user=unquote(found.username or ""),
        password=unquote(found.password or ""),
        database=found.path.removeprefix("/"),
        connect_timeout=int(PATIENCE),
    )


class PyMySQL:
    """A connection for each statement: PyMySQL has no pool."""

    def __init__(self, guard: Guard, url: str) -> None:
        self._guard = guard
        self._url = url

    def open(self) -> None:
        """A connection is opened where it is used."""

    def ask(self, sql: str, **values: str) -> Rows:
        with self._cursor() as cursor:
            cursor.execute(percent_style(sql), values)
            return list(cursor.fetchall())

    def insert(self, sql: str, **values: str) -> int:
        with self._cursor() as cursor:
            return int(cursor.execute(percent_style(sql), values))

    @contextmanager
    def _cursor(self) -> Generator["pymysql.cursors.Cursor"]:
        from retrysafe.pymysql import connection

        with (
            connection(self._guard, lambda: connect_to_mysql(self._url)) as database,
            database.cursor() as cursor,
        ):
            yield cursor

    def close(self) -> None:
        """And closed there."""


class Alchemy:
    def __init__(self, guard: Guard) -> None:
        from retrysafe.sqlalchemy import sessionmaker

        self._engine = cast("Engine", guard.store.engine)  # type: ignore[attr-defined]  # see `open_store`
        self._session = sessionmaker(guard)

    def open(self) -> None:
        """The engine connects when it is asked to."""

    def ask(self, sql: str, **values: str) -> Rows:
        from sqlalchemy import text

        with self._session() as session:
            return session.execute(text(sql), values).all()

    def insert(self, sql: str, **values: str) -> int:
        from sqlalchemy import CursorResult, text

        with self._session() as session:
            done = session.execute(text(sql), values)
            assert isinstance(done, CursorResult)
            session.commit()
            return int(done.rowcount)

    def close(self) -> None:
        self._engine.dispose()


class AsyncAlchemy:
    """The routes are blocking functions in threads: the event loop does what they want, and they wait."""

    def __init__(self, guard: Guard) -> None:
        from retrysafe.sqlalchemy import async_sessionmaker

        self._engine = cast("AsyncEngine", guard.store.engine)  # type: ignore[attr-defined]  # see `open_store`
        self._session = async_sessionmaker(guard)
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    def ask(self, sql: str, **values: str) -> Rows:
        return self._await(self._ask(sql, values))

    def insert(self, sql: str, **values: str) -> int:
        return self._await(self._insert(sql, values))

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "it is opened first"
        # The context of this thread goes along, and with it the guarded call that runs here.
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _ask(self, sql: str, values: dict[str, str]) -> Rows:
        from sqlalchemy import text

        async with self._session() as session:
            return (await session.execute(text(sql), values)).all()

    async def _insert(self, sql: str, values: dict[str, str]) -> int:
        from sqlalchemy import CursorResult, text

        async with self._session() as session:
            done = await session.execute(text(sql), values)
            assert isinstance(done, CursorResult)
            await session.commit()
            return int(done.rowcount)

    def close(self) -> None:
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._engine.dispose(), self._loop).result()
