"""The routes of a project: which views there are, by which methods, and what holds for each."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.urls import URLPattern, URLResolver, get_resolver

from retrysafe._http.marked import Marked, bound, find_mark, is_receiving
from retrysafe._http.routes import Protected
from retrysafe.guard import Guard

MUTATING = ("POST", "PUT", "PATCH", "DELETE")

_CONVERTER = re.compile(r"<(?:[^>:]+:)?([^>]+)>")
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


def route_of(request: HttpRequest) -> str:
    """The template of a request's route."""
    match = request.resolver_match
    return "" if match is None else template(match.route)


@lru_cache(maxsize=1024)
def template(route: str) -> str:
    """`orders/<int:pk>/` or `^orders/(?P<pk>\\\\d+)/$` as `/orders/{pk}/`."""
    if _NAMED_GROUP.search(route) or route.startswith("^") or route.endswith("$"):
        route = _without_patterns(route)
    return "/" + _CONVERTER.sub(r"{\1}", route).lstrip("/")


def _without_patterns(route: str) -> str:
    """A regular expression as a template: groups by their names, and nothing that only anchors."""
    found: list[str] = []
    depth, name = 0, ""
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
                name = named[1] if named is not None else "value"
            depth += 1
        elif char == ")":
            depth -= 1
            if not depth:
                found.append(f"<{name}>")
        elif not depth and char not in "^$?":
            found.append(char)
        position += 1
    return "".join(found)


def views(urlconf: str | None = None) -> Iterator[View]:
    """Every view by every method that it takes and that changes something."""
    yield from _below(get_resolver(urlconf).url_patterns, "", ())


def _below(patterns: Any, prefix: str, namespaces: tuple[str, ...]) -> Iterator[View]:  # noqa: ANN401 - untyped
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from _below(pattern.url_patterns, route, inner)
        elif isinstance(pattern, URLPattern):
            name = ":".join((*namespaces, pattern.name)) if pattern.name else ""
            callback = pattern.callback
            for method in methods_of(callback):
                yield View(template(route), method, callback, function_of(callback, method), name)


def methods_of(callback: Any) -> tuple[str, ...]:  # noqa: ANN401 - any callable
    """The methods that a view takes, as far as it says so, of those that change something."""
    actions: dict[str, str] | None = getattr(callback, "actions", None)
    if actions:
        return tuple(method for method in MUTATING if method.lower() in actions)
    of_class = class_of(callback)
    if of_class is not None:
        names: list[str] = getattr(of_class, "http_method_names", [])
        return tuple(
            method for method in MUTATING if method.lower() in names and hasattr(of_class, method.lower())
        )
    said = _required_methods(callback)
    return MUTATING if said is None else tuple(method for method in MUTATING if method in said)


def _required_methods(callback: Any) -> list[str] | None:  # noqa: ANN401 - any callable
    """What `require_POST` and `require_http_methods` say, which leave it nowhere but in their closures."""
    while callback is not None:
        code = getattr(callback, "__code__", None)
        cells = getattr(callback, "__closure__", None) or ()
        if code is not None and "request_method_list" in code.co_freevars:
            found: list[str] = cells[code.co_freevars.index("request_method_list")].cell_contents
            return found
        callback = getattr(callback, "__wrapped__", None)
    return None


def class_of(callback: Any) -> type[Any] | None:  # noqa: ANN401 - any callable
    """The class of a class-based view, Django's or REST framework's."""
    found: type[Any] | None = getattr(callback, "view_class", None) or getattr(callback, "cls", None)
    return found


def function_of(callback: Any, method: str) -> Any:  # noqa: ANN401 - any callable
    """What a view calls by a method: of a class its method, or the action that is bound to it."""
    of_class = class_of(callback)
    if of_class is None:
        return callback
    actions: dict[str, str] = getattr(callback, "actions", None) or {}
    found = getattr(of_class, actions.get(method.lower(), method.lower()), None)
    return callback if found is None else found


def mark_of(callback: Any, method: str, guard: Guard) -> Marked | None:  # noqa: ANN401 - any callable
    """What holds for a view by a method; `None` where no decorator and no mixin protects it."""
    return bound(_mark(callback, method), guard)


def claims(callback: Any, method: str) -> bool:  # noqa: ANN401 - any callable
    """Whether a view claims keys itself by this method."""
    return _mark(callback, method) is not None


def receives(callback: Any, method: str) -> bool:  # noqa: ANN401 - any callable
    """Whether a view takes deliveries of events by this method."""
    of_class = class_of(callback)
    functions = [callback, function_of(callback, method), getattr(of_class, "dispatch", None)]
    return any(is_receiving(function) for function in functions)


def _mark(callback: Any, method: str) -> Any:  # noqa: ANN401 - a mark
    found = find_mark(callback)
    if found is not None:
        return found
    of_class = class_of(callback)
    if of_class is None:
        return None
    function = function_of(callback, method)
    for one in (function, getattr(of_class, "dispatch", None)):
        if one is not None and (found := find_mark(one)) is not None:
            return found
    from retrysafe.django.views import IdempotentMixin, protected_method  # which knows the routes

    if issubclass(of_class, IdempotentMixin) and method in MUTATING and function is not callback:
        return find_mark(protected_method(of_class, function))
    return None


def protected(guard: Guard) -> Iterator[Protected]:
    """What is published: every view that claims keys with this guard."""
    for view in views():
        found = mark_of(view.callback, view.method, guard)
        if found is not None and found.guard is guard and view.method in found.rules.wire.methods:
            yield Protected(view.path, found.rules, frozenset({view.method}))
