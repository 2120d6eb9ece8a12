"""Which requests concern a guard, and under which rules.

Everything else passes through untouched, and most requests do, so this is asked with as little as possible.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from retrysafe._core.model import Request, Response
from retrysafe.errors import ConfigurationError
from retrysafe.policy import Options, Paths, Rules

Matcher = Callable[[str], bool]

_TEMPLATE = re.compile("[{}<>]|/:")
"""Signs of a framework's own route patterns, which are not understood here."""


class Route(NamedTuple):
    """Rules for the paths that match; the first match counts."""

    path: str
    """As it was given; empty for requests that no route was given for."""
    matches: Matcher
    rules: Rules


class OnKeyless(Protocol):
    """Is called for a request without a key, on a route that takes keys but does not require them."""

    def __call__(self, action: str, target: str, route: str, *, warn: bool) -> None: ...


class Routes:
    def __init__(
        self,
        compile_rules: Callable[[Options], Rules],
        on_keyless: OnKeyless,
        paths: Paths | None,
        routes: Mapping[str, Options] | None,
    ) -> None:
        self.rules = compile_rules({})
        self._on_keyless = on_keyless
        self.paths = paths
        self._selected = any_of(paths) if paths is not None else None
        self.otherwise = Route("", any_path, self.rules)
        self.routes = [
            Route(path, any_of([path]), compile_rules(options)) for path, options in (routes or {}).items()
        ]
        wire = self.rules.wire
        self._methods = wire.methods
        self._key = self.rules.names.key
        self._specification = wire.specification if wire.specification.startswith("/") else None

    @property
    def patterns(self) -> list[str]:
        """The paths and prefixes that it was given; not what a function selects."""
        selected = () if self.paths is None or callable(self.paths) else self.paths
        return [*(route.path for route in self.routes), *selected]

    def publishes(self, method: str, path: str) -> bool:
        """Whether this asks for the specification that we serve."""
        return path == self._specification and method in ("GET", "HEAD")

    def specification(self, request: Request, routes: Mapping[str, Rules] | None = None) -> Response:
        """What this service promises, as it is in force; `routes` are those that say so themselves."""
        from retrysafe._http import specification  # seldom asked for

        if routes is None:
            routes = {route.path: route.rules for route in self.routes}
        return specification.respond(request, self.rules, routes)

    def match(self, method: str, path: str, fields: Mapping[bytes, bytes]) -> Route | None:
        """The route of a request that concerns us; `None`: it passes through."""
        # Some frameworks take `post` for POST, so we must.
        if method not in self._methods and method.upper() not in self._methods:
            return None
        if self._selected is not None and not self._selected(path):
            return None
        found = self.otherwise
        for route in self.routes:
            if route.matches(path):
                found = route
                break
        if self._key in fields:
            return found
        required = found.rules.request.required
        if required is True:
            return found
        self._on_keyless(method, path, found.path, warn=required == "warn")
        return None


def any_path(_: str) -> bool:
    return True


def any_of(paths: Paths) -> Matcher:
    """Exact paths, prefixes written as `/api/*`, or a function of the path."""
    if callable(paths):
        return paths
    if isinstance(paths, str):
        raise ConfigurationError(f"paths={paths!r} is one string: expected a list, like [{paths!r}]")
    for path in paths:
        if not path.startswith("/") or "*" in path[:-1] or _TEMPLATE.search(path):
            raise ConfigurationError(
                f'{path!r} is not a valid path: expected "/orders" for one path, "/orders/*" for all below it'
            )
    exact = {path.rstrip("/") for path in paths if not path.endswith("*")}
    prefixes = tuple(path[:-1] for path in paths if path.endswith("*"))
    # Frameworks serve `/orders/` as `/orders`, some by default: it must not slip past.
    return lambda path: path.rstrip("/") in exact or path.startswith(prefixes)
