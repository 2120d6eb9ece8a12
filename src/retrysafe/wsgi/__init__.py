"""Pure WSGI: the middleware for Flask, Django, Pyramid, Bottle and every other WSGI application.

    from retrysafe import Guard, scopes
    from retrysafe.wsgi import Middleware

    def pay(environ, start_response):
        start_response("201 Created", [("Content-Type", "text/plain")])
        return [b"paid"]

    guard = Guard("sqlite:///keys.db", scope=scopes.header("X-Tenant"))
    app = Middleware(pay, guard)

Put it *behind* authentication and CORS: what stands outside sees every request, what stands inside runs once.
Requests that do not concern it are handed on as they are.  There is no event loop anywhere.

WSGI does not tell an application that its server starts or stops, so whoever configures the server does.  For
gunicorn, in `gunicorn.conf.py` (the hooks run in each worker, `preload_app` or not):

    def post_worker_init(worker):
        guard.check()     # one line in the log if the store cannot be used
        guard.drain_on()  # from SIGTERM on nothing new is claimed; gunicorn goes on as ever

    def worker_exit(server, worker):
        guard.drain()     # threads that outlived gunicorn's own graceful timeout
        guard.close()

A worker that gunicorn aborts (`timeout`), or a sync worker at a quick stop (SIGINT, SIGQUIT), ends in the
middle of its handler: it is not known what happened, so the key is held as *outcome unknown*.  waitress has
no signal handlers, and waits 5 seconds for running requests: have SIGTERM raise `SystemExit`, call
`guard.drain_on()` after that, and `guard.drain()` when `serve()` has returned.

The application's iterable is read to its end and closed before its response is stored and sent, so what
`close()` does belongs to the request.  With `background="after"` it is WSGI's background task: the response
is stored and sent first, and what `close()` raises is the server's to log.

What WSGI does not tell: whether a header was written with `-` or `_` (good servers drop the latter), and
where one of several fields of a name ended and the next began (servers join them with commas, and a key has
no bare comma: such a request is refused).
"""

from collections.abc import Iterable, Mapping
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe._http.routes import Published, Routes
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.policy import Options, Paths
from retrysafe.wsgi.environ import GUARDED, decoded, translate, variable
from retrysafe.wsgi.exchange import WsgiExchange, check_rules
from retrysafe.wsgi.sending import send

__all__ = ["Middleware"]


class Middleware:
    """Guards the requests to `app` that carry a key.

    `paths` selects which are covered: exact paths, prefixes like `"/api/*"`, or a function of the path.
    `routes` maps such a path to what it says differently: `{"/exports/*": {"no_store": True}}`.
    """

    def __init__(
        self,
        app: WSGIApplication,
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
        for rules in (self._routes.rules, *(route.rules for route in self._routes.routes)):
            check_rules(rules)
        key = guard.rules.names.key
        self._key = variable(key)
        self._with_key = {key: b""}

    @property
    def covers(self) -> Routes:
        """Which requests it guards, and under which rules."""
        return self._routes

    def published(self) -> Published:
        """What is in force, as it is published."""
        return self._routes.published()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if GUARDED not in environ:
            method, path = environ["REQUEST_METHOD"], decoded(environ.get("PATH_INFO", ""))
            route = self._routes.match(method, path, self._with_key if self._key in environ else {})
            if route is not None:
                request = translate(environ)
                return WsgiExchange(request, route, self.app, self.guard, environ, start_response).serve()
            if self._routes.publishes(method, path):
                return send(start_response, self._routes.specification(translate(environ)))
        return self.app(environ, start_response)
