"""Handlers in threads, and fewer connections than threads: everybody is served all the same."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from psycopg_pool import ConnectionPool
from sqlalchemy import create_engine, orm, text

import retrysafe.psycopg
from retrysafe import Guard, stores
from retrysafe._runtime.admission import ConnectionLimit
from retrysafe.asgi import Middleware
from retrysafe.sqlalchemy import sessionmaker
from tests.transactions.ledgers import INSERT, InFile, InServer, a_guard

CROWD = 80
"""Twice as many as the threads that Starlette has."""


def crowd(app: FastAPI, guard: Guard) -> Counter[int]:
    """The statuses of many requests at once, each with a key of its own."""
    app.add_middleware(Middleware, guard=guard)

    async def all_at_once() -> Counter[int]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.test", timeout=60) as client:

            async def one(number: int) -> int:
                headers = {"X-Tenant": "acme", "Idempotency-Key": f"key-{number}"}
                return (await client.post("/items", headers=headers)).status_code

            return Counter(await asyncio.gather(*(one(number) for number in range(CROWD))))

    try:
        return asyncio.run(asyncio.wait_for(all_at_once(), 50))
    finally:
        guard.close()


def shop(guard: Guard) -> FastAPI:
    """A `def` handler whose answer FastAPI checks in a thread, and a dependency that ends in one."""
    app = FastAPI()
    maker = sessionmaker(guard)

    def get_db() -> Any:
        with maker() as session:
            yield session

    @app.post("/items", status_code=201)
    def item(db: Annotated[orm.Session, Depends(get_db)]) -> dict[str, str]:
        db.execute(INSERT, {"name": "a"})
        db.commit()
        return {"ordered": "a"}

    return app


def test_sessions_on_postgresql(database: str) -> None:
    audit = InServer(database)
    engine = create_engine(
        f"postgresql+psycopg:{database.removeprefix('postgresql:')}", pool_size=2, max_overflow=1
    )
    guard = a_guard(stores.from_engine(engine))
    assert crowd(shop(guard), guard) == {201: CROWD}
    assert len(audit()) == CROWD
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


def test_sessions_on_sqlite(tmp_path: Path) -> None:
    """One writer, and nobody is told that the database is busy."""
    audit = InFile(tmp_path / "app.db")
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    guard = a_guard(stores.from_engine(engine, deadline=10))
    assert crowd(shop(guard), guard) == {201: CROWD}
    assert len(audit()) == CROWD
    engine.dispose()


def test_psycopg(database: str) -> None:
    audit, guard, app = InServer(database), a_guard(database), FastAPI()
    with ConnectionPool(database, min_size=2, max_size=3, open=True) as pool:
        with retrysafe.psycopg.connection(guard, pool):
            pass  # from here on it is known how many there are

        @app.post("/items", status_code=201)
        def item() -> dict[str, str]:
            with retrysafe.psycopg.connection(guard, pool) as db:
                db.execute("INSERT INTO items VALUES ('a')")
            return {"ordered": "a"}

        assert crowd(app, guard) == {201: CROWD}
    assert len(audit()) == CROWD


# --- The turnstile


def test_places_are_given_in_order_and_come_back() -> None:
    async def scenario() -> None:
        turnstile = ConnectionLimit()
        turnstile.limit = 1
        assert await turnstile.enter(b"a")
        entered: list[bytes] = []

        async def come(token: bytes) -> None:
            assert await turnstile.enter(token)
            entered.append(token)

        tasks = [asyncio.create_task(come(token)) for token in (b"b", b"c", b"d")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        turnstile.leave(b"nobody")
        turnstile.leave(b"a")
        turnstile.leave(b"a")
        await asyncio.sleep(0.01)
        assert entered == [b"c"]
        turnstile.leave(b"c")
        await asyncio.sleep(0.01)
        assert entered == [b"c", b"d"]

    asyncio.run(scenario())


def test_whoever_is_cancelled_with_a_place_gives_it_back() -> None:
    async def scenario() -> None:
        turnstile = ConnectionLimit()
        turnstile.limit = 1
        await turnstile.enter(b"a")
        waiting = asyncio.create_task(turnstile.enter(b"b"))
        await asyncio.sleep(0)
        turnstile.leave(b"a")  # it is b's now, who has not heard of it yet
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await asyncio.wait_for(turnstile.enter(b"c"), 1)

    asyncio.run(scenario())


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        turnstile = ConnectionLimit()
        turnstile.limit = 1
        await turnstile.enter(b"a")
        assert not await turnstile.enter(b"b")
        turnstile.leave(b"a")
        assert await turnstile.enter(b"c")

    monkeypatch.setattr("retrysafe._runtime.admission.PATIENCE", 0.01)
    asyncio.run(scenario())
