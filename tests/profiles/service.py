"""A small service behind a profile: authentication, the guard's middleware, and a handler that counts.

In one process and on a store in memory, whose clock a test sets.  Requests go through an ASGI server's end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

from retrysafe import Guard, scopes
from retrysafe.asgi import Middleware
from retrysafe.policy import Options, Paths
from retrysafe.profiles import Profile
from retrysafe.stores.memory import MemoryStore
from retrysafe.testing.adapters.client import Reply

Message = MutableMapping[str, Any]
Handler = Callable[["Call"], Awaitable["Answer"]]

USER = b"x-user"
"""What a client authenticates by, here."""


class User(NamedTuple):
    id: str
    is_authenticated: bool = True


class Call(NamedTuple):
    """What reached the handler."""

    method: str
    path: str
    body: bytes
    number: int
    """How many have reached it by now."""


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)


class Clock:
    """The store's time, as a test says it is."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def charge(call: Call) -> Answer:
    """Another body for each run, so that no two responses are taken for one another."""
    return Answer(201, b'{"charge": %d}' % call.number)


class Service:
    """An application with a profile, and its clients."""

    def __init__(
        self,
        profile: str | Profile,
        handler: Handler = charge,
        *,
        paths: Paths | None = None,
        routes: dict[str, Options] | None = None,
        **said: Any,
    ) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        options: dict[str, Any] = {"scope": scopes.user, "profile": profile, **said}
        self.guard = Guard(self.store, **options)
        self.runs: list[Call] = []
        self._handler = handler
        self._app = Middleware(self._handle, self.guard, paths=paths, routes=routes)
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()
        self.guard.close()

    def run(self, call: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await call

        return self._runner.run(wait())

    def post(self, path: str = "/api/orders", **rest: Any) -> Reply:
        return self.request("POST", path, **rest)

    def request(self, method: str, path: str, **rest: Any) -> Reply:
        reply: Reply = self.run(self.asked(method, path, **rest))
        return reply

    async def asked(
        self,
        method: str = "POST",
        path: str = "/api/orders",
        *,
        key: str | None = None,
        user: str | None = "alice",
        body: bytes = b"{}",
        headers: Iterable[tuple[str, str]] = (),
    ) -> Reply:
        """`key` is sent as it is, by the header of the profile."""
        fields = [(b"host", b"shop.test"), (b"content-type", b"application/json")]
        if user is not None:
            fields.append((USER, user.encode()))
        if key is not None:
            fields.append((self.guard.rules.names.key, key.encode("latin-1")))
        fields += [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
        scope: Message = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": fields,
        }
        got: list[Message] = []
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not unread:
                await asyncio.Event().wait()
            return unread.pop()

        async def send(message: Message) -> None:
            got.append(message)

        await self._authenticate(scope, receive, send)
        sent = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in got[0]["headers"])
        return Reply(got[0]["status"], sent, b"".join(message["body"] for message in got[1:]))

    async def _authenticate(self, scope: Message, receive: Any, send: Any) -> None:
        """In front of the guard: what it knows of the user, the guard's scope finds."""
        user = dict(scope["headers"]).get(USER)
        if user is not None:
            scope["user"] = User(user.decode())
        await self._app(scope, receive, send)

    async def _handle(self, scope: Message, receive: Any, send: Any) -> None:
        body = (await receive()).get("body", b"")
        call = Call(scope["method"], scope["path"], body, len(self.runs) + 1)
        self.runs.append(call)
        status, content, fields = await self._handler(call)
        await send({"type": "http.response.start", "status": status, "headers": list(fields)})
        await send({"type": "http.response.body", "body": content})


class Held:
    """A handler that runs until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.end = asyncio.Event()

    async def __call__(self, call: Call) -> Answer:
        self.begun.set()
        await self.end.wait()
        return await charge(call)


def during(service: Service, held: Held, key: str, **rest: Any) -> tuple[Reply, Reply, Reply]:
    """The response of a slow request, of its duplicate meanwhile, and of one after it."""

    async def three() -> tuple[Reply, Reply, Reply]:
        first = asyncio.create_task(service.asked(key=key, **rest))
        await held.begun.wait()
        meanwhile = await service.asked(key=key, **rest)
        held.end.set()
        return await first, meanwhile, await service.asked(key=key, **rest)

    found: tuple[Reply, Reply, Reply] = service.run(three())
    return found
