"""Whose key it is, in the words of a Django project: all of `retrysafe.scopes`, and

    scopes.organisation("accounts.scopes.organisation_of")   the organisation that a function of yours finds
    scopes.endpoint                                          the route, by the name of its view

A function of yours is called with Django's request.  It may be given by its dotted path, which is imported
when it is first needed, because settings cannot import models.
"""

from collections.abc import Callable
from typing import Any, cast

from django.http import HttpRequest
from django.utils.module_loading import import_string

from retrysafe import scopes as general
from retrysafe._core.model import Request, Scope
from retrysafe.django.guarded.coroutines import is_awaited
from retrysafe.errors import ConfigurationError
from retrysafe.scopes import (
    ReadyMade,
    ScopeAnswer,
    ScopeRule,
    argument,
    credentials,
    header,
    public,
    service,
    user,
)

__all__ = [
    "all_of",
    "argument",
    "credentials",
    "endpoint",
    "first_of",
    "header",
    "organisation",
    "public",
    "service",
    "user",
]


ScopeOption = ScopeRule | Callable[[HttpRequest], ScopeAnswer] | str
"""A ready-made rule, a function of Django's request, or its dotted path."""


class OfRequest(ReadyMade):
    """A function of Django's request."""

    __slots__ = ("_found", "_function", "_part")

    def __init__(self, function: Callable[[HttpRequest], Any] | str, part: str | None = None) -> None:
        self._function = function
        self._part = part
        """What its answer is called; `None`: it says so itself."""
        self._found: Callable[[HttpRequest], Any] | None = None if isinstance(function, str) else function

    @property
    def function(self) -> Callable[[HttpRequest], Any]:
        if self._found is None:
            self._found = imported("a scope", str(self._function))
        return self._found

    def find(self, request: Request) -> Scope | None:
        if is_awaited(self.function):
            raise ConfigurationError(
                f"the scope {self.describe()} is asynchronous: make it a plain function. Under ASGI it is "
                "called in a thread, so that it may use the ORM"
            )
        answer: ScopeAnswer = self.function(request.native)  # type: ignore[arg-type]  # Django's
        if self._part is None:
            return general.resolve(answer)
        return general.resolve(None if answer is None else {self._part: str(answer)})

    def describe(self) -> str:
        name = self._function if isinstance(self._function, str) else _name(self._function)
        return f"what {name} returns"

    def blocks(self) -> bool:
        """It may use the ORM."""
        return True


class _Endpoint(ReadyMade):
    """The route: a key of one endpoint is another one at the next."""

    __slots__ = ()

    def find(self, request: Request) -> Scope | None:
        match: Any = getattr(request.native, "resolver_match", None)
        # By a middleware, which comes before the route, the path.
        # Public, unless it is combined with whose key it is: an endpoint owns nothing.
        return Scope((("endpoint", request.path if match is None else endpoint_of(match)),), public=True)

    def describe(self) -> str:
        return "the endpoint"

    def always_finds(self) -> bool:
        return True

    def shared(self) -> general.Shared:
        return "always"


endpoint: ScopeRule = _Endpoint()


def endpoint_of(match: Any) -> str:  # noqa: ANN401 - a ResolverMatch
    """The name of a route, or the dotted path of its view where it has none."""
    name: str | None = match.view_name
    return name or str(match.route)


def organisation(resolver: Callable[[HttpRequest], object] | str) -> ScopeRule:
    """The organisation of a request, as a function of yours finds it; `None` where there is none."""
    if not callable(resolver) and not isinstance(resolver, str):
        raise ConfigurationError(
            f"scopes.organisation({resolver!r}): expected a function of Django's request, or its dotted path "
            'such as "accounts.scopes.organisation_of"'
        )
    return OfRequest(resolver, "organisation")


def first_of(*rules: ScopeOption) -> ScopeRule:
    """The first rule that finds an owner: `first_of(scopes.user, scopes.public())`."""
    return general.first_of(*map(of_django, rules))


def all_of(*rules: ScopeOption) -> ScopeRule:
    """All parts together: `all_of(scopes.organisation(…), scopes.endpoint)`.  One missing: no scope."""
    return general.all_of(*map(of_django, rules))


def of_django(rule: object) -> ScopeRule:
    """A scope as a project writes it: its own functions take Django's request."""
    if isinstance(rule, str):
        return of_django(imported("RETRYSAFE['SCOPE']", rule)) if "." in rule else _refuse(rule)
    if rule is user or isinstance(rule, _Endpoint | OfRequest):
        return cast("ScopeRule", rule)
    if isinstance(rule, ReadyMade):
        return rule.replaced(of_django)
    if not callable(rule):
        return _refuse(rule)
    if getattr(rule, "__module__", None) in (general.__name__, __name__):
        return cast("ScopeRule", rule)  # which makes a rule, and was not called: the guard says so
    return OfRequest(cast("Callable[[HttpRequest], ScopeAnswer]", rule))


def imported(what: str, path: str) -> Callable[..., Any]:
    try:
        found: object = import_string(path)
    except ImportError as error:
        raise ConfigurationError(
            f"{what} is {path!r}, which cannot be imported ({error}): expected the dotted path of a function"
        ) from error
    if not callable(found):
        raise ConfigurationError(f"{what} is {path!r}, which is no function but {type(found).__name__}")
    return found


def _refuse(rule: object) -> ScopeRule:
    raise ConfigurationError(
        f"scope={rule!r} is not a scope: expected scopes.user, another one of retrysafe.django.scopes, a "
        'function of Django\'s request, or its dotted path such as "accounts.scopes.organisation_of"'
    )


def _name(function: object) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}".lstrip(".")
