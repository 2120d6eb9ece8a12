"""A table of the application's own, written through each library that can join, in the library's own way.

The tests say what has to hold and the ledgers say how it is written in sqlite3, psycopg or SQLAlchemy:
`put` is a block that commits, `put_and_fail` one that breaks after it has written, `look` reads within the
transaction.  The auditor reads through a connection that has nothing to do with any of them.
"""

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import Engine, create_engine, make_url, orm, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

import retrysafe.psycopg
import retrysafe.pymysql
import retrysafe.sqlalchemy
import retrysafe.sqlite3
from retrysafe import Guard, scopes, stores

TABLE = "CREATE TABLE items (name text NOT NULL)"


class Broken(Exception):
    """What a handler meets on its way."""


class Ledger(Protocol):
    """A way to write, and somebody who looks from outside."""

    guard: Guard

    async def put(self, name: str) -> None: ...
    async def put_and_fail(self, name: str) -> None: ...
    async def look(self) -> list[str]: ...
    def audit(self) -> list[str]: ...


Open = Callable[..., Any]
"""A context manager: from an address to a ledger.  Options are the guard's."""


def a_guard(store: Any, **options: Any) -> Guard:
    options.setdefault("effects", "database")
    return Guard(store, scope=scopes.header("X-Tenant"), **options)


class InFile:
    """The auditor of an SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(TABLE)

    def __call__(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as db:
            return [name for (name,) in db.execute("SELECT name FROM items ORDER BY rowid")]


class InServer:
    """The auditor of a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        self.url = url
        with psycopg.connect(url) as db:
            db.execute(TABLE)

    def __call__(self) -> list[str]:
        with psycopg.connect(self.url) as db:
            return [name for (name,) in db.execute("SELECT name FROM items ORDER BY ctid")]

    def idle_in_transaction(self) -> int:
        with psycopg.connect(self.url) as db:
            row = db.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
                "AND datname = current_database()"
            ).fetchone()
        assert row is not None
        count: int = row[0]
        return count


class InMariaDB:
    """The auditor of a MariaDB database."""

    def __init__(self, url: str) -> None:
        self.url = url
        with closing(connect_mysql(url)) as db, db.cursor() as cursor:
            cursor.execute("CREATE TABLE items (number int AUTO_INCREMENT PRIMARY KEY, name text NOT NULL)")

    def __call__(self) -> list[str]:
        with closing(connect_mysql(self.url)) as db, db.cursor() as cursor:
            cursor.execute("SELECT name FROM items ORDER BY number")
            return [name for (name,) in cursor.fetchall()]


def connect_mysql(url: str, **more: Any) -> "pymysql.Connection[Any]":
    """As an application opens its own."""
    address = make_url(url)
    return pymysql.connect(
        host=address.host,
        port=address.port or 0,
        user=address.username,
        password=address.password or "",
        database=address.database,
        **more,
    )


class Place:
    """Where a session writes whose handler is written in a test, and who looks at it from outside."""

    def __init__(self, engine: Engine, audit: InFile | InServer) -> None:
        self.engine, self.audit = engine, audit


def on_server(url: str, driver: str) -> Place:
    return Place(create_engine(url.replace("postgresql://", f"postgresql+{driver}://", 1)), InServer(url))


class _Blocking:
    """Blocking code is called in threads, as frameworks do."""

    guard: Guard

    def _put(self, name: str, *, fail: bool = False) -> None:
        raise NotImplementedError

    def _look(self) -> list[str]:
        raise NotImplementedError

    async def put(self, name: str) -> None:
        await asyncio.to_thread(self._put, name)

    async def put_and_fail(self, name: str) -> None:
        await asyncio.to_thread(self._put, name, fail=True)

    async def look(self) -> list[str]:
        return await asyncio.to_thread(self._look)


class _Sqlite3(_Blocking):
    def __init__(self, guard: Guard, audit: InFile) -> None:
        self.guard, self.audit = guard, audit

    def _put(self, name: str, *, fail: bool = False) -> None:
        with retrysafe.sqlite3.connection(self.guard) as db:
            db.execute("INSERT INTO items VALUES (?)", [name])
            if fail:
                raise Broken

    def _look(self) -> list[str]:
        with retrysafe.sqlite3.connection(self.guard) as db:
            return [name for (name,) in db.execute("SELECT name FROM items ORDER BY rowid")]


@asynccontextmanager
async def with_sqlite3(path: Path, **options: Any) -> AsyncGenerator[Ledger]:
    audit = InFile(path)
    guard = a_guard(f"sqlite:///{path}", **options)
    yield _Sqlite3(guard, audit)
    guard.close()


class _Psycopg:
    def __init__(self, guard: Guard, pool: Any, audit: InServer) -> None:
        self.guard, self.pool, self.audit = guard, pool, audit

    async def put(self, name: str) -> None:
        with retrysafe.psycopg.connection(self.guard, self.pool) as db:
            db.execute("INSERT INTO items VALUES (%s)", [name])

    async def put_and_fail(self, name: str) -> None:
        with retrysafe.psycopg.connection(self.guard, self.pool) as db:
            db.execute("INSERT INTO items VALUES (%s)", [name])
            raise Broken

    async def look(self) -> list[str]:
        with retrysafe.psycopg.connection(self.guard, self.pool) as db:
            return [name for (name,) in db.execute("SELECT name FROM items ORDER BY ctid")]


@asynccontextmanager
async def with_psycopg(url: str, **options: Any) -> AsyncGenerator[Ledger]:
    audit = InServer(url)
    guard = a_guard(url, **options)
    with ConnectionPool(url, min_size=1, max_size=4, open=True) as pool:
        yield _Psycopg(guard, pool, audit)
        guard.close()


class _AsyncPsycopg(_Psycopg):
    async def put(self, name: str) -> None:
        async with retrysafe.psycopg.connection_async(self.guard, self.pool) as db:
            await db.execute("INSERT INTO items VALUES (%s)", [name])

    async def put_and_fail(self, name: str) -> None:
        async with retrysafe.psycopg.connection_async(self.guard, self.pool) as db:
            await db.execute("INSERT INTO items VALUES (%s)", [name])
            raise Broken

    async def look(self) -> list[str]:
        async with retrysafe.psycopg.connection_async(self.guard, self.pool) as db:
            cursor = await db.execute("SELECT name FROM items ORDER BY ctid")
            return [name async for (name,) in cursor]


@asynccontextmanager
async def with_async_psycopg(url: str, **options: Any) -> AsyncGenerator[Ledger]:
    audit = InServer(url)
    guard = a_guard(url, **options)
    async with AsyncConnectionPool(url, min_size=1, max_size=4) as pool:
        yield _AsyncPsycopg(guard, pool, audit)
        guard.close()


INSERT = text("INSERT INTO items (name) VALUES (:name)")
SELECT = text("SELECT name FROM items")


class _Session(_Blocking):
    def __init__(self, guard: Guard, audit: Any) -> None:
        self.guard, self.audit = guard, audit
        self.maker: orm.sessionmaker[orm.Session] = retrysafe.sqlalchemy.sessionmaker(guard)

    def _put(self, name: str, *, fail: bool = False) -> None:
        with self.maker() as session:
            session.execute(INSERT, {"name": name})
            if fail:
                raise Broken
            session.commit()

    def _look(self) -> list[str]:
        with self.maker() as session:
            return list(session.scalars(SELECT))


class _Core(_Session):
    def _put(self, name: str, *, fail: bool = False) -> None:
        with retrysafe.sqlalchemy.begin(self.guard) as connection:
            connection.execute(INSERT, {"name": name})
            if fail:
                raise Broken

    def _look(self) -> list[str]:
        with retrysafe.sqlalchemy.begin(self.guard) as connection:
            return list(connection.scalars(SELECT))


class _AsyncSession:
    def __init__(self, guard: Guard, audit: Any) -> None:
        self.guard, self.audit = guard, audit
        self.maker = retrysafe.sqlalchemy.async_sessionmaker(guard)

    async def put(self, name: str) -> None:
        session: AsyncSession
        async with self.maker() as session:
            await session.execute(INSERT, {"name": name})
            await session.commit()

    async def put_and_fail(self, name: str) -> None:
        async with self.maker() as session:
            await session.execute(INSERT, {"name": name})
            raise Broken

    async def look(self) -> list[str]:
        async with self.maker() as session:
            return list(await session.scalars(SELECT))


class _AsyncCore(_AsyncSession):
    async def put(self, name: str) -> None:
        connection: AsyncConnection
        async with retrysafe.sqlalchemy.begin_async(self.guard) as connection:
            await connection.execute(INSERT, {"name": name})

    async def put_and_fail(self, name: str) -> None:
        async with retrysafe.sqlalchemy.begin_async(self.guard) as connection:
            await connection.execute(INSERT, {"name": name})
            raise Broken

    async def look(self) -> list[str]:
        async with retrysafe.sqlalchemy.begin_async(self.guard) as connection:
            return list(await connection.scalars(SELECT))


class _PyMySQL(_Blocking):
    def __init__(self, guard: Guard, connect: Any, audit: InMariaDB) -> None:
        self.guard, self.connect, self.audit = guard, connect, audit

    def _put(self, name: str, *, fail: bool = False) -> None:
        with retrysafe.pymysql.connection(self.guard, self.connect) as db, db.cursor() as cursor:
            cursor.execute("INSERT INTO items (name) VALUES (%s)", [name])
            if fail:
                raise Broken

    def _look(self) -> list[str]:
        with retrysafe.pymysql.connection(self.guard, self.connect) as db, db.cursor() as cursor:
            cursor.execute("SELECT name FROM items ORDER BY number")
            return [name for (name,) in cursor.fetchall()]


@asynccontextmanager
async def with_pymysql(url: str, **options: Any) -> AsyncGenerator[Ledger]:
    audit = InMariaDB(url)
    guard = a_guard(stores.from_engine(create_engine(url.replace("mysql:", "mysql+pymysql:"))), **options)
    yield _PyMySQL(guard, partial(connect_mysql, url), audit)
    guard.close()


def with_engine(driver: str, kind: type[Any]) -> Open:
    """SQLAlchemy through a driver; `+aiosqlite` and `+asyncpg` are awaited, and so is `+psycopg_async`."""

    @asynccontextmanager
    async def opened(place: str | Path, **options: Any) -> AsyncGenerator[Ledger]:
        if isinstance(place, Path):
            audit: Any = InFile(place)
            url = f"sqlite+{driver}:///{place}"
        else:
            audit = InServer(place) if re.match("postgresql:", place) else InMariaDB(place)
            url = re.sub("^([a-z]+):", rf"\1+{driver}:", place)
        if issubclass(kind, _AsyncSession):
            engine = create_async_engine(url)
            guard = a_guard(stores.from_engine(engine), **options)
            yield kind(guard, audit)
            guard.close()
            await engine.dispose()
        else:
            blocking = create_engine(url)
            guard = a_guard(stores.from_engine(blocking), **options)
            yield kind(guard, audit)
            guard.close()
            blocking.dispose()

    return opened


ON_SQLITE: dict[str, Open] = {
    "sqlite3": with_sqlite3,
    "Session, pysqlite": with_engine("pysqlite", _Session),
    "Core, pysqlite": with_engine("pysqlite", _Core),
    "AsyncSession, aiosqlite": with_engine("aiosqlite", _AsyncSession),
    "async Core, aiosqlite": with_engine("aiosqlite", _AsyncCore),
}
ON_POSTGRESQL: dict[str, Open] = {
    "psycopg": with_psycopg,
    "async psycopg": with_async_psycopg,
    "Session, psycopg": with_engine("psycopg", _Session),
    "Core, psycopg": with_engine("psycopg", _Core),
    "Session, pg8000": with_engine("pg8000", _Session),
    "AsyncSession, psycopg": with_engine("psycopg_async", _AsyncSession),
    "AsyncSession, asyncpg": with_engine("asyncpg", _AsyncSession),
    "async Core, asyncpg": with_engine("asyncpg", _AsyncCore),
}
ON_MARIADB: dict[str, Open] = {
    "pymysql": with_pymysql,
    "Session, pymysql": with_engine("pymysql", _Session),
    "Core, pymysql": with_engine("pymysql", _Core),
    "Session, mysqlconnector": with_engine("mysqlconnector", _Session),
    "AsyncSession, asyncmy": with_engine("asyncmy", _AsyncSession),
    "AsyncSession, aiomysql": with_engine("aiomysql", _AsyncSession),
    "async Core, asyncmy": with_engine("asyncmy", _AsyncCore),
}
EVERYWHERE = ON_SQLITE | ON_POSTGRESQL | ON_MARIADB


def place_of(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> str | Path:
    """An SQLite file, or a database of a server that is started for it."""
    if name in ON_SQLITE:
        return tmp_path / "app.db"
    url: str = request.getfixturevalue("database" if name in ON_POSTGRESQL else "mariadb_database")
    return url
