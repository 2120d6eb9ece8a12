"""Behind a pooler in transaction mode: nothing of ours is prepared on the application's connections."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

import retrysafe.psycopg
import retrysafe.sqlalchemy
from retrysafe import Guard, stores
from retrysafe.testing.postgres import PostgresServer
from tests.stores.pooler import Pooler
from tests.transactions.calls import Ledger
from tests.transactions.ledgers import InServer, a_guard
from tests.transactions.test_semantics import ask

REQUESTS = 24
"""psycopg prepares at the sixth of a kind, and the pooler has two sessions: a few more are enough to fail."""

PATIENCE = 20.0

Write = Callable[[str], Coroutine[Any, Any, None]]


@pytest.fixture
def pooler(postgres: PostgresServer, database: str) -> Iterator[Pooler]:
    with Pooler(postgres.port, database.rpartition("/")[2]) as pooler:
        yield pooler


def insert(name: str) -> str:
    """Another text each time, so that psycopg prepares none of them: what is left is ours."""
    return f"INSERT INTO items VALUES ('{name}')"


async def all_succeed(guard: Guard, write: Write, audit: InServer, pooler: Pooler) -> None:
    names = [f"item-{n}" for n in range(REQUESTS)]
    for name in names:
        response = await ask(Ledger(guard), partial(write, name), key=name.encode())  # type: ignore[arg-type]
        assert response.status == 201, response.body
        # Nothing is sent after the COMMIT that would reserve a session for a connection that is idle.
        ends = time.monotonic() + PATIENCE
        while pooler.lent:
            assert time.monotonic() < ends, "a session stays reserved"
            await asyncio.sleep(0.01)
    assert sorted(audit()) == sorted(names)


def test_psycopg(pooler: Pooler, database: str) -> None:
    audit = InServer(database)
    guard = a_guard(pooler.url)
    with ConnectionPool(pooler.url, min_size=1, max_size=1, open=True) as pool:

        def write(name: str) -> None:
            with retrysafe.psycopg.connection(guard, pool) as db:
                assert db.prepare_threshold == 5, "psycopg's default"
                db.execute(insert(name).encode())

        asyncio.run(all_succeed(guard, lambda name: asyncio.to_thread(write, name), audit, pooler))
        guard.close()


def test_async_psycopg(pooler: Pooler, database: str) -> None:
    audit = InServer(database)

    async def run() -> None:
        guard = a_guard(pooler.url)
        async with AsyncConnectionPool(pooler.url, min_size=1, max_size=1) as pool:

            async def write(name: str) -> None:
                async with retrysafe.psycopg.connection_async(guard, pool) as db:
                    await db.execute(insert(name).encode())

            await all_succeed(guard, write, audit, pooler)
            guard.close()

    asyncio.run(run())


def test_session(pooler: Pooler, database: str) -> None:
    audit = InServer(database)
    engine = create_engine(pooler.url.replace("postgresql:", "postgresql+psycopg:", 1))
    guard = a_guard(stores.from_engine(engine))
    sessions = retrysafe.sqlalchemy.sessionmaker(guard)

    def write(name: str) -> None:
        with sessions() as session:
            session.execute(text(insert(name)))
            session.commit()

    asyncio.run(all_succeed(guard, lambda name: asyncio.to_thread(write, name), audit, pooler))
    guard.close()
    engine.dispose()


def test_async_session(pooler: Pooler, database: str) -> None:
    audit = InServer(database)

    async def run() -> None:
        engine = create_async_engine(pooler.url.replace("postgresql:", "postgresql+psycopg_async:", 1))
        guard = a_guard(stores.from_engine(engine))
        sessions = retrysafe.sqlalchemy.async_sessionmaker(guard)

        async def write(name: str) -> None:
            async with sessions() as session:
                await session.execute(text(insert(name)))
                await session.commit()

        await all_succeed(guard, write, audit, pooler)
        guard.close()
        await engine.dispose()

    asyncio.run(run())


def test_what_the_application_has_to_say(pooler: Pooler, database: str) -> None:
    """This pooler breaks the application's own statements, guarded or not, unless it prepares none, as the
    documentation has it."""
    audit = InServer(database)

    def insert_all(**options: Any) -> None:
        with psycopg.connect(pooler.url, autocommit=True, **options) as db:
            for n in range(REQUESTS):
                db.execute("INSERT INTO items VALUES (%s)", [f"item-{n}"])

    with pytest.raises(psycopg.Error, match="prepared statement"):
        insert_all()
    before = len(audit())
    insert_all(prepare_threshold=None)
    assert len(audit()) == before + REQUESTS
