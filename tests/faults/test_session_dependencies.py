"""FastAPI with the usual `yield` session dependency: a commit that fails gives the client an error, the retry
runs, and nothing false is ever replayed.

FastAPI runs what stands behind the `yield` after the response has been made, and so does the guard's commit
come after it: whatever goes wrong there must reach the client all the same.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from retrysafe import Guard, stores
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import App
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker
from retrysafe.testing.postgres import PostgresServer
from tests.faults.wire import Heard, Wire, connection, fresh

TABLES = (
    "CREATE TABLE orders (key text NOT NULL, id text NOT NULL UNIQUE)",
    "CREATE TABLE parents (id int PRIMARY KEY)",
    "CREATE TABLE lines (parent int REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
)

ORDER, LINE = "INSERT INTO orders VALUES (:key, :id)", "INSERT INTO lines VALUES (0)"

Key = Annotated[str, Header(alias="Idempotency-Key")]
Mishap = Annotated[str, Header()]


class Shop:
    """The application and its database."""

    def __init__(self, guard: Guard, app: App, auditor: Engine) -> None:
        self.guard = guard
        self._app = Middleware(app, guard)
        self._auditor = auditor
        self.mishap = ""
        """What goes wrong next."""

    async def post(self, key: str) -> Heard:
        wire = Wire(b"{}")
        fields = [(b"mishap", self.mishap.encode()), (b"content-type", b"application/json")]
        try:
            await self._app(connection("/orders", key=key, fields=fields), wire.receive, wire.send)
        except Exception:  # noqa: BLE001 - raised again for the server's log, after it was answered
            assert wire.complete
        return wire.heard

    def orders(self) -> list[str]:
        with self._auditor.connect() as database:
            return [key for (key,) in database.execute(text("SELECT key FROM orders"))]

    def completed(self) -> list[str]:
        with self._auditor.connect() as database:
            found = database.execute(text("SELECT key FROM retrysafe_records WHERE state = 'completed'"))
            return [key for (key,) in found]


def _blocking(url: str, auditor: Engine) -> Shop:
    engine = create_engine(url)
    guard = Guard(stores.from_engine(engine), scope=lambda request: "shop", effects="database")
    Sessions = sessionmaker(guard)
    app = FastAPI()

    def get_db(mishap: Mishap = "") -> Iterator[Session]:
        with Sessions() as session:
            yield session
            if mishap == "behind the yield":
                session.execute(text("INSERT INTO nowhere VALUES (1)"))
            session.commit()

    @app.post("/orders", status_code=201)
    def create(key: Key, db: Annotated[Session, Depends(get_db)], mishap: Mishap = "") -> dict[str, str]:
        db.execute(text(ORDER), {"key": key, "id": fresh()})
        if mishap == "deferred":
            db.execute(text(LINE))
        if mishap == "swallowed":
            with suppress(Exception):  # handlers do such things
                db.execute(text("INSERT INTO nowhere VALUES (1)"))
        if mishap == "committed, then raised":
            db.commit()
            raise RuntimeError(mishap)
        return {"key": key}

    return Shop(guard, app, auditor)


def _awaiting(url: str, auditor: Engine) -> Shop:
    engine = create_async_engine(url)
    guard = Guard(stores.from_engine(engine), scope=lambda request: "shop", effects="database")
    Sessions = async_sessionmaker(guard)
    app = FastAPI()

    async def get_db(mishap: Mishap = "") -> AsyncIterator[AsyncSession]:
        async with Sessions() as session:
            yield session
            if mishap == "behind the yield":
                await session.execute(text("INSERT INTO nowhere VALUES (1)"))
            await session.commit()

    @app.post("/orders", status_code=201)
    async def create(
        key: Key, db: Annotated[AsyncSession, Depends(get_db)], mishap: Mishap = ""
    ) -> dict[str, str]:
        await db.execute(text(ORDER), {"key": key, "id": fresh()})
        if mishap == "deferred":
            await db.execute(text(LINE))
        if mishap == "swallowed":
            with suppress(Exception):  # handlers do such things
                await db.execute(text("INSERT INTO nowhere VALUES (1)"))
        if mishap == "committed, then raised":
            await db.commit()
            raise RuntimeError(mishap)
        return {"key": key}

    return Shop(guard, app, auditor)


WAYS = [
    "sqlite+pysqlite",
    "sqlite+aiosqlite",
    "postgresql+psycopg",
    "postgresql+psycopg async",
    "postgresql+asyncpg",
]


@pytest.fixture
def make(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> Iterator[Any]:
    driver, _, asynchronous = str(request.param).partition(" ")
    if driver.startswith("sqlite"):
        url, plain = f"{driver}:///{tmp_path / 'shop.db'}", f"sqlite:///{tmp_path / 'shop.db'}"
    else:
        url = postgres.new_database().replace("postgresql", driver, 1)
        plain = url.replace(driver, "postgresql+psycopg", 1)
    auditor = create_engine(plain)
    with auditor.begin() as database:
        for statement in TABLES:
            database.execute(text(statement))
    build = _awaiting if asynchronous or driver.endswith(("aiosqlite", "asyncpg")) else _blocking
    yield lambda: build(url, auditor)
    auditor.dispose()


MISHAPS = ["deferred", "behind the yield", "swallowed", "committed, then raised"]


# SQLite checks foreign keys only where it is asked to.
CASES = [(way, mishap) for way in WAYS for mishap in MISHAPS if (way[:6], mishap) != ("sqlite", "deferred")]


@pytest.mark.parametrize(("make", "mishap"), CASES, indirect=["make"])
def test_a_commit_that_fails(make: Any, mishap: str, request: pytest.FixtureRequest) -> None:
    """The client gets an error and nothing is kept; the retry runs, and what it did is what is replayed."""
    way = str(request.node.callspec.params["make"])

    async def play() -> None:
        shop: Shop = make()
        shop.mishap = mishap
        key = fresh()
        heard = await shop.post(key)
        if mishap == "swallowed" and way.startswith("sqlite"):
            assert heard.status == 201  # there an error undoes its statement, and the transaction goes on
            assert shop.orders() == [key]
            return
        assert (heard.status, heard.replayed) == (500, False), heard
        assert shop.orders() == []
        assert shop.completed() == []
        shop.mishap = ""
        heard = await shop.post(key)
        assert (heard.status, heard.replayed) == (201, False), heard
        again = await shop.post(key)
        assert (again.status, again.replayed, again.body) == (201, True, heard.body)
        assert shop.orders() == shop.completed() == [key]
        await asyncio.to_thread(shop.guard.close)

    asyncio.run(play())
