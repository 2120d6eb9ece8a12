"""What an examination finds, as values.  Everything that shows or asserts it starts from these."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from retrysafe import scopes
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.policy import Required, Rules

State = Literal["required", "warn", "optional", "exempt", "unprotected"]
"""What a request without a key meets: it is refused, served and logged, or served.  The last two have no
protection at all."""

By = Literal["@idempotent", "asgi.Middleware", "wsgi.Middleware", "django.Middleware"]

SAFE = frozenset("GET HEAD OPTIONS TRACE QUERY PROPFIND REPORT SEARCH".split())
"""Methods that change nothing (RFC 9110, section 9.2.1, and the registry of methods): nothing to protect.
Any other method counts as mutating, known or not."""

UNLISTED = ("POST", "PUT", "PATCH", "DELETE")
"""What is assumed of applications whose routes cannot be read."""


class Protection(NamedTuple):
    """What claims the keys of a route."""

    by: By
    guard: Guard
    rules: Rules
    required: Required

    @property
    def scope(self) -> str:
        return scopes.describe(self.rules.request.scope)


class Route(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    """As the framework writes it; where an application's routes cannot be read, a prefix such as `/old/*`."""
    endpoint: str
    """The function that serves it, by its module and name."""
    protection: Protection | None
    remark: str = ""
    """Why it is not protected, or what else is to be known."""
    exempt: str | None = None
    """Why it is meant to be unprotected, where that was said."""
    host: str = ""
    """Where it is served on one host only."""

    @property
    def state(self) -> State:
        if self.protection is None:
            return "unprotected" if self.exempt is None else "exempt"
        if self.protection.required == "warn":
            return "warn"
        return "required" if self.protection.required else "optional"

    @property
    def name(self) -> str:
        return f"{self.method} {self.host}{self.path}"

    def __str__(self) -> str:
        return self.name


class Finding(NamedTuple):
    """Something about the whole that does not work, or not as it seems."""

    check: str
    level: Literal["problem", "warning", "note"]
    """A problem does not work, a warning works in another way than it reads, a note says what is unknown."""
    found: str
    advice: str = ""
    routes: tuple[str, ...] = ()
    """Those that it is about."""

    def __str__(self) -> str:
        about = f"{enumerated(self.routes)}: " if self.routes else ""
        return f"{about}{self.found} {self.advice}".rstrip()


class Coverage(NamedTuple):
    """The mutating routes of an application, in its own order, and what was found besides."""

    routes: tuple[Route, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def unprotected(self) -> tuple[Route, ...]:
        """Those that nothing protects and that were not exempted."""
        return tuple(route for route in self.routes if route.state == "unprotected")

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Each guard that protects a route, once."""
        found = {id(one.protection.guard): one.protection.guard for one in self.routes if one.protection}
        return tuple(found.values())

    def excepting(self, exemptions: Iterable[str]) -> "Coverage":
        """The same with routes exempted: `"/login"`, `"/internal/*"` or `"POST /login"`.

        An exemption without an unprotected route is a problem: it would hide a route that comes later.
        """
        if isinstance(exemptions, str):
            raise ConfigurationError(f"{exemptions!r} is one string: expected a list, like [{exemptions!r}]")
        routes, findings = list(self.routes), list(self.findings)
        for given in exemptions:
            method, path = _exemption(given)
            matched = [
                index
                for index, route in enumerate(self.routes)
                if route.protection is None and method in (None, route.method) and _is_at(path, route)
            ]
            for index in matched:
                routes[index] = routes[index]._replace(exempt=routes[index].exempt or f"excepted by {given}")
            if not matched:
                findings.append(
                    Finding(
                        "exemption",
                        "problem",
                        f"{given!r} exempts no route: there is no unprotected one of that path.",
                        "Correct it, or remove it.",
                    )
                )
        return Coverage(tuple(routes), by_level(findings))

    def complaints(self) -> list[str]:
        """What a team that wants each route protected or exempted has to look at, in sentences."""
        routes = [
            f"{route.name} ({route.endpoint}) is not protected: {route.remark}" for route in self.unprotected
        ]
        return [*routes, *(str(finding) for finding in self.findings if finding.level == "problem")]


def by_level(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What does not work first."""
    return tuple(sorted(findings, key=lambda finding: ("problem", "warning", "note").index(finding.level)))


def enumerated(names: Sequence[str], most: int = 10) -> str:
    """`POST /a, PUT /b and 3 others`."""
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} others"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def _exemption(given: object) -> tuple[str | None, str]:
    """Method and path."""
    text = given.strip() if isinstance(given, str) else ""
    method, _, path = ("", "", text) if text.startswith("/") else text.partition(" ")
    if not path.startswith("/") or method != method.upper():
        raise ConfigurationError(
            f"{given!r} is not a valid exemption: expected a path as the application writes it, such as "
            "/login or /orders/{id}, a prefix such as /internal/*, or a method and one of these: POST /login"
        )
    return method or None, path


def _is_at(path: str, route: Route) -> bool:
    if path == route.path:
        return True
    if path.endswith("*"):
        return route.path.startswith(path[:-1])
    return path.rstrip("/") == route.path.rstrip("/")
