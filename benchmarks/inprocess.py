"""What the layer itself costs: no server, no socket, an application that does nothing.

Processor time of the fastest of many short rounds counts, because only disturbance makes a round slower.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.load import BODY
from retrysafe import Guard, scopes
from retrysafe.asgi import Middleware

HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
    (b"x-tenant", b"acme"),
    (b"accept", b"*/*"),
]
App = Callable[..., Awaitable[None]]

CONCURRENCY = 32
SIZE = 128
"""Requests in a round: short enough that some rounds are not disturbed."""


async def bare(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"9"), (b"location", b"/c/1")]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"id": 1}'})


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY, "more_body": False}


async def _send(message: dict[str, Any]) -> None:
    pass


async def _seconds(app: App, keys: list[bytes | None]) -> float:
    waiting = iter(keys)

    async def client() -> None:
        for key in waiting:
            headers = [*HEADERS, (b"idempotency-key", key)] if key else HEADERS
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/charges",
                "query_string": b"",
                "headers": headers,
            }
            await app(scope, _receive, _send)

    began = time.thread_time()
    await asyncio.gather(*(client() for _ in range(CONCURRENCY)))
    return (time.thread_time() - began) / len(keys)


async def _measure(rounds: int) -> dict[str, float]:
    guard = Guard("memory:", scope=scopes.header("X-Tenant"))
    guarded = Middleware(bare, guard)
    best: dict[str, float] = {}
    for _ in range(rounds):
        fresh: list[bytes | None] = [os.urandom(16).hex().encode() for _ in range(SIZE)]
        none: list[bytes | None] = [None] * SIZE
        for name, app, keys in (
            ("bare", bare, none),
            ("no key", guarded, none),
            ("memory, fresh", guarded, fresh),
            ("memory, replay", guarded, fresh),
        ):
            took = await _seconds(app, keys)
            best[name] = min(best.get(name, took), took)
    guard.close()
    return best


async def _send_all(kind: str, requests: int) -> None:
    guarded = Middleware(bare, Guard("memory:", scope=scopes.header("X-Tenant")))
    known: list[bytes | None] = [b"known-%04d" % number for number in range(96)]
    await _seconds(guarded, known)
    if kind == "fresh":
        keys: list[bytes | None] = [b"fresh-%06d" % number for number in range(requests)]
    else:
        keys = [known[number % len(known)] for number in range(requests)]
    await _seconds(guarded, keys)
    os._exit(0)  # what a process does at its end is not the cost of a request


def send(kind: str, requests: int) -> None:
    """Send so many requests of a kind, `fresh` or `replay`, and end the process: for a counting of steps."""
    asyncio.run(_send_all(kind, requests))


def measure(rounds: int) -> dict[str, float]:
    """Seconds of processor time per request, by variant."""
    return asyncio.run(_measure(rounds))
