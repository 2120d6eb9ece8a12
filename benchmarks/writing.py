"""Applications whose handler writes: one row into a table of its own, committed; bare, and guarded.

What is guarded has `effects="database"`: the row and the stored answer are committed together.  Bare and
guarded are the same code but for what gives the session or the connection, and have pools of the same size.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager, nullcontext
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any

from benchmarks.apps import Asgi, address_of
from benchmarks.database import arguments_of

if TYPE_CHECKING:
    from sqlalchemy import Engine, orm
    from sqlalchemy.ext.asyncio import AsyncEngine

    from retrysafe import Guard
    from retrysafe.stores import Store

POOL = 10
"""Connections of an application: about as many as SQLAlchemy's own default may open."""

TABLE = "CREATE TABLE charges (id {serial}, amount integer NOT NULL, note text NOT NULL)"


# --- psycopg


def psycopg_bare(folder: Path) -> Asgi:
    pool = _pool(folder)
    return _on_psycopg(pool.connection, pool)


def psycopg_tx(folder: Path) -> Asgi:
    from retrysafe import stores
    from retrysafe.psycopg import connection_async

    pool = _pool(folder)
    guard = _guard(stores.open(address_of(folder)))
    return _behind(guard, _on_psycopg(lambda: connection_async(guard, pool), pool))


def _pool(folder: Path) -> Any:
    from psycopg_pool import AsyncConnectionPool

    _make_table(folder)
    return AsyncConnectionPool(address_of(folder), min_size=POOL, max_size=POOL, open=False)


def _on_psycopg(connection: Callable[[], AbstractAsyncContextManager[Any]], pool: Any) -> Asgi:
    async def charge(amount: int, note: str) -> None:
        async with connection() as db:
            await db.execute("INSERT INTO charges (amount, note) VALUES (%s, %s)", [amount, note])

    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        async with pool:
            yield

    return _starlette(charge, life())


# --- SQLAlchemy, with FastAPI as its documentation has it: a blocking handler, a session by dependency


def session_bare(folder: Path) -> Asgi:
    from sqlalchemy import orm

    engine = _engine(folder)
    return _on_session(orm.sessionmaker(engine), engine)


def session_tx(folder: Path) -> Asgi:
    return _session_tx(_engine(folder))


def _session_tx(engine: "Engine") -> Asgi:
    from retrysafe import stores
    from retrysafe.sqlalchemy import sessionmaker

    guard = _guard(stores.from_engine(engine))
    return _behind(guard, _on_session(sessionmaker(guard), engine))


def _engine(folder: Path, driver: str = "psycopg") -> "Engine":
    from sqlalchemy import create_engine

    _make_table(folder)
    return create_engine(_dialect(folder, driver), pool_size=POOL, max_overflow=0)


def _on_session(session: "orm.sessionmaker[orm.Session]", engine: "Engine") -> Asgi:
    from fastapi import Depends, FastAPI
    from pydantic import BaseModel
    from sqlalchemy.orm import Session

    charge_of = _mapped()
    app = FastAPI(lifespan=lambda _: _life_of(engine))

    class Order(BaseModel):
        amount: int
        note: str

    def get_db() -> Iterator[Session]:
        with session() as db:
            yield db

    def charge(order: Order, db: Annotated[Session, Depends(get_db)]) -> dict[str, int]:
        db.add(charge_of(amount=order.amount, note=order.note))
        db.commit()
        return {"id": 1, "amount": order.amount}

    app.post("/charges", status_code=201)(charge)
    return app


# --- SQLAlchemy, asynchronous


def async_session_bare(folder: Path) -> Asgi:
    return _async_bare(_async_engine(folder, "psycopg"))


def async_session_tx(folder: Path) -> Asgi:
    return _async_tx(_async_engine(folder, "psycopg"))


def asyncpg_session_bare(folder: Path) -> Asgi:
    return _async_bare(_async_engine(folder, "asyncpg"))


def asyncpg_session_tx(folder: Path) -> Asgi:
    return _async_tx(_async_engine(folder, "asyncpg"))


def _async_engine(folder: Path, driver: str) -> "AsyncEngine":
    from sqlalchemy.ext.asyncio import create_async_engine

    _make_table(folder)
    return create_async_engine(_dialect(folder, driver), pool_size=POOL, max_overflow=0)


def _async_bare(engine: "AsyncEngine") -> Asgi:
    from sqlalchemy.ext.asyncio import async_sessionmaker

    return _on_async_session(async_sessionmaker(engine), engine)


def _async_tx(engine: "AsyncEngine") -> Asgi:
    from retrysafe import stores
    from retrysafe.sqlalchemy import async_sessionmaker

    guard = _guard(stores.from_engine(engine))
    return _behind(guard, _on_async_session(async_sessionmaker(guard), engine))


def _on_async_session(session: Callable[[], AbstractAsyncContextManager[Any]], engine: "AsyncEngine") -> Asgi:
    charge_of = _mapped()

    async def charge(amount: int, note: str) -> None:
        async with session() as db:
            db.add(charge_of(amount=amount, note=note))
            await db.commit()

    return _starlette(charge, _life_of(engine))


# --- MariaDB: by SQLAlchemy as above, and by PyMySQL, which has no pool


def mariadb_session_bare(folder: Path) -> Asgi:
    from sqlalchemy import orm

    engine = _engine(folder, "pymysql")
    return _on_session(orm.sessionmaker(engine), engine)


def mariadb_session_tx(folder: Path) -> Asgi:
    return _session_tx(_engine(folder, "pymysql"))


def mariadb_async_session_bare(folder: Path) -> Asgi:
    return _async_bare(_async_engine(folder, "asyncmy"))


def mariadb_async_session_tx(folder: Path) -> Asgi:
    return _async_tx(_async_engine(folder, "asyncmy"))


def pymysql_bare(folder: Path) -> Asgi:
    _make_table(folder)
    connections = _Connections(address_of(folder))

    def charge(amount: int, note: str) -> None:
        with connections.one() as db, db.cursor() as cursor:
            cursor.execute("INSERT INTO charges (amount, note) VALUES (%s, %s)", [amount, note])
            db.commit()

    return _starlette_blocking(charge)


def pymysql_tx(folder: Path) -> Asgi:
    from retrysafe import stores
    from retrysafe.pymysql import connection

    _make_table(folder)
    connections = _Connections(address_of(folder))
    guard = _guard(stores.open(address_of(folder)))

    def charge(amount: int, note: str) -> None:
        with connection(guard, connections.one) as db, db.cursor() as cursor:
            cursor.execute("INSERT INTO charges (amount, note) VALUES (%s, %s)", [amount, note])

    return _behind(guard, _starlette_blocking(charge))


class _Connections:
    """The simplest pool that keeps connections open."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._idle: SimpleQueue[Any] = SimpleQueue()

    @contextmanager
    def one(self) -> Iterator[Any]:
        try:
            found = self._idle.get_nowait()
        except Empty:
            found = _connect_pymysql(self._address)
        yield found
        self._idle.put(found)


def _connect_pymysql(address: str) -> Any:
    import pymysql

    return pymysql.connect(**{**arguments_of(address), "autocommit": False})


# --- SQLite, blocking: with the store's own file, as the application's


def sqlite_bare(folder: Path) -> Asgi:
    path = _make_file(folder)

    def charge(amount: int, note: str) -> None:
        # As durable as with us: flushed to the disk at each commit.
        with closing(sqlite3.connect(path, timeout=10)) as db, db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("INSERT INTO charges (amount, note) VALUES (?, ?)", [amount, note])

    return _starlette_blocking(charge)


def sqlite_tx(folder: Path) -> Asgi:
    from retrysafe import stores
    from retrysafe.sqlite3 import connection

    guard = _guard(stores.open(f"sqlite:///{_make_file(folder)}", deadline=10))

    def charge(amount: int, note: str) -> None:
        with connection(guard) as db:
            db.execute("INSERT INTO charges (amount, note) VALUES (?, ?)", [amount, note])

    return _behind(guard, _starlette_blocking(charge))


def _make_file(folder: Path) -> Path:
    path = folder / "application.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(TABLE.format(serial="integer PRIMARY KEY"))
    return path


# --- what they have in common


def _guard(store: "Store") -> "Guard":
    from retrysafe import Guard, scopes

    return Guard(store, scope=scopes.header("X-Tenant"), effects="database")


def _behind(guard: "Guard", app: Asgi) -> Asgi:
    from retrysafe.asgi import Middleware

    return Middleware(app, guard)


@asynccontextmanager
async def _life_of(engine: "Engine | AsyncEngine") -> AsyncIterator[None]:
    yield
    if (disposed := engine.dispose()) is not None:
        await disposed


def _starlette(
    charge: Callable[[int, str], Any], life: AbstractAsyncContextManager[Any] | None = None
) -> Asgi:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Request) -> JSONResponse:
        order = await request.json()
        await charge(order["amount"], order["note"])
        return JSONResponse({"id": 1, "amount": order["amount"]}, status_code=201)

    return Starlette(
        routes=[Route("/charges", answer, methods=["POST"])], lifespan=lambda _: life or nullcontext()
    )


def _starlette_blocking(charge: Callable[[int, str], None]) -> Asgi:
    from starlette.concurrency import run_in_threadpool

    return _starlette(lambda amount, note: run_in_threadpool(charge, amount, note))


def _make_table(folder: Path) -> None:
    address = address_of(folder)
    if address.startswith("mysql:"):
        with closing(_connect_pymysql(address)) as connection, connection.cursor() as cursor:
            cursor.execute(TABLE.format(serial="bigint AUTO_INCREMENT PRIMARY KEY"))
        return
    import psycopg

    with psycopg.connect(address) as db:
        db.execute(TABLE.format(serial="bigserial PRIMARY KEY").encode())


def _dialect(folder: Path, driver: str) -> str:
    """The address as SQLAlchemy has it."""
    scheme, _, rest = address_of(folder).partition(":")
    return f"{scheme}+{driver}:{rest}"


def _mapped() -> Any:
    from sqlalchemy import orm

    class Base(orm.DeclarativeBase):
        pass

    class Charge(Base):
        __tablename__ = "charges"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        amount: orm.Mapped[int]
        note: orm.Mapped[str]

    return Charge
