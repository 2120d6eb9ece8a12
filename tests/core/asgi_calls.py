"""An ASGI server's end of a request, for the tests of the ASGI adapter."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from retrysafe import Guard, scopes
from retrysafe.stores.memory import MemoryStore

Message = MutableMapping[str, Any]
App = Callable[..., Awaitable[None]]

CREATED: list[Message] = [
    {"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"text/plain")]},
    {"type": "http.response.body", "body": b"made"},
]


class Client:
    """Sends a request to an application, and keeps what comes back."""

    def __init__(self, app: App, path: str = "/pay", *, key: bytes = b"k", **scope: Any) -> None:
        headers = [(b"host", b"shop.test"), (b"x-tenant", b"acme"), (b"idempotency-key", key)]
        self.app = app
        self.scope = {"type": "http", "method": "POST", "path": path, "headers": headers, **scope}
        self.got: list[Message] = []
        self.sent = False
        self.answered = asyncio.Event()

    async def receive(self) -> Message:
        if self.sent:
            await asyncio.Event().wait()
        self.sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        self.got.append(message)
        self.answered.set()

    async def __call__(self) -> "Client":
        await self.app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        return self.got[0]["status"]  # type: ignore[no-any-return]

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.got[1:])

    @property
    def replayed(self) -> bool:
        return (b"idempotent-replayed", b"true") in self.got[0]["headers"]


def a_guard(store: str | MemoryStore = "memory:", **options: Any) -> Guard:
    guard = Guard(store, scope=scopes.header("X-Tenant"), **options)
    guards.append(guard)
    return guard


guards: list[Guard] = []
"""To be closed after the test: no thread is left."""


def counting(messages: list[Message] = CREATED) -> tuple[App, list[str]]:
    runs: list[str] = []

    async def app(scope: Message, receive: Any, send: Any) -> None:
        runs.append(scope["path"])
        for message in messages:
            await send(message)

    return app, runs
