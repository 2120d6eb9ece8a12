"""`retrysafe.django.Middleware`: what stands around the views of a project.

    MIDDLEWARE = [
        …
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "retrysafe.django.Middleware",
    ]

For views that claim themselves it has the body copied, keeps a request alive whose client is gone, and settles
what they raise with the response that Django makes of it.  With `RETRYSAFE["PATHS"]` it claims for all other
views below these paths: whoever may not do something has to be refused before it, or by `REAUTHORISE`.  And it
serves what the project promises, at `/idempotency`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve

from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Attempt
from retrysafe._http.routes import Route, Routes
from retrysafe.django import atomic
from retrysafe.django.body import copy_stream
from retrysafe.django.exchange import SyncExchange
from retrysafe.django.held import Claimants, Held, Pending, held_of, hold
from retrysafe.django.request import has_header, is_guarded_outside, new_response, read
from retrysafe.django.routes import claims, protected, receives
from retrysafe.django.settings import covered, guard
from retrysafe.errors import ConfigurationError
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.policy import Options

GetResponse = Callable[[HttpRequest], Any]


class Middleware:
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self._covering: _Covering | None = None
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)
            # Django takes it as it is, where a blocking one would cost each request a thread.
            self.process_view = self._process_view_async

    def __call__(self, request: HttpRequest) -> Any:  # noqa: ANN401 - a response, or an awaitable of one
        if iscoroutinefunction(self):
            return self._serve_async(request)
        covering = self._covers()
        if covering.publishes(request):
            return covering.specification(request)
        if not covering.concerns(request):
            return self.get_response(request)
        held = covering.hold(request)
        route = covering.match(request)
        if route is None:
            response = cast("HttpResponseBase", self.get_response(request))
            return response if held.pending is None else _settle(held.pending, response)
        exchange = SyncExchange(request, route.rules, covering.guard, route.path)
        claimed = exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return new_response(claimed)
        left = attempts.enter(claimed)
        try:
            response = self.get_response(covering.inside(request))
        except BaseException as end:
            exchange.break_off(end)
            raise
        finally:
            attempts.leave(left)
        covering.outside(request)
        error = held.error
        return exchange.conclude(response) if error is None else exchange.conclude_raised(error, response)

    async def _serve_async(self, request: HttpRequest) -> HttpResponseBase:
        covering = self._covers()
        if covering.publishes(request):
            return await sync_to_async(covering.specification)(request)
        if not covering.concerns(request):
            return cast("HttpResponseBase", await self.get_response(request))
        held = covering.hold(request)
        task = asyncio.ensure_future(self._live(request, covering, held))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if held.has_claimed:
                # The client is gone, and what has begun goes on to its end.
                covering.guard.runtime.remember(task)
                task.add_done_callback(_log_failure)
            else:
                task.cancel()
                await asyncio.wait({task})
            raise
        return task.result()

    async def _live(self, request: HttpRequest, covering: "_Covering", held: Held) -> HttpResponseBase:
        route = covering.match(request)
        if route is None:
            response = cast("HttpResponseBase", await self.get_response(request))
            return response if held.pending is None else await _settle_async(held.pending, response)
        from retrysafe.django.exchange_async import AsyncExchange

        exchange = AsyncExchange(request, route.rules, covering.guard, route.path)
        claimed = await exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return new_response(claimed)
        held.has_claimed = True
        left = attempts.enter(claimed)
        try:
            response = await self.get_response(covering.inside(request))
        except BaseException as end:
            await exchange.break_off(end)
            raise
        finally:
            attempts.leave(left)
        covering.outside(request)
        error = held.error
        if error is not None:
            return await exchange.conclude_raised(error, response)
        return await exchange.conclude(response)

    # --- hooks of Django's

    def process_view(self, request: HttpRequest, callback: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401, ARG002 - as Django has it
        """Before the view is called, and before Django decides whether it is atomic."""
        if claims(callback, request.method or ""):
            atomic.leave_to_view(request, callback)
        else:
            atomic.leave_to_django()

    async def _process_view_async(self, request: HttpRequest, callback: Any, args: Any, kwargs: Any) -> None:  # noqa: ANN401 - as Django has it
        Middleware.process_view(self, request, callback, args, kwargs)

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        """A view has raised; what Django makes of it comes later."""
        held = held_of(request)
        if held is not None:
            held.error = exception

    def _covers(self) -> "_Covering":
        """What is covered under the settings in force, which tests change."""
        current = guard()
        if self._covering is None or self._covering.guard is not current:
            self._covering = _Covering(current)
        return self._covering


_ENCODINGS = "HTTP_ACCEPT_ENCODING"
_WITHHELD = "_retrysafe_encodings"


class _Covering:
    """Which requests concern a guard of the project's."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        paths, routes = covered()
        self._claims = paths is not None or bool(routes)
        self._routes = _compile(guard, paths, routes) if self._claims else guard.held_routes()
        self._key = guard.rules.names.key

    def publishes(self, request: HttpRequest) -> bool:
        return self._routes.publishes(request.method or "", request.path_info)

    def specification(self, request: HttpRequest) -> HttpResponseBase:
        """What the project promises: of its views that claim, and of what the middleware covers."""
        from retrysafe._http import publish  # seldom asked for

        own = tuple(protected(self.guard))
        if self._claims:
            covered = self._routes.published()
            published = covered._replace(routes=(*covered.routes, *own))
        else:
            published = self._routes.published(own)
        return new_response(publish.respond(read(request), published))

    def concerns(self, request: HttpRequest) -> bool:
        """Whether anything here may claim for this request."""
        if request.method not in _CHANGING:
            return False
        if self._claims or has_header(request, self._key):
            return True
        if any(has_header(request, other.rules.names.key) for other in Claimants.guards):
            return True
        return Claimants.receive and self._receives(request)

    def _receives(self, request: HttpRequest) -> bool:
        """Whether its view takes deliveries, whose ids are in what is delivered."""
        callback = _view_of(request)
        return callback is not None and receives(callback, request.method or "")

    def hold(self, request: HttpRequest) -> Held:
        copy_stream(
            request, max(self.guard.largest_request, *(g.largest_request for g in Claimants.guards), 0)
        )
        return hold(request)

    def match(self, request: HttpRequest) -> Route | None:
        """The route under which this middleware claims itself."""
        if not self._claims or is_guarded_outside(request) or self._is_left_to_view(request):
            return None
        fields = {self._key: b""} if has_header(request, self._key) else {}
        return self._routes.match(request.method or "", request.path_info, fields)

    def _is_left_to_view(self, request: HttpRequest) -> bool:
        callback = _view_of(request)
        method = request.method or ""
        return callback is not None and (claims(callback, method) or receives(callback, method))

    def inside(self, request: HttpRequest) -> HttpRequest:
        """The request without what would have a middleware inside compress what is to be stored."""
        found = request.META.pop(_ENCODINGS, None)
        if found is not None:
            vars(request)[_WITHHELD] = found
        return request

    def outside(self, request: HttpRequest) -> None:
        found = vars(request).pop(_WITHHELD, None)
        if found is not None:
            request.META[_ENCODINGS] = found


def _view_of(request: HttpRequest) -> Any:  # noqa: ANN401 - any callable
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None)).func
    except Resolver404:
        return None


_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def _compile(guard: Guard, paths: Any, routes: Any) -> Routes:  # noqa: ANN401 - as the settings have them
    for path, options in routes.items():
        if options.get("effects") == "database":
            raise ConfigurationError(
                f"RETRYSAFE['ROUTES'][{path!r}] says effects=\"database\", and a middleware cannot join the view's "
                'transaction: put @idempotent(effects="database") on the view'
            )

    def compile_route(options: Options) -> Any:  # noqa: ANN401 - rules
        # What the project says of effects in its database is said of views that are decorated.
        effects: Options = {"effects": "outside"} if guard.options.get("effects") == "database" else {}
        return guard.compile_route({**effects, **options, "background": "before"})

    return Routes(compile_route, guard.runtime.keyless, paths, routes)


def _settle(pending: Pending, response: HttpResponseBase) -> HttpResponseBase:
    exchange: Any = pending.exchange
    settled: HttpResponseBase = exchange.conclude_raised(pending.error, response)
    return settled


async def _settle_async(pending: Pending, response: HttpResponseBase) -> HttpResponseBase:
    exchange: Any = pending.exchange
    if isinstance(exchange, SyncExchange):  # a blocking view under ASGI
        return await sync_to_async(exchange.conclude_raised)(pending.error, response)
    settled: HttpResponseBase = await exchange.conclude_raised(pending.error, response)
    return settled


def _log_failure(task: "asyncio.Future[Any]") -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("a request whose client is gone failed", exc_info=error)
