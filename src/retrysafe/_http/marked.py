"""Endpoints that a decorator protects, as everything outside of the call reads them.

A decorator compiles its rules and leaves them on the function it returns, where the coverage audit, the
OpenAPI document and the published specification find them.  One that is given no guard leaves what compiles
them, because it is the application that says whose guard it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from retrysafe.policy import Rules

_ATTRIBUTE = "__retrysafe__"


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


def marked(function: object, guard: object = None) -> Marked | None:
    """What holds for an endpoint, in an application with this guard; `None` if no decorator protects it."""
    found = find_mark(function)
    if isinstance(found, Unbound):
        return None if guard is None else Marked(found.compile(guard), guard)
    return found


def find_mark(function: object) -> Marked | Unbound | None:
    """What a decorator has left on an endpoint."""
    while function is not None:
        found = getattr(function, _ATTRIBUTE, None)
        if isinstance(found, Marked | Unbound):
            return found
        # What stands around it: a partial, a bound method, or another decorator.
        function = next(
            (
                inner
                for name in ("func", "__func__", "__wrapped__")
                if (inner := getattr(function, name, None))
            ),
            None,
        )
    return None
