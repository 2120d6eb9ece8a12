"""FastAPI: endpoints that claim their key themselves, after dependencies and validation.

    from retrysafe.fastapi import idempotent, protect

    protect(app, guard)

    @app.post("/orders", status_code=201)
    @idempotent(guard, required=True, effects="database")
    def create(order: OrderIn, user: CurrentUser, db: Db) -> OrderOut: ...

The decorator stands next to the function, below that of the route.  A 401, a 403, a 422 or a redirect never
had a claim, and each is asked before a replay too.  The protected routes say so in the OpenAPI document.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, Unpack, cast

from fastapi import BackgroundTasks, Depends, FastAPI, Request, routing
from fastapi.requests import HTTPConnection

from retrysafe._http.marked import Marked, find_receiving, marked
from retrysafe._http.openapi import add_content, add_schemas, describe_operation
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.policy import Options
from retrysafe.starlette import (
    CONTEXT,
    Context,
    Expand,
    check_guard,
    compile_endpoint,
    endpoints,
    hold,
    wrap,
)

__all__ = ["idempotent", "protect"]

F = TypeVar("F", bound=Callable[..., Any])


def protect(app: FastAPI, guard: Guard) -> None:
    """Hold the requests to an application, so that its decorated endpoints can claim their keys.

    In whichever order middlewares are added, this stands around them.  The guard checks its store when the
    application starts, and drains when it stops.  The OpenAPI document describes the protected routes.
    """
    if not isinstance(app, FastAPI):
        raise ConfigurationError(f"protect({app!r}, guard): expected an application of FastAPI's")
    hold(app, guard, lambda: routes(app))
    make = app.openapi
    app.openapi_schema = None  # one that was made before says nothing of keys

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(make(), app, guard)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says


def idempotent(guard: Guard, **options: Unpack[Options]) -> Callable[[F], F]:
    """Have an endpoint run once per key.

    It claims when FastAPI calls the function: after dependencies and validation, which are therefore asked
    before a replay too.  `options` are those of any route, such as `required`, `scope`, `fingerprint`,
    `retention`, `no_store` and `effects`; `scope=scopes.argument("user.id")` takes a dependency's value.
    """
    rules, detached = compile_endpoint(check_guard(guard), options)

    def decorate(function: F) -> F:
        wrapper = wrap(function, guard, rules, detached=detached)
        signature = inspect.signature(function)
        *parameters, last = (*signature.parameters.values(), _PARAMETER)
        if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
            parameters, last = [*parameters[:-1], last], parameters[-1]
        setattr(wrapper, "__signature__", signature.replace(parameters=[*parameters, last]))  # noqa: B010 - typed
        return cast("F", wrapper)

    return decorate


# A coroutine function: a plain one would wait for a thread, and endpoints may hold all of them.
async def _context(connection: HTTPConnection, background: BackgroundTasks) -> Context:
    if not isinstance(connection, Request):
        raise ConfigurationError(
            f"{connection.url.path}: @idempotent was put on the function of a websocket, which has no "
            "response to store. Decorate HTTP endpoints"
        )
    return Context(connection, background)


# A dependency and not two parameters: FastAPI fills one of a kind, and the function may have its own.
_PARAMETER = inspect.Parameter(
    CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Context, Depends(_context)]
)


def routes(app: FastAPI) -> Iterator[tuple[str, object, frozenset[str]]]:
    """Path, function and methods of every HTTP endpoint, those of included routers and mounts included."""
    yield from endpoints(app.routes, expand=expand)


# Since FastAPI 0.137 the routes of included routers are hidden, and shown by this since 0.138.
expand: Expand = getattr(routing, "iter_route_contexts", list)


_CONVERTER = re.compile(r":\w+\}")
"""`/files/{name:path}` is `/files/{name}` in a document."""


def _described(document: dict[str, Any], app: FastAPI, guard: Guard) -> dict[str, Any]:
    for path, function, methods in routes(app):
        item: dict[str, Any] = document.get("paths", {}).get(_CONVERTER.sub("}", path), {})
        receiving = find_receiving(function, guard)
        if receiving is not None and receiving.describe is not None:
            for method in methods:
                if (operation := item.get(method.lower())) is not None:
                    receiving.describe(document, operation)
        found = marked(function)
        if found is None or found.guard is not guard:
            continue
        for method in methods & found.rules.wire.methods:
            if (operation := item.get(method.lower())) is not None:
                _describe(document, operation, found)
    return document


def _describe(document: dict[str, Any], operation: dict[str, Any], found: Marked) -> None:
    describe_operation(operation, found.rules)
    add_schemas(document, found.rules)
    # FastAPI's own responses under statuses that now have problems, and so would pass for one.
    responses: dict[str, Any] = operation["responses"]
    if "400" in responses and "requestBody" in operation:
        add_content(responses["400"], "application/json", _UNREADABLE)
    if "500" in responses:
        add_content(responses["500"], "text/plain", {"type": "string"})


_UNREADABLE = {
    "type": "object",
    "required": ["detail"],
    "properties": {"detail": {"type": "string", "description": "Why the body could not be read."}},
}
