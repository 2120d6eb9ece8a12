"""PostgreSQL as the target: a server of its own, which can be killed, and whose connections can be cut."""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from retrysafe import Guard, stores
from retrysafe import psycopg as joined
from retrysafe.stores.contract import Store
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.proxy import Proxy
from tools.crash import audit, traps
from tools.crash.handlers import AsyncHandlers, Blocking, Handlers, Order, Sessions, SessionsAsync, insert
from tools.crash.links import Statements, ThroughProxy
from tools.crash.targets import Link, Target
from tools.crash.traps import reach

PATIENCE = 2.0
"""Seconds that a handler waits for a connection."""

COMMIT, RESERVE, CONCLUDE = (
    ("COMMIT", "^COMMIT"),
    ("reserve", "INSERT INTO retrysafe_records"),
    ("conclude", "UPDATE retrysafe_records AS record SET state"),
)
STATEMENTS: Statements = {
    "tx": (COMMIT, CONCLUDE),
    "nested": (COMMIT, CONCLUDE, RESERVE),
    "hold": (RESERVE, CONCLUDE),
    "retry": (RESERVE, CONCLUDE),
    "payload": (COMMIT, CONCLUDE, RESERVE),
    "inbox": (RESERVE, CONCLUDE),
}


class PostgreSQL(Target):
    ways: ClassVar[Mapping[str, Sequence[str]]] = {
        "psycopg": (),
        "psycopg async": (),
        "sqlalchemy": (),
        "sqlalchemy async": ("asyncpg", "greenlet"),
    }
    has_server: ClassVar[bool] = True
    has_link: ClassVar[bool] = True

    def __init__(self, folder: Path, server: PostgresServer | None = None) -> None:
        """With a server of its own, unless it is given one, which then is left running."""
        super().__init__(folder)
        self._lent = server is not None
        self._server = server or PostgresServer()

    def prepare(self) -> str:
        url = self._server.new_database()
        with psycopg.connect(url) as connection:
            for statement in audit.CREATE:
                connection.execute(statement.encode())
        return url

    def read(self, url: str) -> audit.Snapshot:
        with psycopg.connect(url) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

            def query(statements: Sequence[str]) -> list[list[Any]]:
                return [connection.execute(statement.encode()).fetchall() for statement in statements]

            return audit.read(query)

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    @contextmanager
    def link(self, url: str) -> Generator[Link]:
        with Proxy(self._server.port) as proxy:
            yield ThroughProxy(proxy, url, STATEMENTS)

    def close(self) -> None:
        if not self._lent:
            self._server.close()

    @classmethod
    def install_traps(cls) -> None:
        traps.commits_of_psycopg()
        traps.commits_of_sqlalchemy()

    @classmethod
    def open(cls, url: str, way: str) -> str | Store:
        match way:
            case "sqlalchemy":
                return stores.from_engine(create_engine(url.replace("postgresql:", "postgresql+psycopg:")))
            case "sqlalchemy async":
                engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
                return stores.from_engine(engine)
            case _:
                return url

    @classmethod
    def handlers(cls, guard: Guard, url: str, way: str) -> Handlers:
        match way:
            case "sqlalchemy":
                return Sessions(guard)
            case "sqlalchemy async":
                return SessionsAsync(guard)
            case "psycopg":
                return _Pooled(guard, url)
            case _:
                return _PooledAsync(guard, url)


class _Pooled(Blocking):
    """Joined connections out of a pool, in threads."""

    def __init__(self, guard: Guard, url: str) -> None:
        self._pool = ConnectionPool(
            url, min_size=1, max_size=8, timeout=PATIENCE, check=ConnectionPool.check_connection, open=False
        )
        super().__init__(lambda: joined.connection(guard, self._pool), "%s")

    def lifespan(self) -> AbstractAsyncContextManager[object]:
        return self._opened()

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        self._pool.open()
        yield


class _PooledAsync(AsyncHandlers):
    """The same in the event loop."""

    def __init__(self, guard: Guard, url: str) -> None:
        self._guard = guard
        self._url = url

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
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

    async def write(self, order: Order, tables: Sequence[str] = audit.TABLES) -> None:
        for table in tables:
            async with joined.connection_async(self._guard, self._pool) as connection:
                await connection.execute(insert(table, "%s").encode(), (order.key, order.id))
            reach("after", f"Write {table}")
