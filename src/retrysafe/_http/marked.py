"""Endpoints that a decorator protects, as everything outside of the call reads them.

A decorator compiles its rules and leaves them on the function it returns, where the coverage audit, the
OpenAPI document and the published specification find them.  One that is given no guard leaves what compiles
them, because it is the application that says whose guard it is.  What is meant to be unprotected carries its
reason in the same way.
"""

from collections.abc import Callable, Iterable
from inspect import getattr_static, unwrap
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from retrysafe.policy import Rules

_ATTRIBUTE = "__retrysafe__"
_EXEMPT = "__retrysafe_exempt__"

T = TypeVar("T")


class Marked(NamedTuple):
    """What holds for a protected endpoint."""

    rules: Rules
    guard: object
    """The `Guard` whose rules they are."""


class Unbound(NamedTuple):
    """What holds for an endpoint that is protected by the guard of whichever application serves it."""

    compile: Callable[[Any], Rules]
    """Its rules, of a `Guard`."""


def mark(function: object, mark: Marked | Unbound) -> None:
    """Leave on an endpoint what holds for it."""
    setattr(function, _ATTRIBUTE, mark)
    guard = mark.guard if isinstance(mark, Marked) else Unbound
    _decorated.setdefault(_innermost(function), WeakSet()).add(guard)


_decorated: WeakKeyDictionary[object, WeakSet[object]] = WeakKeyDictionary()
"""Functions below a decorator of ours, and the guards that it was given; `Unbound` for none."""


def bare(function: object, guard: object, endpoints: Iterable[object]) -> object | None:
    """The function of an endpoint that is not protected, though it was decorated: its decorator stands above.

    By the guard of its application: for another one it may be meant to be protected elsewhere, as it is where
    `endpoints` have its mark.
    """
    if not callable(function) or find_mark(function) is not None:
        return None
    inner = _innermost(function)
    guards = _decorated.get(inner, ())
    if guard not in guards and Unbound not in guards:
        return None
    if any(find_mark(other) is not None and _innermost(other) is inner for other in endpoints):
        return None
    return inner


ABOVE = (
    "{} serves {} without its @idempotent, which stands above the decorator of the route, where the "
    "framework does not see it: put @idempotent below, next to the function"
)


def _innermost(function: object) -> object:
    return unwrap(function) if callable(function) else function


def marked(function: object, guard: object = None) -> Marked | None:
    """What holds for an endpoint, in an application with this guard; `None` if no decorator protects it."""
    return bound(find_mark(function), guard)


def bound(mark: Marked | Unbound | None, guard: object) -> Marked | None:
    """What a mark means in an application with this guard."""
    if isinstance(mark, Unbound):
        return None if guard is None else Marked(mark.compile(guard), guard)
    return mark


def find_mark(function: object) -> Marked | Unbound | None:
    """What a decorator has left on an endpoint."""
    return _find(function, _ATTRIBUTE, Marked) or _find(function, _ATTRIBUTE, Unbound)


def mark_exempt(function: object, reason: str) -> None:
    """Leave on an endpoint why it is unprotected."""
    setattr(function, _EXEMPT, reason)


def exempt_reason(function: object) -> str | None:
    """Why an endpoint is meant to be unprotected; `None` if it does not say so."""
    return _find(function, _EXEMPT, str)


def _find(function: object, attribute: str, kind: type[T]) -> T | None:
    while function is not None:
        found = getattr(function, attribute, None)
        if isinstance(found, kind):
            return found
        # What stands around it: a partial, a bound method, or another decorator.  Only what is really there:
        # a double that tests use has every attribute, and inside of each another one.
        function = next(
            (
                getattr(function, name)
                for name in ("func", "__func__", "__wrapped__")
                if getattr_static(function, name, None) is not None
            ),
            None,
        )
    return None
