"""Which mutating routes of an application are protected, and which are not: in CI, and before an incident.

    coverage = examine(app)
    for route in coverage.unprotected: ...

`retrysafe routes shop:app` prints the same, and `retrysafe.testing.assert_protected(app)` asserts it.  No
request is made and no store is opened: what is read is the application as it was built.

A route that is meant to be unprotected says so, and why:

    @app.post("/login")
    @exempt("a second login does no harm")
    def login() -> Token: ...
"""

from collections.abc import Callable
from inspect import isclass
from typing import TypeVar

from retrysafe._http.marked import mark_exempt
from retrysafe.coverage.model import Coverage, Finding, Protection, Route, State
from retrysafe.errors import ConfigurationError

__all__ = ["Coverage", "Finding", "Protection", "Route", "State", "examine", "exempt"]

F = TypeVar("F", bound=Callable[..., object])


def examine(app: object) -> Coverage:
    """List the mutating routes of an application of FastAPI's, Starlette's, Flask's or Django's.

    Of any other ASGI or WSGI application, what the middlewares around it say of paths.
    """
    from retrysafe.coverage.judge import judge  # applications that only mark their routes need no adapter

    return judge(app)


def exempt(reason: str) -> Callable[[F], F]:
    """Say of an endpoint that it is meant to be unprotected, and why.  It is left as it is."""
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigurationError(
            f'@exempt was given {reason!r}: say why the route is unprotected, as in @exempt("sends no money")'
        )

    def decorate(function: F) -> F:
        if isclass(function):
            raise ConfigurationError(
                f"@exempt was put on the class {function.__qualname__}: put it on its methods, such as post"
            )
        mark_exempt(function, reason.strip())
        return function

    return decorate
