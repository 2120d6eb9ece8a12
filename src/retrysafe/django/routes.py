"""The routes of a project: which views there are, by which methods, and what holds for each."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

from django.conf import settings
from django.http import HttpRequest
from django.urls import LocalePrefixPattern, URLPattern, URLResolver, get_resolver

from retrysafe._http.marked import Marked, bound, exempt_reason, find_mark, is_receiving
from retrysafe._http.routes import Protected
from retrysafe.guard import Guard

MUTATING = ("POST", "PUT", "PATCH", "DELETE")

_CONVERTER = re.compile(r"<(?:([^>:]+):)?([^>]+)>")
_TYPED = re.compile(r"\{(\w+):\w+\}")
_NAMED_GROUP = re.compile(r"\(\?P<(\w+)>")


class View(NamedTuple):
    """A view of the project's, by one method."""

    path: str
    """A template, such as `/orders/{pk}/`."""
    method: str
    callback: Any
    """What Django calls."""
    function: Any
    """What it calls: of a class, the method."""
    name: str
    """The route's name, with its namespaces; empty where it has none."""
    typed: str
    """The template with the kinds of its parameters, such as `/orders/{pk:int}/`."""


def route_of(request: HttpRequest) -> str:
    """The template of a request's route."""
    match = request.resolver_match
    return "" if match is None else template(match.route)


@lru_cache(maxsize=1024)
def template(route: str) -> str:
    """`orders/<int:pk>/` or `^orders/(?P<pk>\\\\d+)/$` as `/orders/{pk}/`."""
    return _TYPED.sub(r"{\1}", typed(route))


@lru_cache(maxsize=1024)
def typed(route: str) -> str:
    """The same with the kinds of parameters: `/orders/{pk:int}/`."""
    if _NAMED_GROUP.search(route) or route.startswith("^") or route.endswith("$"):
        route = _without_patterns(route)
    return "/" + _CONVERTER.sub(
        lambda found: "{" + ":".join(filter(None, found.group(2, 1))) + "}", route
    ).lstrip("/")


def _without_patterns(route: str) -> str:
    """A regular expression as a template: groups by their names, and nothing that only anchors."""
    found: list[str] = []
    depth, name, begin = 0, "", 0
    position = 0
    while position < len(route):
        char = route[position]
        if char == "\\" and position + 1 < len(route):
            following = route[position + 1]
            if not depth and not following.isalnum():
                found.append(following)
            position += 2
            continue
        if char == "(":
            if not depth:
                named = _NAMED_GROUP.match(route, position)
                name, begin = named[1] if named is not None else "value", position
            depth += 1
        elif char == ")":
            depth -= 1
            if not depth:
                # One that takes slashes may be a path.
                kind = "path:" if re.search(r"\.[*+]|/", route[begin:position]) else ""
                found.append(f"<{kind}{name}>")
        elif not depth and char not in "^$?":
            found.append(char)
        position += 1
    return "".join(found)


def views(urlconf: Any = None) -> Iterator[View]:  # noqa: ANN401 - whatever Django takes
    """Every view by every method that it takes and that changes something."""
    yield from _below(get_resolver(urlconf).url_patterns, "", ())


def _below(patterns: Any, prefix: str, namespaces: tuple[str, ...]) -> Iterator[View]:  # noqa: ANN401 - untyped
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            inner = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            for own in _written(pattern.pattern):
                yield from _below(pattern.url_patterns, _joined(prefix, own), inner)
        elif isinstance(pattern, URLPattern):
            name = ":".join((*namespaces, pattern.name)) if pattern.name else ""
            callback, route = pattern.callback, _joined(prefix, str(pattern.pattern))
            for method in methods_of(callback):
                function = function_of(callback, method)
                yield View(template(route), method, callback, function, name, typed(route))


def _joined(prefix: str, route: str) -> str:
    """As resolvers join them."""
    return prefix + (route.removeprefix("^") if prefix else route)


def _written(pattern: object) -> Sequence[str]:
    """What routes below an `include` begin with: a language, and for the default one perhaps nothing."""
    if not isinstance(pattern, LocalePrefixPattern) or not settings.USE_I18N:
        return [str(pattern)]
    return ["<language>/"] if pattern.prefix_default_language else ["<language>/", ""]


def methods_of(callback: Any) -> tuple[str, ...]:  # noqa: ANN401 - any callable
    """The methods that a view takes, as far as it says so, of those that change something."""
    said = said_methods(callback)
    return MUTATING if said is None else tuple(method for method in MUTATING if method in said)


def said_methods(callback: Any) -> Collection[str] | None:  # noqa: ANN401 - any callable
    """The methods that a view says that it takes; `None`: it does not say, so it is called for any."""
    actions: dict[str, str] | None = getattr(callback, "actions", None)
    if actions:
        return [method.upper() for method in actions]
    of_class = class_of(callback)
    if of_class is not None:
        names: list[str] = getattr(of_class, "http_method_names", [])
        return [name.upper() for name in names if hasattr(of_class, name)]
    operations = operations_of(callback)
    if operations is not None:
        return [method for operation in operations for method in operation.methods]
    return _required_methods(callback)


def _required_methods(callback: Any) -> list[str] | None:  # noqa: ANN401 - any callable
    """What `require_POST` and `require_http_methods` say, which leave it nowhere but in their closures."""
    while callback is not None:
        found: list[str] | None = _enclosed(callback, "request_method_list")
        if found is not None:
            return found
        callback = getattr(callback, "__wrapped__", None)
    return None


def _enclosed(function: Any, name: str) -> Any:  # noqa: ANN401 - whatever it is
    """What a function has of this name from where it was made."""
    code = getattr(function, "__code__", None)
    if code is None or name not in code.co_freevars:
        return None
    try:
        return function.__closure__[code.co_freevars.index(name)].cell_contents
    except ValueError:  # not there yet
        return None


def class_of(callback: Any) -> type[Any] | None:  # noqa: ANN401 - any callable
    """The class of a class-based view, Django's or REST framework's."""
    while callback is not None:
        found: object = getattr(callback, "view_class", None) or getattr(callback, "cls", None)
        if isinstance(found, type):
            return found
        # A decorator around `as_view()`, which may leave out what it stands around has.
        callback = getattr(callback, "__wrapped__", None)
    return None


def operations_of(callback: Any) -> Sequence[Any] | None:  # noqa: ANN401 - any callable
    """What ninja calls, by the methods of each; `None`: it is no view of ninja's."""
    while callback is not None:
        holder: Any
        for holder in (getattr(callback, "__self__", None), _enclosed(callback, "self")):
            if type(holder).__module__ == "ninja.operation":
                found: list[Any] = holder.operations
                return found
        callback = getattr(callback, "__wrapped__", None)
    return None


def operation_of(callback: Any, method: str) -> Any:  # noqa: ANN401 - any callable, and an operation of ninja's
    """What ninja calls by a method; `None` where it is another framework's."""
    return next((one for one in operations_of(callback) or () if method in one.methods), None)


def function_of(callback: Any, method: str) -> Any:  # noqa: ANN401 - any callable
    """What a view calls by a method: of a class its method, or the action that is bound to it."""
    of_class = class_of(callback)
    if of_class is None:
        operation = operation_of(callback, method)
        return callback if operation is None else operation.view_func
    actions: dict[str, str] = getattr(callback, "actions", None) or {}
    found = getattr(of_class, actions.get(method.lower(), method.lower()), None)
    if found is None:
        return callback
    # `@api_view` makes a class of a function, whose methods do not say which one.
    if getattr(found, "__qualname__", "").startswith("api_view.<locals>"):
        return _enclosed(found, "func") or found
    return found


def functions_of(callback: Any, method: str) -> Iterator[Any]:  # noqa: ANN401 - any callable
    """What may carry a mark, from the outside in: what Django calls, what that calls, and what dispatches."""
    yield callback
    function = function_of(callback, method)
    if function is not callback:
        yield function
    of_class = class_of(callback)
    if of_class is None:
        return
    yield from called_by(of_class, function)
    if (dispatch := getattr(of_class, "dispatch", None)) is not None:
        yield dispatch
    from retrysafe.django.views import IdempotentMixin, protected_method  # which knows the routes

    if (
        issubclass(of_class, IdempotentMixin)
        and method in MUTATING
        and function is not callback
        and exempt_reason(function) is None
    ):
        yield protected_method(of_class, function)


_CALLS = {
    "post": "create",
    "put": "update",
    "patch": "partial_update",
    "partial_update": "update",
    "delete": "destroy",
}


def called_by(of_class: type[Any], function: Any) -> Iterator[Any]:  # noqa: ANN401 - any callable
    """What a method of REST framework's generic views calls, which a project overrides and decorates."""
    while getattr(function, "__module__", "") in ("rest_framework.generics", "rest_framework.mixins"):
        function = getattr(of_class, _CALLS.get(function.__name__, ""), None)
        if function is None:
            return
        yield function


def mark_of(callback: Any, method: str, guard: Guard) -> Marked | None:  # noqa: ANN401 - any callable
    """What holds for a view by a method; `None` where no decorator and no mixin protects it."""
    return bound(_mark(callback, method), guard)


def is_of_framework(callback: Any, method: str) -> bool:  # noqa: ANN401 - any callable
    """Whether it is a view of Django's own that needs no protection, and not one of the project's."""
    if hasattr(callback, "model_admin") or hasattr(callback, "admin_site"):
        return True
    of_class, function = class_of(callback), function_of(callback, method)
    while (inner := getattr(function, "__wrapped__", None) or getattr(function, "func", None)) is not None:
        function = inner
    module: str = getattr(function, "__module__", None) or ""
    if module == _REDIRECTS:
        return True
    return (module if of_class is None else of_class.__module__).startswith(_KNOWN)


_KNOWN = (
    "django.contrib.",
    "django.views.defaults",
    "django.views.i18n",
    "ninja.openapi.",
    "rest_framework.authtoken.",
)
"""Whose views change nothing twice: logins, passwords, the choice of a language."""

_REDIRECTS = "django.views.generic.base"


def claims(callback: Any, method: str) -> bool:  # noqa: ANN401 - any callable
    """Whether a view claims keys itself by this method."""
    return _mark(callback, method) is not None


def receives(callback: Any, method: str) -> bool:  # noqa: ANN401 - any callable
    """Whether a view takes deliveries of events by this method."""
    return any(is_receiving(function) for function in functions_of(callback, method))


def _mark(callback: Any, method: str) -> Any:  # noqa: ANN401 - a mark
    return next((mark for one in functions_of(callback, method) if (mark := find_mark(one))), None)


def authorises_itself(callback: Any, method: str) -> bool:  # noqa: ANN401 - any callable
    """Whether an API asks itself who may do what: after every middleware, and so after a replay by one."""
    operation = operation_of(callback, method)
    if operation is not None:
        return bool(operation.auth_callbacks)
    of_class = class_of(callback)
    return of_class is not None and any(
        f"{base.__module__}.{base.__qualname__}" == "rest_framework.views.APIView"
        for base in of_class.__mro__
    )


def asks_permission(callback: Any, method: str) -> Literal["login", "permission"] | None:  # noqa: ANN401 - any callable
    """What a view asks itself before it runs, by Django's own mixins and decorators."""
    of_class = class_of(callback)
    if of_class is not None:
        bases = {
            base.__name__ for base in of_class.__mro__ if base.__module__ == "django.contrib.auth.mixins"
        }
        if bases - {"AccessMixin", "LoginRequiredMixin"}:
            return "permission"
        if "LoginRequiredMixin" in bases:
            return "login"
        if "AccessMixin" in bases:
            return "permission"
    asked = {
        "login" if getattr(test, "__qualname__", "").startswith("login_required") else "permission"
        for function in functions_of(callback, method)
        for test in _tests(function)
    }
    return "permission" if "permission" in asked else "login" if asked else None


def _tests(function: Any) -> Iterator[object]:  # noqa: ANN401 - any callable
    """What the decorators around a function ask of the user: they leave it in their closures."""
    while function is not None:
        if (test := _enclosed(function, "test_func")) is not None:
            yield test
        # Those of `method_decorator`.
        found: object = _enclosed(function, "decorators")
        one: Any
        for one in cast("Sequence[object]", found) if isinstance(found, list | tuple) else (found,):
            name, module = getattr(one, "__name__", ""), getattr(one, "__module__", "")
            if module == "django.contrib.auth.decorators" and name != "login_not_required":
                yield _enclosed(one, "test_func") or one
        function = getattr(function, "__wrapped__", None)


AUTHORISES_ITSELF = (
    "{0} {1} is covered by RETRYSAFE['PATHS'], and its authentication and permissions are asked after the "
    "middleware has claimed: a replay would come before them. Put @idempotent on the view, next to the "
    "function, or say RETRYSAFE['REAUTHORISE']"
)


def protected(guard: Guard) -> Iterator[Protected]:
    """What is published: every view that claims keys with this guard."""
    for view in views():
        found = mark_of(view.callback, view.method, guard)
        if found is not None and found.guard is guard and view.method in found.rules.wire.methods:
            yield Protected(view.path, found.rules, frozenset({view.method}))
