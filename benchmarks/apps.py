"""The applications that are measured: one and the same handler, bare and behind each layer.

Each function is given the folder that its server may write to.  What it needs is imported inside, because a
server should carry nothing but its own layer.
"""

import asyncio
import importlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Asgi = Callable[..., Any]
Wsgi = Callable[..., Iterable[bytes]]

MANY = 10_000_000
"""Records that a rival with a limit may keep: it should be measured at work, not at refusing."""


ADDRESS = "address"
"""The file in a server's folder that says where its database is, if it has one."""


def address_of(folder: Path) -> str:
    return (folder / ADDRESS).read_text(encoding="utf-8")


def bare(folder: Path) -> Asgi:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def charge(request: Request) -> JSONResponse:
        order = await request.json()
        return JSONResponse({"id": 1, "amount": order["amount"]}, status_code=201)

    return Starlette(routes=[Route("/charges", charge, methods=["POST"])])


def null(folder: Path) -> Asgi:
    """No framework: what is left is the server, and the smallest application that it can have."""
    body = b'{"id":1,"amount":100}'
    start = {
        "type": "http.response.start",
        "status": 201,
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send(start)
        await send({"type": "http.response.body", "body": body})

    return app


def _guarded(folder: Path, store: str) -> Asgi:
    from retrysafe import Guard, scopes
    from retrysafe.asgi import Middleware

    return Middleware(bare(folder), Guard(store, scope=scopes.header("X-Tenant")))


def memory(folder: Path) -> Asgi:
    return _guarded(folder, "memory:")


def sqlite(folder: Path) -> Asgi:
    return _guarded(folder, f"sqlite:///{folder / 'keys.db'}")


def at_address(folder: Path) -> Asgi:
    """The store is in a database server."""
    return _guarded(folder, address_of(folder))


def _idemkit(folder: Path, backend: Any) -> Asgi:
    # Both rivals are plain ASGI middleware, so they stand before the same Starlette application as ours.
    from idemkit import HttpConfig, IdempotencyMiddleware

    def tenant(request: Any) -> str:
        return str(request.headers.get("x-tenant", "anonymous"))

    return IdempotencyMiddleware(bare(folder), backend=backend, config=HttpConfig(scope=tenant))


def idemkit_memory(folder: Path) -> Asgi:
    from idemkit import InMemoryBackend

    return _idemkit(folder, InMemoryBackend(max_size=MANY))


def idemkit_postgres(folder: Path) -> Asgi:
    from idemkit.backends.postgres import PostgresBackend, init_pg

    asyncio.run(init_pg(address_of(folder)))
    return _idemkit(folder, PostgresBackend.from_url(address_of(folder)))


def idemkit_redis(folder: Path) -> Asgi:
    from idemkit.backends.redis import RedisBackend

    return _idemkit(folder, RedisBackend.from_url(address_of(folder)))


def fik_memory(folder: Path) -> Asgi:
    from fastapi_idempotency_key import IdempotencyMiddleware, MemoryBackend

    return IdempotencyMiddleware(bare(folder), backend=MemoryBackend())


def fik_sqlite(folder: Path) -> Asgi:
    from fastapi_idempotency_key import IdempotencyMiddleware, SQLiteBackend

    return IdempotencyMiddleware(bare(folder), backend=SQLiteBackend(database_path=folder / "keys.db"))


def wsgi_bare(folder: Path) -> Wsgi:
    def charge(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        order = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        body = json.dumps({"id": 1, "amount": order["amount"]}, separators=(",", ":")).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response("201 Created", headers)
        return [body]

    return charge


def _wsgi_guarded(folder: Path, store: str) -> Wsgi:
    from retrysafe import Guard, scopes
    from retrysafe.wsgi import Middleware

    return Middleware(wsgi_bare(folder), Guard(store, scope=scopes.header("X-Tenant")))


def wsgi_memory(folder: Path) -> Wsgi:
    return _wsgi_guarded(folder, "memory:")


def wsgi_sqlite(folder: Path) -> Wsgi:
    return _wsgi_guarded(folder, f"sqlite:///{folder / 'keys.db'}")


def wrong(folder: Path) -> Asgi:
    """Answers 200 to everything: the benchmark must notice."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"{}"})

    return app


def for_gunicorn(name: str, folder: str) -> Wsgi:
    """What gunicorn calls in its worker to have the application."""
    return load(name, folder)


def load(name: str, folder: str) -> Any:
    """The application of a function that is named as in `Server.app`."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"benchmarks.{module or 'apps'}"), function)(Path(folder))
