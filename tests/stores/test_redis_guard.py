"""A guard on Redis: what a client is told when the store has lost its records, and what cannot be had."""

import asyncio

import httpx
import pytest
import redis

from retrysafe import ConfigurationError, Guard, scopes
from retrysafe.asgi import Middleware
from retrysafe.testing.valkey import ValkeyServer, arm

KEY = {"Idempotency-Key": "0123456789abcdef"}


def test_a_flush_is_a_store_reset(valkey: ValkeyServer) -> None:
    """503, to be retried, and the handler has not run; once an operator has armed the store, it runs."""
    asyncio.run(flushed(valkey.new_database()))


async def flushed(url: str) -> None:
    runs = 0

    async def app(scope: object, receive: object, send: object) -> None:
        nonlocal runs
        runs += 1
        await send({"type": "http.response.start", "status": 201, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"done"})  # type: ignore[operator]

    guard = Guard(url, scope=scopes.public())
    transport = httpx.ASGITransport(Middleware(app, guard))
    async with httpx.AsyncClient(transport=transport, base_url="https://shop") as client:

        async def send() -> tuple[int, str | None]:
            response = await client.post("/orders", headers=KEY)
            return response.status_code, None if response.text == "done" else response.json()["code"]

        assert await send() == (503, "store-reset")
        arm(guard.store)
        assert [await send(), await send()] == [(201, None), (201, None)]
        with redis.Redis.from_url(url) as server:
            server.flushdb()
        assert [await send(), await send()] == [(503, "store-reset")] * 2
        assert runs == 1
        refused = await client.post("/orders", headers=KEY)
        assert refused.headers["x-should-retry"] == "true"
        arm(guard.store)
        assert await send() == (201, None)
    assert runs == 2
    guard.store.close()


def test_no_transactional_mode(valkey: ValkeyServer) -> None:
    """Records and effects are in two databases: refused when the guard is made."""
    with pytest.raises(ConfigurationError, match="the database of the records, and <RedisStore"):
        Guard(valkey.new_database(), scope=scopes.public(), effects="database")
