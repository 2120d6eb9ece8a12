"""Which requests concern a guard, and under which rules.

Everything else passes through untouched, and most requests do, so this is asked with as little as possible.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from retrysafe import scopes
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


class Protected(NamedTuple):
    """Rules for a path, as they are published."""

    path: str
    """One path, `/orders/*` for all below it, or a framework's template."""
    rules: Rules
    methods: frozenset[str] | None = None
    """`None`: all that the wire covers."""


class Published(NamedTuple):
    """What is in force, for the specification that a service publishes."""

    rules: Rules
    """Of requests that no route is given for; of the guard, where there are none."""
    paths: tuple[str, ...] | None
    """Where these hold; `None`: everywhere that no route is given for."""
    routes: tuple[Protected, ...] = ()
    unnamed: bool = False
    """`paths` are chosen by a function of the application's, and cannot be listed."""
    endpoints: bool = False
    """Only `routes` take keys, and claim them after authentication and validation."""


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
        # Where the keys are a service's own, no client of it is promised anything.
        has_clients = scopes.of_service(self.rules.request.scope) is None
        self._specification = wire.specification if has_clients and wire.specification[0] == "/" else None
        self._covered: Published | None = None

    @property
    def patterns(self) -> list[str]:
        """The paths and prefixes that it was given; not what a function selects."""
        selected = () if self.paths is None or callable(self.paths) else self.paths
        return [*(route.path for route in self.routes), *selected]

    def publishes(self, method: str, path: str) -> bool:
        """Whether this asks for the specification that we serve."""
        return path == self._specification and method in ("GET", "HEAD")

    def specification(self, request: Request, endpoints: Iterable[Protected] | None = None) -> Response:
        """What this service promises, as it is in force; `endpoints` are those that claim keys themselves."""
        from retrysafe._http import publish  # seldom asked for

        return publish.respond(request, self.published(endpoints))

    def published(self, endpoints: Iterable[Protected] | None = None) -> Published:
        """What is in force: of routes that shadow one another, only those that a request can reach."""
        if endpoints is not None:
            return Published(self.rules, (), tuple(endpoints), endpoints=True)
        if self._covered is None:
            self._covered = self._reachable()
        return self._covered

    def _reachable(self) -> Published:
        paths = self.paths
        seen = _Patterns()
        found: list[Protected] = []
        for route in self.routes:
            # Of a route that is only partly covered, that part.
            parts = [route.path] if paths is None or callable(paths) else _meet(route.path, paths)
            if callable(paths) and not route.path.endswith("*") and not paths(route.path):
                parts = []
            found += [Protected(part, route.rules) for part in parts if not seen.cover(part)]
            seen.add(route.path)
        given = () if callable(paths) else ("/*",) if paths is None else tuple(paths)
        rest = tuple(path for path in given if not seen.cover(path))
        everywhere = paths is None and rest != ()
        return Published(self.rules, None if everywhere else rest, tuple(found), unnamed=callable(paths))

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


class _Patterns:
    """Paths and prefixes, and whether they leave anything of another one."""

    def __init__(self) -> None:
        self._exact: set[str] = set()
        self._prefixes: tuple[str, ...] = ()

    def add(self, pattern: str) -> None:
        if not pattern.endswith("*"):
            self._exact.add(pattern.rstrip("/"))
        elif not self.cover(pattern):
            self._prefixes = (*self._prefixes, pattern[:-1])

    def cover(self, pattern: str) -> bool:
        """Whether each path of this pattern has one of those before it."""
        if pattern.endswith("*"):
            return pattern[:-1].startswith(self._prefixes)
        return pattern.rstrip("/") in self._exact or pattern.startswith(self._prefixes)


def _meet(pattern: str, others: Sequence[str]) -> list[str]:
    """What a pattern has in common with each of several others."""
    found: list[str] = []
    for other in others:
        # A path is in a prefix, and of two prefixes the longer one in the shorter.
        for inner, outer in ((pattern, other), (other, pattern)):
            within = _Patterns()
            within.add(outer)
            if within.cover(inner):
                found.append(inner)
                break
    return list(dict.fromkeys(found))
