"""Endpoints that a decorator protects, as everything outside of the call reads them.

A decorator compiles its rules when it is built and leaves them on the function it returns, where the coverage
audit, the OpenAPI document and the published specification find them.
"""

from typing import NamedTuple

from retrysafe.policy import Rules

_ATTRIBUTE = "__retrysafe__"


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
    while function is not None:
        found = getattr(function, _ATTRIBUTE, None)
        if isinstance(found, Marked):
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
