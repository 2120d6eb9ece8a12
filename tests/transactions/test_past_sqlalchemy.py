"""What is done past SQLAlchemy, or with its connections: noticed, or at least nothing is lost silently."""

import asyncio
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import create_engine, schema, text
from sqlalchemy.ext.asyncio import create_async_engine

from retrysafe import CommitRefused, NotJoined, stores
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker
from retrysafe.sqlalchemy.dialect import INFO_KEY
from tests.transactions.calls import Ledger, guarded
from tests.transactions.ledgers import INSERT, InServer, Place, a_guard
from tests.transactions.test_semantics import ask


@pytest.mark.parametrize("driver", ["psycopg", "pg8000"])
def test_an_engine_in_autocommit(database: str, driver: str) -> None:
    """Nothing could be undone there, so it is refused before anything is written."""
    engine = create_engine(
        database.replace("postgresql://", f"postgresql+{driver}://"), isolation_level="AUTOCOMMIT"
    )
    audit = InServer(database)
    guard = a_guard(stores.from_engine(engine))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})

    assert guarded(guard, handler, NotJoined) == 500
    assert audit() == []
    engine.dispose()


@pytest.mark.parametrize("way", ["the driver", "two statements in one"])
def test_ended_past_sqlalchemy(database: str, way: str) -> None:
    """It cannot be prevented, but it is noticed: the call fails, and says why."""
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    InServer(database)
    guard = a_guard(stores.from_engine(engine))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            if way == "the driver":
                session.execute(INSERT, {"name": "a"})
                session.connection().connection.commit()
            else:
                session.execute(text("INSERT INTO items VALUES ('a'); COMMIT"))
            session.commit()

    assert guarded(guard, handler, NotJoined) == 500
    engine.dispose()


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_the_same_awaiting(database: str, driver: str, autocommit: bool) -> None:
    """An engine in autocommit is refused, and what the driver's own connection commits is noticed."""
    audit = InServer(database)

    async def scenario() -> None:
        options: Any = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        engine = create_async_engine(database.replace("postgresql://", f"postgresql+{driver}://"), **options)
        guard = a_guard(stores.from_engine(engine))

        async def handler() -> None:
            async with async_sessionmaker(guard)() as session:
                await session.execute(INSERT, {"name": "a"})
                raw = await (await session.connection()).get_raw_connection()
                driver_connection: Any = raw.driver_connection
                await driver_connection.execute("COMMIT")
                await session.commit()

        await ask(cast(Any, Ledger(guard)), handler, raises=NotJoined)
        await engine.dispose()
        guard.close()

    asyncio.run(scenario())
    assert audit() == ([] if autocommit else ["a"])


def test_a_connection_that_is_invalidated_and_used_again(place: Place) -> None:
    """SQLAlchemy opens another one, where nothing could be committed with the answer."""
    guard = a_guard(stores.from_engine(place.engine))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            connection = session.connection()
            connection.invalidate()
            connection.rollback()
            with pytest.raises(NotJoined, match="another one"):
                connection.execute(INSERT, {"name": "a"})

    assert guarded(guard, handler, CommitRefused) == 500
    assert place.audit() == []


def test_a_connection_that_is_detached(place: Place) -> None:
    """It is the call's all the same, only the pool does not get it back."""
    guard = a_guard(stores.from_engine(place.engine))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})
            session.connection().detach()
            session.execute(INSERT, {"name": "b"})
            session.commit()

    assert guarded(guard, handler) == 201
    assert place.audit() == ["a", "b"]


def test_a_connection_that_is_closed_leaves_no_trace(place: Place) -> None:
    guard = a_guard(stores.from_engine(place.engine))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            session.execute(INSERT, {"name": "a"})
            session.connection().close()

    assert guarded(guard, handler, NotJoined) == 500
    assert place.audit() == []
    with place.engine.connect() as db:
        assert INFO_KEY not in db.info


def test_what_one_dialect_learns_the_other_knows(database: str) -> None:
    """asyncpg keeps statements prepared, and forgets them when SQLAlchemy sees that a table was changed."""
    InServer(database)
    alter: Any = schema.DDL

    async def scenario() -> None:
        engine = create_async_engine(database.replace("postgresql://", "postgresql+asyncpg://"), pool_size=1)
        guard = a_guard(stores.from_engine(engine))
        maker = async_sessionmaker(guard)

        async def read() -> None:
            async with maker() as session:
                await session.execute(text("SELECT * FROM items"))

        async def change() -> None:
            async with maker() as session:
                await session.execute(alter("ALTER TABLE items ADD COLUMN b integer"))
                await session.commit()

        ledger: Any = Ledger(guard)
        assert (await ask(ledger, read, b"read")).status == 201
        async with engine.begin() as ordinary:
            await ordinary.execute(alter("ALTER TABLE items ADD COLUMN a integer"))
        assert (await ask(ledger, read, b"read-again")).status == 201
        await read()
        assert (await ask(ledger, change, b"change")).status == 201
        await read()
        await engine.dispose()
        guard.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor])
def test_cursors_of_another_kind(database: str, factory: Any) -> None:
    """They have arguments of another form, which the application's statements use and ours do not."""
    from psycopg_pool import ConnectionPool

    from retrysafe.psycopg import connection

    audit = InServer(database)
    guard = a_guard(database)
    with ConnectionPool(database, kwargs={"cursor_factory": factory}, min_size=1, open=True) as pool:

        def handler() -> None:
            with connection(guard, pool) as db:
                db.execute("INSERT INTO items VALUES ('a')")

        assert guarded(guard, handler) == 201
    assert audit() == ["a"]
