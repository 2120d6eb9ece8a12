"""An application with a ledger, in process, and what must hold of it after every fault.

Its orders are rows of the database that the records are in; or, where a store has no transactions for
applications, entries of another system.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import cached_property
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from retrysafe import Guard, stores
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import App, Connection, Receive, Send
from retrysafe.psycopg import connection_async
from retrysafe.stores.admin import Query
from retrysafe.stores.contract import Store
from retrysafe.testing.reference.databases import connect_to_mysql
from tests.faults.wire import PATIENCE, Heard, Wire, connection, fresh, respond

Handle = Callable[[Any, str], Awaitable[None]]
"""What a request does, given the books and its key."""

Entry = tuple[str, str]
"""A key, and the id of an order."""


class Books(ABC):
    """A guarded application that enters orders.  `url` is the auditor's way to the store."""

    def __init__(self, guard: Guard, url: str) -> None:
        self.guard = guard
        self.url = url
        self.handle: Handle = Books.write
        self.answers: dict[str, str] = {}
        self.attempts = 0
        self.app: App = Middleware(self._serve, guard)

    async def _serve(self, scope: Connection, receive: Receive, send: Send) -> None:
        key = dict(scope["headers"])[b"idempotency-key"].decode()
        self.attempts += 1
        await self.handle(self, key)
        await respond(send, 201, self.answers[key].encode())

    async def write(self, key: str) -> None:
        """One order, and its answer says which."""
        self.answers[key] = fresh("order")
        await self.enter(key, self.answers[key])

    @abstractmethod
    async def enter(self, key: str, order: str) -> None:
        """In the transaction of the guarded call, if it has one."""

    async def post(self, key: str, app: App | None = None) -> Heard:
        """One request.  What the application raises is for the server's log."""
        wire = Wire(b"{}")
        try:
            await (app or self.app)(connection("/orders", key=key), wire.receive, wire.send)
        except Exception:  # noqa: BLE001 - raised again for the log, after it was answered
            assert wire.complete
        return wire.heard

    async def settled(self, key: str) -> Heard:
        """Ask until it is answered for good."""
        until = time.monotonic() + PATIENCE * 3
        while True:
            heard = await self.post(key)
            if heard.status == 201:
                return heard
            assert time.monotonic() < until, heard
            await asyncio.sleep(0.05)

    # --- seen from outside

    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """All orders."""

    @abstractmethod
    def in_transaction(self) -> Sequence[object]:
        """The sessions that have a transaction open, and do nothing."""

    @cached_property
    def _store(self) -> Store:
        return stores.open(self.url, deadline=PATIENCE)

    def orders(self, key: str) -> list[str]:
        return [order for found, order in self.entries() if found == key]

    def completed(self) -> Sequence[Entry]:
        """The records that are, and the order that each responds with."""
        with closing(self._store.open_admin()) as admin:
            sightings = admin.list(Query(standings=frozenset({"completed"})), limit=100_000)
        found: list[Entry] = []
        for sighting in sightings:
            whole = self._store.look(sighting.record.id)
            assert whole is not None
            assert whole.record.response is not None
            found.append((str(whole.record.key), whole.record.response.body.decode()))
        return found

    def assert_balanced(self) -> None:
        """I14: a completed record for each order and an order for each completed record, of the same id."""
        assert sorted(self.entries()) == sorted(self.completed())

    def assert_none_in_transaction(self) -> None:
        """No session of anybody's hangs in a transaction."""
        until = time.monotonic() + PATIENCE
        while hanging := self.in_transaction():
            assert time.monotonic() < until, hanging
            time.sleep(0.02)

    def close(self) -> None:
        if "_store" in vars(self):
            self._store.close()


class PostgresBooks(Books):
    """With a pool of psycopg's, as applications have one."""

    def __init__(self, guard: Guard, pool: "AsyncConnectionPool[Any]", url: str) -> None:
        super().__init__(guard, url)
        self.pool = pool
        self._auditor: psycopg.Connection[Any] | None = None

    async def enter(self, key: str, order: str) -> None:
        async with connection_async(self.guard, self.pool) as db:
            await db.execute("INSERT INTO orders VALUES (%s, %s)", [key, order])

    async def insert(self, db: psycopg.AsyncConnection[Any], key: str) -> None:
        """One order, in a transaction that is begun."""
        self.answers[key] = fresh("order")
        await db.execute("INSERT INTO orders VALUES (%s, %s)", [key, self.answers[key]])

    def ask(self, sql: str, *values: str) -> list[Any]:
        if self._auditor is None or self._auditor.broken:
            self._auditor = psycopg.connect(self.url, autocommit=True)
        return self._auditor.execute(sql.encode(), values).fetchall()

    def entries(self) -> Sequence[Entry]:
        return self.ask("SELECT key, id FROM orders")

    def orders(self, key: str) -> list[str]:
        return [id for (id,) in self.ask("SELECT id FROM orders WHERE key = %s", key)]

    def completed(self) -> Sequence[Entry]:
        """In one question: there may be many."""
        return self.ask(
            "SELECT key, convert_from(body, 'UTF8') FROM retrysafe_records WHERE state = 'completed'"
        )

    def in_transaction(self) -> Sequence[object]:
        return self.ask(
            "SELECT pid, query FROM pg_stat_activity "
            "WHERE datname = current_database() AND state LIKE 'idle in transaction%%'"
        )

    async def assert_pool_is_full(self) -> None:
        async with asyncio.timeout(PATIENCE):
            taken = [await self.pool.getconn() for _ in range(self.pool.max_size)]
        for db in taken:
            await self.pool.putconn(db)

    def close(self) -> None:
        super().close()
        if self._auditor is not None:
            self._auditor.close()


class MariaDBBooks(Books):
    """In threads, because PyMySQL blocks; each connects where it is used."""

    def __init__(self, guard: Guard, application: str, url: str) -> None:
        super().__init__(guard, url)
        self._application = application

    async def enter(self, key: str, order: str) -> None:
        await asyncio.to_thread(self._enter, key, order)

    def _enter(self, key: str, order: str) -> None:
        from retrysafe.pymysql import connection

        with connection(self.guard, lambda: connect_to_mysql(self._application)) as db, db.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s, %s)", [key, order])

    def _ask(self, sql: str) -> Sequence[Any]:
        with closing(connect_to_mysql(self.url)) as auditor, auditor.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def entries(self) -> Sequence[Entry]:
        return self._ask("SELECT `key`, id FROM orders")

    def in_transaction(self) -> Sequence[object]:
        return self._ask(
            "SELECT session.id, session.db FROM information_schema.innodb_trx AS open "
            "JOIN information_schema.processlist AS session ON session.id = open.trx_mysql_thread_id "
            "WHERE session.db = DATABASE() AND session.command = 'Sleep'"
        )


class BooksElsewhere(Books):
    """Orders are entered in another system: what a store without transactions is for."""

    def __init__(self, guard: Guard, url: str) -> None:
        super().__init__(guard, url)
        self._entries: list[Entry] = []

    async def enter(self, key: str, order: str) -> None:
        self._entries.append((key, order))

    def entries(self) -> Sequence[Entry]:
        return self._entries

    def in_transaction(self) -> Sequence[object]:
        return ()


def create(url: str) -> None:
    """Orders; and lines, which may be written without their parents, and not committed."""
    with psycopg.connect(url) as db:
        db.execute("CREATE TABLE orders (key text NOT NULL, id text NOT NULL)")
        db.execute("CREATE TABLE parents (id int PRIMARY KEY)")
        db.execute("CREATE TABLE lines (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")


@asynccontextmanager
async def opened(
    store: str | Store, application: str, auditor: str, **options: Any
) -> AsyncGenerator[PostgresBooks]:
    """Store, application and auditor may take different ways to the same database."""
    policy: dict[str, Any] = {"effects": "database", "lease": 30.0, **options}
    guard = Guard(store, scope=lambda request: "books", **policy)
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        application,
        min_size=1,
        max_size=3,
        timeout=2.0,
        open=False,
        check=AsyncConnectionPool.check_connection,
    )
    await pool.open()
    books = PostgresBooks(guard, pool, auditor)
    try:
        yield books
    finally:
        books.close()
        with contextlib.suppress(asyncio.CancelledError):
            await pool.close(5)
        await asyncio.to_thread(guard.close)


@asynccontextmanager
async def opened_elsewhere(
    store: str | Store, _application: str, auditor: str, **options: Any
) -> AsyncGenerator[BooksElsewhere]:
    """The application has no way to the store."""
    policy: dict[str, Any] = {"lease": 30.0, **options}
    guard = Guard(store, scope=lambda request: "books", **policy)
    books = BooksElsewhere(guard, auditor)
    try:
        yield books
    finally:
        books.close()
        await asyncio.to_thread(guard.close)


@asynccontextmanager
async def opened_in_mariadb(
    store: str | Store, application: str, auditor: str, **options: Any
) -> AsyncGenerator[MariaDBBooks]:
    policy: dict[str, Any] = {"effects": "database", "lease": 30.0, **options}
    guard = Guard(store, scope=lambda request: "books", **policy)
    books = MariaDBBooks(guard, application, auditor)
    try:
        yield books
    finally:
        books.close()
        await asyncio.to_thread(guard.close)


def create_in_mariadb(url: str) -> None:
    with closing(connect_to_mysql(url)) as db, db.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (`key` VARCHAR(255) NOT NULL, id VARCHAR(255) NOT NULL)")
