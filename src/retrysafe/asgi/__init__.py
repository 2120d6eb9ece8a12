"""Pure ASGI: the middleware for Starlette, FastAPI, Litestar, Quart and every other ASGI application.

    app = retrysafe.asgi.Middleware(app, Guard("sqlite:///keys.db", scope=scopes.header("X-Tenant")))

Put it *behind* authentication and CORS: what stands outside sees every request, what stands inside runs once.
Requests that do not concern it, websockets among them, are handed on as they are.
"""

from asyncio import to_thread
from collections.abc import Mapping

from retrysafe.asgi.exchange import AsgiExchange, AsgiRequest, route_path, send_whole
from retrysafe.asgi.types import App, Connection, Message, Receive, Send
from retrysafe.errors import ConfigurationError
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
        if not isinstance(guard, Guard):
            raise ConfigurationError(
                f"guard={guard!r} is not a Guard: build one with Guard(store, scope=...)"
            )
        self.app = app
        self.guard = guard
        self._routes = guard.routes(paths, routes)

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and "retrysafe" not in scope:
            method = scope["method"]
            path = route_path(scope) if scope.get("root_path") else scope["path"]
            fields = dict(scope["headers"])
            route = self._routes.match(method, path, fields)
            if route is not None:
                exchange = AsgiExchange(AsgiRequest(scope, fields), route)
                return await exchange.serve(self.app, self.guard.runtime, scope, receive, send)
            if self._routes.publishes(method, path):
                return await send_whole(send, self._routes.specification(AsgiRequest(scope, fields)))
        elif scope["type"] == "lifespan":
            return await _live(self.app, self.guard, scope, receive, send)
        return await self.app(scope, receive, send)


async def _live(app: App, guard: Guard, scope: Connection, receive: Receive, send: Send) -> None:
    """The application's life, and the guard's with it."""

    async def receive_and_drain() -> Message:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await guard.check_async()
        elif message["type"] == "lifespan.shutdown":
            # Before the application is told: its handlers still need what it is going to close.
            await guard.drain_async()
        return message

    async def close_and_send(message: Message) -> None:
        if message["type"].startswith("lifespan.shutdown"):
            await close()  # now: a server that is sent this may end without another turn of the loop
        await send(message)

    async def close() -> None:
        # It may be started again, as test suites do; and others may share the guard.
        guard.resume()
        if not guard.runtime.unfinished():
            await to_thread(guard.close)

    try:
        await app(scope, receive_and_drain, close_and_send)
    finally:
        await close()  # once more, for applications that send nothing; it does no harm
