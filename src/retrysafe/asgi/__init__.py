"""Pure ASGI: the middleware for Starlette, FastAPI, Litestar, Quart and every other ASGI application.

    app = retrysafe.asgi.Middleware(app, Guard("sqlite:///keys.db", scope=scopes.header("X-Tenant")))

Put it *behind* authentication and CORS: what stands outside sees every request, what stands inside runs once.
Requests that do not concern it, websockets among them, are handed on as they are.
"""

from collections.abc import Mapping

from retrysafe import specification
from retrysafe.asgi.request import GuardedRequest, send_whole, translate
from retrysafe.asgi.types import App, Connection, Message, Receive, Send
from retrysafe.guard import Guard
from retrysafe.policy import Options, Paths

__all__ = ["Middleware"]


class Middleware:
    """Guards the requests to `app` that carry a key.

    `paths` selects which are covered: exact paths, prefixes like `"/api/*"`, or a function of the path.
    `routes` maps such a path to what it says differently: `{"/exports/*": {"no_store": True}}`.
    """

    def __init__(
        self,
        app: App,
        guard: Guard,
        *,
        paths: Paths | None = None,
        routes: Mapping[str, Options] | None = None,
    ) -> None:
        self.app = app
        self.guard = guard
        self._door = guard.door(paths, routes)

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            method, path = scope["method"], scope["path"]
            rules = self._door.rules_for(method, path, scope["headers"])
            if rules is not None and "retrysafe" not in scope:
                return await GuardedRequest(self.app, self.guard, rules, scope, receive, send).answer()
            if self._door.publishes(method, path):
                return await send_whole(send, specification.respond(translate(scope), self._door.rules))
        elif scope["type"] == "lifespan":
            receive = _draining(self.guard, receive)
        return await self.app(scope, receive, send)


def _draining(guard: Guard, receive: Receive) -> Receive:
    """Drain before the application hears of its shutdown: its handlers still need what it will close."""

    async def receive_and_drain() -> Message:
        message = await receive()
        if message["type"] == "lifespan.startup":
            guard.resume()
        elif message["type"] == "lifespan.shutdown":
            await guard.drain_async()
        return message

    return receive_and_drain
