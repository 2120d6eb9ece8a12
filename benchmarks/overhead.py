"""What retrysafe adds to a request, measured side by side in one run.

    python benchmarks/overhead.py            both parts
    python benchmarks/overhead.py in-process  microseconds per request over the bare application
    python benchmarks/overhead.py server      throughput behind uvicorn, relative to the bare application

Variants take turns in short rounds, because machines are noisy: the fastest round of each is compared in
process, the median of the rounds' ratios behind a server.  Times mean little, ratios more.
"""

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from retrysafe import Guard, scopes
from retrysafe.asgi import Middleware

BODY = b'{"amount": 100, "note": "' + b"x" * 470 + b'"}'
HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
    (b"x-tenant", b"acme"),
    (b"accept", b"*/*"),
]
App = Callable[..., Awaitable[None]]


# --- in process


async def bare(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"9"), (b"location", b"/c/1")]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"id": 1}'})


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY, "more_body": False}


async def send(message: dict[str, Any]) -> None:
    pass


async def microseconds(app: App, keys: list[bytes | None], concurrency: int) -> float:
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
            await app(scope, receive, send)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    return (time.perf_counter() - began) / len(keys) * 1e6


async def in_process(rounds: int = 150, size: int = 128, concurrency: int = 32) -> None:
    guard = Guard("memory:", scope=scopes.header("X-Tenant"))
    guarded = Middleware(bare, guard)
    best: dict[str, float] = {}
    for _ in range(rounds):
        fresh: list[bytes | None] = [os.urandom(16).hex().encode() for _ in range(size)]
        none: list[bytes | None] = [None] * size
        for name, app, keys in (
            ("bare", bare, none),
            ("no key", guarded, none),
            ("memory, fresh key", guarded, fresh),
            ("memory, replay", guarded, fresh),
        ):
            took = await microseconds(app, keys, concurrency)
            best[name] = min(best.get(name, took), took)
    guard.close()
    print(f"In process, {concurrency} requests at a time, Python {sys.version.split()[0]}:")
    for name, took in best.items():
        print(f"  {name:20} {took:7.1f} µs   {took - best['bare']:+7.1f} µs over bare")


# --- behind a server

SERVER = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from retrysafe import Guard, scopes
from retrysafe.asgi import Middleware

async def charge(request):
    order = await request.json()
    return JSONResponse({"id": 1, "amount": order["amount"]}, status_code=201)

app = Starlette(routes=[Route("/charges", charge, methods=["POST"])])
store, port = sys.argv[1:]
if store != "bare":
    app = Middleware(app, Guard(store, scope=scopes.header("X-Tenant")))
uvicorn.run(app, port=int(port), log_level="error", access_log=False)
"""


@contextmanager
def server(store: str, folder: str) -> Generator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", SERVER, store, str(port)], cwd=folder)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


async def requests_per_second(
    port: int, key: Callable[[], bytes | None], seconds: float, connections: int
) -> float:
    done = 0
    deadline = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < deadline:
            fields = list(HEADERS)
            if (chosen := key()) is not None:
                fields.append((b"idempotency-key", chosen))
            head = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
            writer.write(b"POST /charges HTTP/1.1\r\n" + head + b"\r\n" + BODY)
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 201 " not in answer[:20]:
                raise SystemExit(f"unexpected answer: {answer!r}")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            done += 1
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    return done / (time.perf_counter() - began)


def fresh_key() -> bytes:
    return os.urandom(16).hex().encode()


async def behind_a_server(rounds: int = 7, seconds: float = 1.0, connections: int = 32) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{Path(folder) / 'keys.db'}"
        with (
            server("bare", folder) as plain,
            server("memory:", folder) as memory,
            server(database, folder) as sqlite,
        ):
            variants: list[tuple[str, int, Callable[[], bytes | None]]] = [
                ("bare", plain, lambda: None),
                ("no key", memory, lambda: None),
                ("memory, fresh key", memory, fresh_key),
                ("memory, replay", memory, lambda: b"the-same-key"),
                ("SQLite, fresh key", sqlite, fresh_key),
                ("SQLite, replay", sqlite, lambda: b"the-same-key"),
            ]
            for _, port, key in variants:  # warm up, and have the answers that are to be replayed
                await requests_per_second(port, key, 0.2, connections=1)
            ratios: dict[str, list[float]] = {}
            for _ in range(rounds):
                bare_rate = 0.0
                for name, port, key in variants:
                    rate = await requests_per_second(port, key, seconds, connections)
                    bare_rate = bare_rate or rate
                    ratios.setdefault(name, []).append(rate / bare_rate)
    print(f"Behind uvicorn, one worker, {connections} connections, relative to the bare application:")
    for name, values in ratios.items():
        print(f"  {name:20} {statistics.median(values):7.1%}   ({min(values):.1%} to {max(values):.1%})")


if __name__ == "__main__":
    parts = sys.argv[1:] or ["in-process", "server"]
    if "in-process" in parts:
        asyncio.run(in_process())
    if "server" in parts:
        asyncio.run(behind_a_server())
