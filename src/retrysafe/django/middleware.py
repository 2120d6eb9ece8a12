"""`retrysafe.django.Middleware`: what stands around the views of a project.

    MIDDLEWARE = [
        …
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "retrysafe.django.Middleware",
    ]

For views that claim themselves it has the body copied, keeps a request alive whose client is gone, and
settles what they raise with the response that Django makes of it.  With `RETRYSAFE["PATHS"]` it claims for
all other views below these paths: who may not do something has to be refused before it, or by
`REAUTHORISE`.  And it serves what the project promises, at `/idempotency`.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, get_resolver, resolve

from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Attempt
from retrysafe._http.routes import Published, Route, Routes
from retrysafe.django.guarded import atomic
from retrysafe.django.guarded.body import copy_stream
from retrysafe.django.guarded.coroutines import is_awaited, mark_awaited
from retrysafe.django.guarded.exchange import SyncExchange
from retrysafe.django.guarded.held import Claimants, Held, Pending, held_of, hold, is_held
from retrysafe.django.guarded.request import (
    give_back_encodings,
    has_header,
    is_guarded_outside,
    new_response,
    read,
    withhold_encodings,
)
from retrysafe.django.options import of_engine
from retrysafe.django.routes import AUTHORISES_ITSELF, authorises_itself, claims, protected, receives
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
        self._is_awaited = is_awaited(get_response)
        if self._is_awaited:
            mark_awaited(self)
            # Django takes it as it is, where a blocking one would cost each request a thread.
            vars(self)["process_view"] = self._process_view_async

    def __call__(self, request: HttpRequest) -> Any:  # noqa: ANN401 - a response, or an awaitable of one
        if self._is_awaited:
            return self._serve_async(request)
        covering = self._covers()
        if covering.publishes(request):
            return covering.specification(request)
        if not covering.concerns(request):
            return self.get_response(request)
        held = covering.hold(request)
        route = covering.match(request)
        if route is None:
            try:
                response = cast("HttpResponseBase", self.get_response(request))
            finally:
                atomic.leave_before(request)
            return response if held.pending is None else _settle(held.pending, response)
        exchange = SyncExchange(request, route.rules, covering.guard, route.path)
        claimed = exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return new_response(claimed)
        left, encodings = attempts.enter(claimed), withhold_encodings(request)
        try:
            response = self.get_response(request)
        except BaseException as end:
            exchange.break_off(end)
            raise
        finally:
            give_back_encodings(request, encodings)
            attempts.leave(left)
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
        from retrysafe.django.guarded.exchange_async import AsyncExchange

        exchange = AsyncExchange(request, route.rules, covering.guard, route.path)
        claimed = await exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return new_response(claimed)
        held.has_claimed = True
        left, encodings = attempts.enter(claimed), withhold_encodings(request)
        try:
            response = await self.get_response(request)
        except BaseException as end:
            await exchange.break_off(end)
            raise
        finally:
            give_back_encodings(request, encodings)
            attempts.leave(left)
        error = held.error
        if error is not None:
            return await exchange.conclude_raised(error, response)
        return await exchange.conclude(response)

    # --- hooks of Django's

    def process_view(self, request: HttpRequest, callback: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401, ARG002 - as Django has it
        """Before the view is called, and before Django decides whether it is atomic."""
        method = request.method or ""
        # Without a key there is nothing to claim, and a view is as atomic as Django makes it.
        if is_held(request) and _settles_itself(callback, method):
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


def published() -> Published:
    """What the project promises its clients."""
    return _Covering(guard()).published()


class _Covering:
    """Which requests concern a guard of the project's."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        covered = covered_routes(guard)
        self._claims = covered is not None
        self._routes = guard.held_routes() if covered is None else covered
        self._key = guard.rules.names.key

    def publishes(self, request: HttpRequest) -> bool:
        return self._routes.publishes(request.method or "", request.path_info)

    def specification(self, request: HttpRequest) -> HttpResponseBase:
        """What the project promises: of its views that claim, and of what the middleware covers."""
        from retrysafe._http import publish  # seldom asked for

        return new_response(publish.respond(read(request), self.published()))

    def published(self) -> Published:
        own = tuple(protected(self.guard))
        if not self._claims:
            return self._routes.published(own)
        covered = self._routes.published()
        return covered._replace(routes=(*covered.routes, *own))

    def concerns(self, request: HttpRequest) -> bool:
        """Whether anything here may claim for this request."""
        if request.method not in _CHANGING:
            return False
        _load_views(getattr(request, "urlconf", None) or settings.ROOT_URLCONF)
        if Claimants.receive and self._receives(request):
            return True
        if self._claims or has_header(request, self._key):
            return True
        others = Claimants.guards
        return bool(others) and any(has_header(request, other.rules.names.key) for other in others)

    def _receives(self, request: HttpRequest) -> bool:
        """Whether its view takes deliveries, whose ids are in what is delivered."""
        callback = _view_of(request)
        if callback is None or not receives(callback, request.method or ""):
            return False
        if not getattr(callback, "csrf_exempt", False):
            # A class takes by some of its methods what no browser sends, and may be exempt as a whole only.
            # REST framework's are exempt, and where sessions authenticate they check by themselves.
            vars(request)["_dont_enforce_csrf_checks"] = True
        return True

    def hold(self, request: HttpRequest) -> Held:
        limit = self.guard.largest_request
        if others := Claimants.guards:
            limit = max(limit, *(other.largest_request for other in others))
        copy_stream(request, limit)
        return hold(request)

    def match(self, request: HttpRequest) -> Route | None:
        """The route under which this middleware claims itself."""
        if not self._claims or is_guarded_outside(request):
            return None
        callback, method = _view_of(request), request.method or ""
        if callback is not None and (claims(callback, method) or receives(callback, method)):
            return None  # it is left to the view
        fields = {self._key: b""} if has_header(request, self._key) else {}
        found = self._routes.match(method, request.path_info, fields)
        if (
            found is not None
            and callback is not None
            and found.rules.request.reauthorise is None
            and authorises_itself(callback, method)
        ):
            raise ConfigurationError(AUTHORISES_ITSELF.format(method, request.path_info))
        return found


@lru_cache(maxsize=64)
def _load_views(urlconf: Any) -> None:  # noqa: ANN401 - a module, its name, or patterns
    """Before it is asked which views claim: Django imports them when it first looks for one."""
    _ = get_resolver(urlconf).url_patterns


def _view_of(request: HttpRequest) -> Any:  # noqa: ANN401 - any callable
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None)).func
    except Resolver404:
        return None


def _settles_itself(callback: Any, method: str) -> bool:  # noqa: ANN401 - any callable
    """Whether a view claims by this method, or takes deliveries."""
    try:
        return _has_decorator(callback, method)
    except TypeError:  # it cannot be hashed
        return claims(callback, method) or receives(callback, method)


@lru_cache(maxsize=1024)  # a decorator has left its mark before a view is in a route
def _has_decorator(callback: Any, method: str) -> bool:  # noqa: ANN401 - any callable
    return claims(callback, method) or receives(callback, method)


_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def covered_routes(guard: Guard) -> Routes | None:
    """What the middleware claims for; `None`: for nothing, because views are decorated."""
    paths, routes = covered()
    return None if paths is None else _compile(guard, paths, routes)


def _compile(guard: Guard, paths: Any, routes: Any) -> Routes:  # noqa: ANN401 - as the settings have them
    for path, options in routes.items():
        if options.get("effects") == "database":
            raise ConfigurationError(
                f"RETRYSAFE['ROUTES'][{path!r}] says effects=\"database\", and a middleware cannot join the "
                'transaction of a view: put @idempotent(effects="database") on the view'
            )

    def compile_route(options: Options) -> Any:  # noqa: ANN401 - rules
        # What the project says of effects in its database is said of views that are decorated.
        effects: Options = {"effects": "outside"} if guard.options.get("effects") == "database" else {}
        return guard.compile_route({**effects, **of_engine(options), "background": "before"})

    return Routes(compile_route, guard.runtime.keyless, paths, routes)


def _settle(pending: Pending, response: HttpResponseBase) -> HttpResponseBase:
    exchange: Any = pending.exchange
    conclude = exchange.conclude_raised
    if not isinstance(exchange, SyncExchange):  # an `async def` view under WSGI
        conclude = async_to_sync(conclude)
    settled: HttpResponseBase = conclude(pending.error, response)
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
