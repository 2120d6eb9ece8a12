"""The routes of a Django project: of its URLconf, whichever of its handlers serves it.

A view that claims itself is left alone by the middleware that covers its path.
"""

from collections.abc import Iterator
from types import CodeType
from typing import Any, Literal, cast

from django.conf import settings
from django.utils.module_loading import import_string

from retrysafe._http.marked import find_mark
from retrysafe.coverage.judge import judge_endpoints
from retrysafe.coverage.model import Coverage
from retrysafe.coverage.stack import Endpoint, Layer, Place, innermost, name_of
from retrysafe.django.middleware import Middleware, covered_routes
from retrysafe.django.routes import (
    View,
    authorises_itself,
    class_of,
    functions_of,
    is_of_framework,
    operations_of,
    said_methods,
    views,
)
from retrysafe.django.settings import guard

_UNSAID = "it does not say which methods it takes: if it changes nothing, say so by @require_safe"

_AUTHENTICATION = "django.contrib.auth.middleware"
"""By its name: importing it needs its application."""

_READ = frozenset({"POST", "FILES", "body"})
"""Attributes of a request that only a view has a use for which takes POST."""


def examine_project(*, certain: bool = False) -> Coverage:
    """As `examine` does, of the project whose settings these are.

    With `certain`, views that may change nothing are left out: those which say nowhere what they take.
    """
    found = read(Place())
    return judge_endpoints(one for one in found if not (certain and one.remark == _UNSAID))


def project_name() -> str:
    """Where its routes are."""
    urlconf: object = getattr(settings, "ROOT_URLCONF", "")
    return urlconf if isinstance(urlconf, str) else str(getattr(urlconf, "__name__", urlconf))


def read(place: Place) -> Iterator[Endpoint]:
    own = guard()
    place = place.within(*_layers(place))
    covers = any(layer.covers is not None for layer in place.layers)
    held = any(_is_ours(layer.cls) for layer in place.layers)
    for view in views():
        functions = tuple(functions_of(view.callback, view.method))
        marks = [mark for one in functions if (mark := find_mark(one)) is not None]
        certain = methods_taken(view.callback)
        if not marks and view.method not in (certain or ("POST",)):
            continue
        if view.path.endswith((".{format}", ".{format}/")) and (marks or not covers):
            continue  # `/orders.json`: what was said of `/orders` holds for it
        yield Endpoint(
            place.prefix + view.path,
            frozenset({view.method}),
            (view.function, *functions),
            place._replace(held=tuple(getattr(mark, "guard", own) for mark in marks) if held else ()),
            "django",
            guard=own,
            template=place.prefix + view.typed,
            called=_name(view),
            is_known=is_of_framework(view.callback, view.method),
            remark="" if certain or marks else _UNSAID,
            asks_user=operations_of(view.callback) is not None
            or authorises_itself(view.callback, view.method),
        )


def _layers(place: Place) -> Iterator[Layer]:
    """The middlewares of the project, outermost first."""
    for path in settings.MIDDLEWARE:
        found: Any = import_string(path)
        made: object = innermost(found)
        if _is_ours(made):
            covers = covered_routes(guard())
            by: Any = None if covers is None else "django.Middleware"
            yield Layer(made, path, place.prefix, by, guard(), covers, "leaves")
        else:
            yield Layer(made, path, place.prefix, user=what_of_user(made))


def _is_ours(made: object) -> bool:
    return isinstance(made, type) and issubclass(made, Middleware)


def what_of_user(middleware: object) -> Literal["sets", "may set", "leaves"]:
    """Whether a middleware sets `request.user`, as far as is known."""
    bases = middleware.__mro__ if isinstance(middleware, type) else ()
    if any(
        base.__module__ == _AUTHENTICATION and base.__name__ == "AuthenticationMiddleware" for base in bases
    ):
        return "sets"
    module: str = getattr(middleware, "__module__", None) or ""
    # Another one of Django's that does needs AuthenticationMiddleware itself.
    return "leaves" if module.startswith(("django.", "retrysafe.django.middleware")) else "may set"


def methods_taken(callback: Any) -> tuple[str, ...]:  # noqa: ANN401 - any callable
    """The methods that a view takes and that change something; of one that does not say so, those that its
    code is about.  None: it may take any, or change nothing at all."""
    said = said_methods(callback)
    if said is not None:
        return tuple(said)
    function: Any = callback
    while (inner := getattr(function, "__wrapped__", None) or getattr(function, "func", None)) is not None:
        function = inner
    called: Any = function if hasattr(function, "__code__") else type(function).__call__  # an object's
    code = getattr(called, "__code__", None)
    if code is None:
        return ()
    words = set(_words(code))
    found = tuple(method for method in ("POST", "PUT", "PATCH", "DELETE") if method in words)
    return found or (("POST",) if words & _READ else ())


def _words(value: object) -> Iterator[str]:
    """The texts and the names of attributes in the code of a function."""
    match value:
        case CodeType():
            yield from value.co_names
            for constant in value.co_consts:
                yield from _words(constant)
        case str():
            yield value
        case tuple() | frozenset():
            for one in cast("tuple[object, ...]", value):
                yield from _words(one)
        case _:
            pass


def _name(view: View) -> str:
    of_class = class_of(view.callback)
    if of_class is None or view.function is view.callback:
        return name_of(view.function)
    named = getattr(view.function, "__name__", view.method.lower())
    is_method = hasattr(of_class, named) and named != of_class.__name__
    return f"{name_of(of_class)}.{named}" if is_method else name_of(view.function)
