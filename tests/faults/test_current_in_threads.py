"""`current()` anywhere below a handler: in the threads that frameworks start for handlers and dependencies,
and in those that handlers start with their help; and nowhere else."""

import asyncio
import contextvars
import threading
from collections.abc import Iterable
from typing import Annotated, Any

import pytest
from asgiref.sync import sync_to_async
from fastapi import Depends, FastAPI
from flask import Flask
from starlette.concurrency import run_in_threadpool

from retrysafe import Guard, current, scopes
from retrysafe.asgi import Middleware
from retrysafe.errors import NotGuarded
from retrysafe.stores.memory import MemoryStore
from retrysafe.wsgi import Middleware as WsgiMiddleware
from tests.faults.wire import call, connection, fresh


def _derived() -> str:
    return current().derive("charge")


def test_fastapi() -> None:
    """Handlers and dependencies, in threads and in the event loop, all see the same call."""
    app = FastAPI()
    seen: list[tuple[str, str]] = []

    def note(where: str) -> None:
        seen.append((where, _derived()))

    def in_thread() -> None:
        note("a dependency in a thread")

    async def in_loop() -> None:
        note("a dependency in the loop")

    def around() -> Iterable[None]:
        note("before a yield")
        yield
        note("behind a yield")

    needs: list[Any] = [Depends(in_thread), Depends(in_loop), Depends(around)]

    @app.post("/def", dependencies=needs)
    def blocking() -> None:
        note("def")

    @app.post("/async", dependencies=needs)
    async def awaiting(value: Annotated[None, Depends(in_loop)]) -> None:
        note("async def")
        await run_in_threadpool(note, "run_in_threadpool")
        await asyncio.to_thread(note, "to_thread")
        await sync_to_async(note)("sync_to_async, as Django does it")
        await asyncio.create_task(sync_to_async(note, thread_sensitive=False)("a task"))
        thread = threading.Thread(target=contextvars.copy_context().run, args=(note, "a thread of its own"))
        thread.start()
        thread.join()

    async def play() -> None:
        guard = Guard(MemoryStore(), scope=lambda request: "7")
        guarded = Middleware(app, guard)
        for path, places in (("/def", 5), ("/async", 10)):
            seen.clear()
            assert (await call(guarded, connection(path, key=fresh()), b"")).status == 200
            assert len(seen) == places, seen
            assert len({key for _, key in seen}) == 1, seen
        with pytest.raises(NotGuarded):
            current()
        guard.close()

    asyncio.run(play())


def test_flask() -> None:
    """A view, what it calls, and a thread that it starts with its context."""
    app = Flask(__name__)
    seen: list[str] = []

    @app.post("/charges")
    def view() -> str:
        seen.append(_derived())
        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(lambda: seen.append(_derived()),)
        )
        thread.start()
        thread.join()
        return "done"

    @app.get("/unguarded")
    def unguarded() -> str:
        with pytest.raises(NotGuarded):
            current()
        return "done"

    guard = Guard(MemoryStore(), scope=scopes.header("X-Tenant"))
    app.wsgi_app = WsgiMiddleware(app.wsgi_app, guard)  # type: ignore[method-assign]  # as Flask says
    client = app.test_client()
    headers = {"Idempotency-Key": fresh(), "X-Tenant": "7"}
    assert client.post("/charges", headers=headers).text == "done"
    assert len(seen) == 2
    assert len(set(seen)) == 1
    assert client.get("/unguarded").text == "done"
    guard.close()
