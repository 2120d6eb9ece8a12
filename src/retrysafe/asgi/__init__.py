"""Pure ASGI: the middleware for Starlette, FastAPI, Litestar, Quart and every other ASGI application.

    app = retrysafe.asgi.Middleware(app, Guard("sqlite:///keys.db", scope=scopes.header("X-Tenant")))

Put it *behind* authentication and CORS: what stands outside sees every request, what stands inside runs once.
Requests that do not concern it, websockets among them, are handed on as they are.
"""

from collections.abc import Mapping

from retrysafe._http.routes import Published, Routes
from retrysafe.asgi import authentication
from retrysafe.asgi.exchange import AsgiExchange, AsgiRequest, route_path, send_whole
from retrysafe.asgi.lifespan import live
from retrysafe.asgi.types import App, Connection, Receive, Send
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

    @property
    def covers(self) -> Routes:
        """Which requests it guards, and under which rules."""
        return self._routes

    def published(self) -> Published:
        """What is in force, as it is published."""
        return self._routes.published()

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
            authentication.report_order(self, self.app, self._routes, scope.get("app"))
            return await live(self.app, self.guard, scope, receive, send)
        return await self.app(scope, receive, send)
