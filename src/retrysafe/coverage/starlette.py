"""The routes of Starlette's and FastAPI's applications and routers."""

import sys
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.routing import Router, WebSocketRoute

from retrysafe.coverage.stack import Endpoint, Found, Part, Place, chain, layer_of, layer_to_be
from retrysafe.starlette import Expand, endpoints, holders


def read(app: Starlette | Router, place: Place) -> Found:
    if isinstance(app, Starlette):
        layers = [layer_to_be(cls, args, options, place.prefix) for cls, args, options in app.user_middleware]
        place = place.within(*layers)._replace(held=(*place.held, *holders(app)))
        app = app.router
    place = _unwrapped(app.middleware_stack, place)
    yield from _routes(app.routes, place)
    if app.default != app.not_found:
        yield Part(app.default, place)


def _routes(routes: Iterable[object], place: Place) -> Found:
    for route in _expand()(routes):
        path: str = getattr(route, "path", None) or ""
        app: object = getattr(route, "app", None)
        if getattr(route, "routes", None) is not None:
            below = place._replace(prefix=place.prefix + path, host=getattr(route, "host", place.host))
            yield Part(app, below)
            continue
        found = list(endpoints([route], place.prefix))
        for full, function, methods in found:
            yield Endpoint(full, methods, (function,), _unwrapped(app, place))
        original: object = getattr(route, "original_route", route)
        understood = isinstance(original, WebSocketRoute) or getattr(route, "endpoint", None) is not None
        if not found and not understood:
            yield Part(original, place._replace(prefix=place.prefix + path))


def _unwrapped(app: object, place: Place) -> Place:
    """Within what stands around a router or one route."""
    *layers, _ = chain(app) if app is not None else (None,)
    return place.within(*(layer_of(layer, place.prefix) for layer in layers))


def _expand() -> Expand:
    """FastAPI hides the routes of included routers; asked only where it is there to hide them."""
    if "fastapi" not in sys.modules:
        return list
    from retrysafe.fastapi import expand

    return expand
