"""Where the user of a request comes from, as far as the order of an application's middlewares shows it.

`scopes.user` reads `scope["user"]`.  A middleware that claims keys by it has to stand inside of the one that
sets it: outside, it refuses each request with a key, or finds the owner that was meant for strangers.
"""

from collections.abc import Iterator
from inspect import getattr_static
from typing import Any

from retrysafe import scopes
from retrysafe._http.routes import Routes
from retrysafe.events import log

_SETS_USER = ("starlette.middleware.authentication", "AuthenticationMiddleware")
"""By its name: no framework is imported here.  Others may set the user, too, and cannot be recognised."""

_CANNOT_SET_USER = ("starlette.middleware.", "fastapi.", "retrysafe.")
_MAY_SET_USER = ("starlette.middleware.base", _SETS_USER[0])


def sets_user(middleware: object) -> bool:
    """Whether this class of middlewares is known to set `scope["user"]`."""
    return _SETS_USER in [(base.__module__, base.__qualname__) for base in getattr(middleware, "__mro__", ())]


def may_set_user(middleware: object) -> bool:
    """Whether it could: all but those that are known to do something else."""
    module: str = getattr(middleware, "__module__", None) or ""
    return module.startswith(_MAY_SET_USER) or not module.startswith(_CANNOT_SET_USER)


def report_order(middleware: object, app: object, covered: Routes, framework: object) -> None:
    """Say in the log of an application that starts if the middleware finds no user where it stands.

    `app` is what it stands around, and `framework` the application whose middleware it is, if it is one's.
    """
    rules = (covered.rules, *(route.rules for route in covered.routes))
    needing = next((one.request.scope for one in rules if scopes.needs_user(one.request.scope)), None)
    if needing is None or not any(sets_user(inner) for inner in _classes(app)):
        return
    outside = _classes(getattr(framework, "middleware_stack", None), middleware)
    if not any(may_set_user(outer) for outer in outside):
        log.warning(_OUTSIDE, scopes.describe(needing))


_OUTSIDE = (
    "asgi.Middleware stands outside of the AuthenticationMiddleware that sets the user, and its scope is %s: "
    "unless the user is set further outside, each request with a key is refused with principal-required, or "
    "has another owner than the user. Move it inside: with add_middleware, what is added first is innermost"
)


def _classes(app: object, until: object = None) -> Iterator[object]:
    """The classes of what a request passes on its way in, from an application to its routes."""
    passed: set[int] = set()
    while app is not None and app is not until and id(app) not in passed:
        passed.add(id(app))
        yield type(app)
        yield from (getattr(one, "cls", None) for one in own_attribute(app, "user_middleware") or ())
        app = own_attribute(app, "app")


def own_attribute(app: object, name: str) -> Any:  # noqa: ANN401 - whatever a framework has there
    """An attribute that it really has: a double that tests use has them all, and never ends."""
    return getattr(app, name, None) if getattr_static(app, name, None) is not None else None
