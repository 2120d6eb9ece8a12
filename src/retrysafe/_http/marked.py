"""Endpoints that a decorator protects, as everything outside of the call reads them.

A decorator compiles its rules when it is built and leaves them on the function it returns, where the coverage
audit, the OpenAPI document and the published specification find them.  What is meant to be unprotected
carries its reason in the same way.
"""

from inspect import getattr_static
from typing import NamedTuple, TypeVar

from retrysafe.policy import Rules

_ATTRIBUTE = "__retrysafe__"
_EXEMPT = "__retrysafe_exempt__"

T = TypeVar("T")


class Marked(NamedTuple):
    """What holds for a protected endpoint."""

    rules: Rules
    guard: object
    """The `Guard` whose rules they are."""


def mark(function: object, rules: Rules, guard: object) -> None:
    """Leave the rules on an endpoint."""
    setattr(function, _ATTRIBUTE, Marked(rules, guard))


def marked(function: object) -> Marked | None:
    """The rules of an endpoint; `None` if no decorator protects it."""
    return _find(function, _ATTRIBUTE, Marked)


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
