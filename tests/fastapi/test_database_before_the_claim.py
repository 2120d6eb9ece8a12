"""What dependencies do in the guard's database before the endpoint claims the key."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import psycopg_pool
import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, Session, SQLModel

from retrysafe import Guard, psycopg, scopes, sqlite3, stores
from retrysafe.errors import ConfigurationError, NotJoined
from retrysafe.fastapi import idempotent, protect
from retrysafe.policy import Effects
from retrysafe.sqlalchemy import async_sessionmaker, begin, sessionmaker
from tests.fastapi.shop import KEY

COUNT, ADD = text("SELECT count(*) FROM payments"), text("INSERT INTO payments VALUES (1)")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database with an empty table."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'bank.db'}"
    else:
        url = request.getfixturevalue("database")
    with closing_engine(url) as engine, engine.begin() as db:
        db.execute(text("CREATE TABLE payments (amount INTEGER)"))
    return url


def with_driver(url: str, postgresql: str = "psycopg", sqlite: str = "pysqlite") -> str:
    return url.replace("postgresql:", f"postgresql+{postgresql}:").replace("sqlite:", f"sqlite+{sqlite}:")


class Guest(SQLModel, table=True):
    name: str = Field(primary_key=True)
    visits: int = 0


class closing_engine:
    def __init__(self, url: str) -> None:
        self.engine = create_engine(with_driver(url), pool_size=1, max_overflow=0, pool_timeout=5)

    def __enter__(self) -> Engine:
        return self.engine

    def __exit__(self, *_: object) -> None:
        self.engine.dispose()


def build(store: Any, effects: Effects = "database") -> tuple[FastAPI, Guard]:
    guard = Guard(store, scope=scopes.header("X-Tenant"), effects=effects)
    app = FastAPI()
    protect(app, guard)
    return app, guard


def pay(client: TestClient, key: str = KEY) -> Any:
    return client.post("/payments", headers={"Idempotency-Key": key, "X-Tenant": "7"})


def test_a_pool_of_one(url: str) -> None:
    """What authentication has read with is given back at the claim: no request waits for a second connection.

    Else as many requests as the pool has connections would wait for each other.
    """
    with closing_engine(url) as engine:
        app, guard = build(stores.from_engine(engine))
        sessions = sessionmaker(guard)

        def session() -> Iterator[Any]:
            with sessions() as db:
                yield db

        def signed_in(db: Annotated[Any, Depends(session)]) -> int:
            return int(db.scalar(COUNT))

        @app.post("/payments")
        @idempotent(guard)
        def create(before: Annotated[int, Depends(signed_in)], db: Annotated[Any, Depends(session)]) -> Any:
            db.execute(ADD)
            db.commit()
            return before, db.scalar(COUNT)

        with TestClient(app, raise_server_exceptions=False) as client:
            assert [pay(client, key).json() for key in ("1", "2", "2")] == [[0, 1], [1, 2], [1, 2]]


def test_a_pool_of_one_awaiting(url: str) -> None:
    engine = create_async_engine(
        with_driver(url, "asyncpg", "aiosqlite"), pool_size=1, max_overflow=0, pool_timeout=5
    )
    app, guard = build(stores.from_engine(engine))
    sessions = async_sessionmaker(guard)

    async def session() -> AsyncIterator[Any]:
        async with sessions() as db:
            yield db

    async def signed_in(db: Annotated[Any, Depends(session)]) -> int:
        return int(await db.scalar(COUNT))

    @app.post("/payments")
    @idempotent(guard)
    async def create(before: Annotated[int, Depends(signed_in)], db: Annotated[Any, Depends(session)]) -> Any:
        await db.execute(ADD)
        await db.commit()
        return before, await db.scalar(COUNT)

    with TestClient(app, raise_server_exceptions=False) as client:
        assert [pay(client, key).json() for key in ("1", "2", "2")] == [[0, 1], [1, 2], [1, 2]]
        assert client.portal is not None
        client.portal.call(engine.dispose)


def test_what_was_loaded_stays(url: str) -> None:
    """The session keeps what it has loaded and what is still to be written; only its connection changes."""
    with closing_engine(url) as engine:
        SQLModel.metadata.create_all(engine, tables=[SQLModel.metadata.tables["guest"]])
        with Session(engine) as first:
            first.add(Guest(name="alice"))
            first.commit()
        app, guard = build(stores.from_engine(engine))
        sessions = sessionmaker(guard, class_=Session)

        def session() -> Iterator[Any]:
            with sessions() as db:
                yield db

        def signed_in(db: Annotated[Any, Depends(session)]) -> Any:
            guest = db.get(Guest, "alice")
            db.add(Guest(name="bob"))  # not flushed yet
            return guest

        @app.post("/payments")
        @idempotent(guard)
        def visit(guest: Annotated[Any, Depends(signed_in)], db: Annotated[Any, Depends(session)]) -> str:
            assert db.get(Guest, "alice") is guest
            guest.visits += 1
            db.commit()
            return str(guest.name)

        with TestClient(app) as client:
            assert [pay(client).json() for _ in range(2)] == ["alice"] * 2
        with engine.connect() as last:
            rows = last.execute(text("SELECT name, visits FROM guest ORDER BY name")).all()
        assert [tuple(row) for row in rows] == [("alice", 1), ("bob", 0)]


@pytest.mark.parametrize("write", ["INSERT INTO payments VALUES (1)", "SELECT written()"])
def test_what_was_written_is_not_forgotten(database: str, write: str) -> None:
    """On PostgreSQL a session that has written keeps its connection, and cannot be part of the call."""
    with closing_engine(database) as plain, plain.begin() as db:
        db.execute(text("CREATE TABLE payments (amount INTEGER)"))
        db.execute(
            text("CREATE FUNCTION written() RETURNS void LANGUAGE SQL AS 'INSERT INTO payments VALUES (1)'")
        )
    engine = create_engine(with_driver(database))
    app, guard = build(stores.from_engine(engine))
    sessions = sessionmaker(guard)

    def session() -> Iterator[Any]:
        with sessions() as db:
            yield db

    def signed_in(db: Annotated[Any, Depends(session)]) -> None:
        db.execute(text(write))

    @app.post("/payments", dependencies=[Depends(signed_in)])
    @idempotent(guard)
    def create(db: Annotated[Any, Depends(session)]) -> int:
        db.execute(ADD)
        db.commit()
        return int(db.scalar(COUNT))

    with TestClient(app) as client, pytest.raises(NotJoined, match="wrote or took a lock before the key"):
        pay(client)
    with engine.connect() as after:
        assert after.scalar(COUNT) == 0
    engine.dispose()


@pytest.mark.parametrize("effects", ["database", "outside"])
@pytest.mark.parametrize("library", ["core", "driver"])
def test_a_connection_that_is_open(url: str, library: str, effects: Effects) -> None:
    """It could not be part of the call: refused, and not an effect that a crash would repeat."""
    with closing_engine(url) as engine:
        is_file, pool = url.startswith("sqlite"), None
        if not is_file and library == "driver":
            pool = psycopg_pool.ConnectionPool(url, min_size=1, open=True)
        app, guard = build(url if library == "driver" else stores.from_engine(engine), effects)

        def opened() -> Iterator[Any]:
            if library == "core":
                context: Any = begin(guard)
            else:
                context = sqlite3.connection(guard) if is_file else psycopg.connection(guard, pool)  # type: ignore[arg-type]
            with context as db:
                yield db

        @app.post("/payments")
        @idempotent(guard)
        def create(db: Annotated[Any, Depends(opened)]) -> str:
            db.execute(ADD if library == "core" else str(ADD))
            return "paid"

        with TestClient(app) as client:
            if effects == "database":
                with pytest.raises(ConfigurationError, match="opened before the key of this request"):
                    pay(client)
            else:
                assert pay(client).json() == "paid"
        with closing_engine(url) as other, closing(other.connect()) as db:
            assert db.scalar(COUNT) == (0 if effects == "database" else 1)
        guard.close()
        if pool is not None:
            pool.close()


def test_a_connection_that_was_closed(url: str) -> None:
    """What ends before the claim is no obstacle."""
    with closing_engine(url) as engine:
        app, guard = build(stores.from_engine(engine))

        def counted() -> int:
            with begin(guard) as db:
                return db.scalar(COUNT) or 0

        @app.post("/payments")
        @idempotent(guard)
        def create(before: Annotated[int, Depends(counted)]) -> int:
            with begin(guard) as db:
                db.execute(ADD)
            return before

        with TestClient(app) as client:
            assert [pay(client, key).json() for key in "12"] == [0, 1]
