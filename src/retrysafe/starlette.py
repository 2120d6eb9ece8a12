"""Starlette: endpoints that claim their key themselves, after authentication.

    from retrysafe.starlette import idempotent, protect

    @idempotent(guard, required=True)
    async def pay(request: Request) -> Response: ...

    app = Starlette(routes=[Route("/payments", pay, methods=["POST"])])
    protect(app, guard)

A 401, a 403 or a redirect never had a claim.  Everything else is as with `retrysafe.asgi.Middleware`, which
covers paths instead of functions.
"""

import asyncio
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import count
from typing import Any, NamedTuple, NoReturn, TypeVar, Unpack, cast

from starlette.applications import Starlette
from starlette.background import BackgroundTasks
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute, compile_path
from starlette.types import Receive, Scope, Send

from retrysafe import scopes
from retrysafe._core import attempt as attempts
from retrysafe._core import model
from retrysafe._http.held import name_of
from retrysafe._http.marked import (
    ABOVE,
    RECEIVER_ABOVE,
    Marked,
    bare,
    bare_receiver,
    find_receiving,
    mark,
    marked,
)
from retrysafe._http.routes import Protected
from retrysafe.asgi.exchange import AsgiRequest, send_whole, template
from retrysafe.asgi.held import HeldExchange, Holder
from retrysafe.asgi.types import App
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.guard import Guard
from retrysafe.policy import Options, Rules, layered

__all__ = ["idempotent", "protect"]

F = TypeVar("F", bound=Callable[..., Any])


def protect(app: Starlette, guard: Guard) -> None:
    """Hold the requests to an application, so that its decorated endpoints can claim their keys.

    In whichever order middlewares are added, this stands around them.  The guard checks its store when the
    application starts, and drains when it stops.
    """
    hold(app, guard, lambda: endpoints(app.routes))


Endpoints = Iterator[tuple[str, object, frozenset[str]]]
"""Paths, functions and methods."""


def hold(app: Starlette, guard: Guard, find: Callable[[], Endpoints]) -> None:
    """The same for any application that is Starlette's below; `find` lists its endpoints."""
    if not isinstance(guard, Guard):
        raise ConfigurationError(
            f"protect(app, {guard!r}): expected a Guard, such as Guard(store, scope=...)"
        )
    if not isinstance(app, Starlette):
        raise ConfigurationError(
            f"protect({app!r}, guard): expected an application of Starlette's or FastAPI's; for any other "
            "ASGI application there is retrysafe.asgi.Middleware"
        )
    if app.middleware_stack is not None:
        raise ConfigurationError("protect(app, guard) came after the application had started: call it before")
    guards = holders(app)
    if guard in guards:
        raise ConfigurationError("protect(app, guard) was called twice with one guard: call it once")
    app.state.retrysafe = (*guards, guard)
    build = app.build_middleware_stack

    def protected() -> Iterator[Protected]:
        for path, function, methods in find():
            found = marked(function)
            if found is not None and found.guard is guard:
                yield Protected(path, found.rules, methods)

    # Around everything, error handling included: the response that an application's own handler makes of an
    # exception is then the one that is stored.
    def build_and_hold() -> App:
        _refuse_bare(guard, list(find()))
        return Holder(build(), guard, lambda: _handles_errors(app), protected, _Receiving(app, guard, find))

    app.build_middleware_stack = build_and_hold  # type: ignore[method-assign]  # there is no hook for it


class _Receiving:
    """As what a request is held that goes to an endpoint which takes deliveries of events."""

    def __init__(self, app: Starlette, guard: Guard, find: Callable[[], Endpoints]) -> None:
        self._app = app
        self._guard = guard
        self._find = find
        self._routes = -1
        self._taken: list[tuple[re.Pattern[str], frozenset[str], type[HeldExchange]]] = []

    def __call__(self, method: str, path: str) -> type[HeldExchange] | None:
        if len(self._app.routes) != self._routes:  # at first, and where some are added later
            self._routes = len(self._app.routes)
            self._taken = [
                (_pattern(template), methods, found.exchange)
                for template, function, methods in self._find()
                if (found := find_receiving(function, self._guard)) is not None
            ]
        for pattern, methods, kind in self._taken:
            if method in methods and pattern.match(path):
                return kind
        return None


def _pattern(template: str) -> re.Pattern[str]:
    """Of a whole path; a mount and a route below it may have a parameter of one name."""
    numbers = count()
    return compile_path(_PARAMETER.sub(lambda _: f"{{p{next(numbers)}", template))[0]


_PARAMETER = re.compile(r"\{[a-zA-Z_][a-zA-Z0-9_]*")


def _refuse_bare(guard: Guard, every: Sequence[tuple[str, object, frozenset[str]]]) -> None:
    """Refuse to start with an endpoint that would run unprotected, because its decorator stands above."""
    functions = [function for _, function, _ in every]
    for path, function, methods in every:
        found = bare(function, guard, functions)
        if found is not None and methods & guard.rules.wire.methods:
            raise ConfigurationError(ABOVE.format(getattr(found, "__qualname__", found), path))
        found = bare_receiver(function, guard, functions)
        if found is not None:
            raise ConfigurationError(RECEIVER_ABOVE.format(getattr(found, "__qualname__", found), path))


def holders(app: Starlette) -> tuple[Guard, ...]:
    """The guards that `protect` was called with."""
    guards: tuple[Guard, ...] = getattr(app.state, "retrysafe", ())
    return guards


def _handles_errors(app: Starlette) -> bool:
    return app.debug or 500 in app.exception_handlers or Exception in app.exception_handlers


Expand = Callable[[Iterable[object]], Iterable[object]]
"""Makes one list of an application's routes and of those that its framework has put aside."""


def endpoints(routes: Iterable[object], prefix: str = "", expand: Expand = list) -> Endpoints:
    """Path, function and methods of every HTTP endpoint, those of mounts and of classes included."""
    for route in expand(routes):
        path = prefix + (getattr(route, "path", None) or "")
        endpoint: object = getattr(route, "endpoint", None)
        below: Iterable[object] | None = getattr(route, "routes", None)
        methods: Iterable[str] | None = getattr(route, "methods", None)
        if below is not None:
            yield from endpoints(below, path, expand)
        elif inspect.isclass(endpoint) and issubclass(endpoint, HTTPEndpoint):
            for method in _MUTATING:
                function = getattr(endpoint, method.lower(), None)
                if function is not None and (not methods or method in methods):
                    yield path, function, frozenset({method})
        elif methods:
            yield path, endpoint, frozenset(methods)
        elif endpoint is not None and not isinstance(getattr(route, "original_route", route), WebSocketRoute):
            yield path, endpoint, frozenset(_MUTATING)  # an ASGI application, which is given every method


_MUTATING = ("POST", "PUT", "PATCH", "DELETE")
"""What `HTTPEndpoint` dispatches besides methods that change nothing."""


def idempotent(guard: Guard, **options: Unpack[Options]) -> Callable[[F], F]:
    """Have an endpoint run once per key.

    It claims when the framework calls the function: after dependencies, permissions and validation, which
    are therefore asked before a replay too.  `options` are those of any route, such as `required`, `scope`,
    `fingerprint`, `retention`, `no_store` and `effects`.
    """
    rules, detached = compile_endpoint(check_guard(guard), options)

    def decorate(function: F) -> F:
        return cast("F", wrap(function, guard, rules, detached=detached))

    return decorate


def check_guard(guard: object) -> Guard:
    if isinstance(guard, Guard):
        return guard
    raise ConfigurationError(
        f"@idempotent({guard!r}) was given no guard: write @idempotent(guard), with the guard of protect()"
    )


def compile_endpoint(guard: Guard, options: Options) -> tuple[Rules, bool]:
    """The rules of an endpoint, and whether its background tasks run after its response is sent.

    An adapter that sees the tasks need not wait for them; what else happens after the last byte, such as the
    exits of dependencies, it always waits for.
    """
    detached = layered(guard.options, options).get("background") != "before"
    return guard.compile_route({**options, "background": "before"}), detached


def wrap(function: Callable[..., Any], guard: Guard, rules: Rules, *, detached: bool) -> Callable[..., Any]:
    """The function that a framework calls instead: it claims, and then runs what was decorated."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"@idempotent cannot protect {function.__qualname__}, which is a generator: its parts are sent "
            "while it runs. Return a StreamingResponse from a function instead"
        )
    if inspect.isclass(function) or not inspect.isroutine(function):
        raise ConfigurationError(
            f"@idempotent was put on {function!r}: expected a function; of a class, decorate its methods"
        )
    endpoint = _Endpoint(function, guard, rules, detached=detached)

    @wraps(function)
    def called(*args: object, **named: object) -> object:
        context = named.pop(CONTEXT, None)
        if isinstance(context, Context):
            return endpoint.serve(context, args, named)
        for given in (*args, *named.values()):
            if isinstance(given, Request):
                request = cast("Request[State]", given)
                return endpoint.serve(Context(request, None), args, named)
        return function(*args, **named)  # by another function, such as a test, and not by the framework

    mark(called, Marked(rules, guard))
    mark_as_coroutine_function(called)
    return called


CONTEXT = "retrysafe_context"
"""The parameter in which a framework that passes arguments by name passes its own."""


class Context(NamedTuple):
    """What belongs to the framework's call, and not to the function."""

    request: "Request[State]"
    background: BackgroundTasks | None
    """Tasks that dependencies may have added to, besides the function."""


Arguments = tuple[object, ...]
Named = dict[str, object]


class _Endpoint:
    """A decorated function, and what holds for it."""

    def __init__(self, function: Callable[..., Any], guard: Guard, rules: Rules, *, detached: bool) -> None:
        self._function = function
        self._guard = guard
        self._rules = rules
        self._detached = detached
        self._name = name_of(guard)
        self._parameters = tuple(inspect.signature(function).parameters)
        self._awaited = inspect.iscoroutinefunction(function)
        self._nothing_done: tuple[type[Exception], ...] = (NotDone, *rules.outcome.retry_on)
        scopes.check_arguments(rules.request.scope, self._parameters, function.__qualname__)

    async def serve(self, context: Context, args: Arguments, named: Named) -> object:
        scope = context.request.scope
        if self._name not in scope:
            raise ConfigurationError(
                f"{self._function.__qualname__} is decorated with @idempotent, and its application is not "
                "protected: call protect(app, guard), with the same guard"
            )
        held: HeldExchange | None = scope[self._name]
        if "retrysafe" in scope:
            return await self._run(args, named)  # a middleware outside has claimed the key already
        if held is None or not held.keyed:
            return await self._serve_without_key(scope, args, named)
        scope[model.ARGUMENTS] = dict(zip(self._parameters, args, strict=False)) | named
        claimed = await held.claim_key(self._rules, scope)
        if not isinstance(claimed, attempts.Attempt):
            return Settled(claimed)
        attempts.enter(claimed)
        try:
            returned = await self._run(args, named)
        except self._nothing_done:
            claimed.not_started()  # said here, because a handler of the application may make a response of it
            raise
        if self._detached:
            _detach(held, returned, context)
        return returned

    async def _serve_without_key(self, scope: Scope, args: Arguments, named: Named) -> object:
        method: str = scope["method"]
        if method.upper() in self._rules.wire.methods:
            required = self._rules.request.required
            if required is True:
                request = AsgiRequest(scope, dict(scope["headers"]))
                keyless = HeldExchange(request, self._guard.routes(None, None).otherwise, self._guard.runtime)
                refused = await keyless.claim_key(self._rules, scope)
                assert isinstance(refused, model.Response), "without a key there is nothing to claim"
                return Settled(refused)
            route = template(scope) or ""
            self._guard.runtime.keyless(method, scope["path"], route, warn=required == "warn")
        return await self._run(args, named)

    async def _run(self, args: Arguments, named: Named) -> object:
        if self._awaited:
            return await self._function(*args, **named)
        # As frameworks do, and here because the claim is awaited before it.
        returned = await run_in_threadpool(self._function, *args, **named)
        # A plain function around a coroutine function, as decorators are: FastAPI looks through it.
        return await returned if inspect.isawaitable(returned) else returned


class Settled(Response):
    """A response that is there already: a replay or a problem."""

    def __init__(self, response: model.Response) -> None:
        self.status_code = response.status
        self.body = response.body
        self.raw_headers = list(response.headers)
        # Its own and empty: a framework that finds none attaches the tasks of dependencies.
        self.background = BackgroundTasks()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as any other
        await send_whole(send, model.Response(self.status_code, tuple(self.raw_headers), bytes(self.body)))


class _SettledEarly(Exception):
    """Raised by a dependency: the response is there already, and no other dependency is to be solved."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def settle_early(request: Request, response: Response) -> NoReturn:
    """Send this response to a request, out of a dependency."""
    # In whichever application it is, mounted ones included; and not as an `HTTPException`, of which
    # applications make pages of their own.
    handlers, _ = request.scope["starlette.exception_handlers"]
    handlers.setdefault(_SettledEarly, _settled)
    raise _SettledEarly(response)


async def _settled(_: Request, error: Exception) -> Response:
    assert isinstance(error, _SettledEarly)
    return error.response


def _detach(held: HeldExchange, returned: object, context: Context) -> None:
    """Take the background tasks from a response, to run them when it was stored and sent."""
    if isinstance(returned, Response) and returned.background is not None:
        # A framework runs these, and not those of dependencies.
        held.run_afterwards(returned.background)
        returned.background = BackgroundTasks()
    elif context.background is not None and context.background.tasks:
        held.run_afterwards(BackgroundTasks(context.background.tasks.copy()))
        context.background.tasks.clear()


def mark_as_coroutine_function(function: Any) -> None:  # noqa: ANN401 - a function, whose attributes are set
    """A framework awaits it.  It is not one itself, because a plain function is called as such in a test."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    else:
        function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # as in 3.11
