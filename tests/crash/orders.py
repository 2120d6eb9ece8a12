"""The shop: an order is two rows and an answer, and either all three are there or none.

No table has a constraint that would hide a second row.  What a handler is to do wrong on this attempt, a
request says in the header `Mood`, which is no part of its fingerprint.
"""

import contextlib
import sqlite3
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing
from typing import Any, Literal, Protocol

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from retrysafe import Guard, NotDone, stores
from retrysafe import psycopg as joined_psycopg
from retrysafe import sqlite3 as joined_sqlite
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import App
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker
from retrysafe.stores.contract import Store
from tests.crash.traps import Trapped, reach

TABLES = ("crash_orders", "crash_lines")
COLUMNS = "(key text NOT NULL, id text NOT NULL)"

Way = Literal["sqlite3", "psycopg", "psycopg async", "sqlalchemy", "sqlalchemy async"]
"""How handlers reach the database: in threads, or in the event loop."""

PATIENCE = 2.0

Mood = Literal["", "answer 500", "raise", "not done", "answer 429"]
"""Whatever it says, it says it after it has written."""


class Deliberate(Exception):
    """Raised by a handler on purpose."""


class Desk(Protocol):
    """Where orders are written."""

    def living(self) -> AbstractAsyncContextManager[object]: ...
    def endpoint(self) -> Callable[[Request], Awaitable[Response] | Response]: ...


def create_tables(url: str) -> None:
    statements = [f"CREATE TABLE {table} {COLUMNS}" for table in TABLES]
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            for statement in statements:
                file.execute(statement)
    else:
        with psycopg.connect(url) as server:
            for statement in statements:
                server.execute(statement.encode())


def build(url: str, way: Way, lease: float) -> tuple[App, Guard]:
    store: str | Store = url
    if way == "sqlalchemy":
        store = stores.from_engine(create_engine(url.replace("postgresql:", "postgresql+psycopg:")))
    elif way == "sqlalchemy async":
        store = stores.from_engine(create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:")))
    guard = Guard(store, scope=lambda request: "crash", effects="database", lease=lease)
    desk: Desk
    match way:
        case "sqlite3":
            desk = Blocking(lambda: joined_sqlite.connection(guard), "?")
        case "psycopg":
            desk = Pooled(guard, url)
        case "psycopg async":
            desk = Awaiting(guard, url)
        case "sqlalchemy":
            desk = Sessions(guard)
        case "sqlalchemy async":
            desk = AwaitedSessions(guard)

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncGenerator[None]:
        async with desk.living():
            yield

    shop = Starlette(routes=[Route("/orders", desk.endpoint(), methods=["POST"])], lifespan=lifespan)
    return Trapped(Middleware(shop, guard)), guard


def _insert(table: str, mark: str) -> str:
    return f"INSERT INTO {table} (key, id) VALUES ({mark}, {mark})"


def _answer(request: Request, id: str) -> Response:
    match request.headers.get("Mood", ""):
        case "answer 500":
            return JSONResponse({"sorry": id}, 500)
        case "answer 429":
            return JSONResponse({"sorry": id}, 429)
        case "raise":
            raise Deliberate
        case "not done":
            raise NotDone
        case _:
            return JSONResponse({"id": id}, 201)


def _key(request: Request) -> str:
    return request.headers["Idempotency-Key"].strip('"')


class Blocking:
    """Handlers in threads."""

    def __init__(self, connection: Callable[[], AbstractContextManager[Any]], mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def living(self) -> AbstractAsyncContextManager[object]:
        return contextlib.nullcontext()

    def endpoint(self) -> Callable[[Request], Response]:
        def place(request: Request) -> Response:
            id, key = uuid.uuid4().hex, _key(request)
            for table in TABLES:
                with self._connection() as connection:
                    connection.execute(_insert(table, self._mark), (key, id))
                reach("after", f"Write {table}")
            return _answer(request, id)

        return place


class Pooled(Blocking):
    def __init__(self, guard: Guard, url: str) -> None:
        self._pool = ConnectionPool(
            url, min_size=1, max_size=8, timeout=PATIENCE, check=ConnectionPool.check_connection, open=False
        )
        super().__init__(lambda: joined_psycopg.connection(guard, self._pool), "%s")

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        self._pool.open()
        yield

    def living(self) -> AbstractAsyncContextManager[object]:
        return self._opened()


class Awaiting:
    """Handlers in the event loop."""

    def __init__(self, guard: Guard, url: str) -> None:
        self._guard = guard
        self._url = url

    @asynccontextmanager
    async def living(self) -> AsyncGenerator[None]:
        self._pool = AsyncConnectionPool(
            self._url,
            min_size=1,
            max_size=8,
            timeout=PATIENCE,
            check=AsyncConnectionPool.check_connection,
            open=False,
        )
        await self._pool.open()
        yield

    def endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        async def place(request: Request) -> Response:
            id, key = uuid.uuid4().hex, _key(request)
            for table in TABLES:
                async with joined_psycopg.connection_async(self._guard, self._pool) as connection:
                    await connection.execute(_insert(table, "%s").encode(), (key, id))
                reach("after", f"Write {table}")
            return _answer(request, id)

        return place


ROW = "INSERT INTO {} (key, id) VALUES (:key, :id)"


class Sessions:
    """Handlers in threads, with a session of SQLAlchemy's that is committed after each write."""

    def __init__(self, guard: Guard) -> None:
        self._sessions = sessionmaker(guard)

    def living(self) -> AbstractAsyncContextManager[object]:
        return contextlib.nullcontext()

    def endpoint(self) -> Callable[[Request], Response]:
        def place(request: Request) -> Response:
            id, key = uuid.uuid4().hex, _key(request)
            with self._sessions() as session:
                for table in TABLES:
                    session.execute(text(ROW.format(table)), {"key": key, "id": id})
                    session.commit()
                    reach("after", f"Write {table}")
            return _answer(request, id)

        return place


class AwaitedSessions:
    """The same in the event loop."""

    def __init__(self, guard: Guard) -> None:
        self._sessions = async_sessionmaker(guard)

    def living(self) -> AbstractAsyncContextManager[object]:
        return contextlib.nullcontext()

    def endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        async def place(request: Request) -> Response:
            id, key = uuid.uuid4().hex, _key(request)
            async with self._sessions() as session:
                for table in TABLES:
                    await session.execute(text(ROW.format(table)), {"key": key, "id": id})
                    await session.commit()
                    reach("after", f"Write {table}")
            return _answer(request, id)

        return place
