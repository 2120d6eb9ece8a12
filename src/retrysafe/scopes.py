"""Whose key it is.

A key means nothing without its owner: two users who happen to send the same one must never meet.  A scope
is therefore never guessed.  It is a function of the request that answers

- a string or a number: the owner's stable id;
- a mapping of several parts, such as `{"tenant": "7", "user": "42"}`;
- `None`, or nothing of substance: nobody is known, and the request is refused with `principal-required`.

Prefer an id that survives a renewed token and a renamed account.
"""

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import lru_cache

from retrysafe._core.model import Parts, Request, Scope
from retrysafe.errors import ConfigurationError

ScopeAnswer = Scope | str | int | Mapping[str, str | int] | None
ScopeRule = Callable[[Request], "ScopeAnswer | Awaitable[ScopeAnswer]"]

# What a missing principal looks like once it was put into a string: a bug in the application's scope
# function, and the very one that would let strangers share a key.
_NOBODY = frozenset({"", "none", "null", "undefined", "anonymous", "anonymoususer"})


def header(name: str) -> ScopeRule:
    """The value of a header that something in front of the application sets and clients cannot forge."""
    wanted = name.lower().encode("ascii")
    part = name.lower()

    def by_header(request: Request) -> ScopeAnswer:
        values = request.every(wanted)
        # Two values are two answers: whichever proxy added the second, neither can be trusted.
        return _one_part(part, values[0]) if len(values) == 1 else None

    return by_header


@lru_cache(maxsize=1024)
def _one_part(name: str, value: bytes) -> Scope:
    # Whoever sends one request sends more.
    return Scope(((name, value.decode("latin-1")),))


def user(request: Request) -> ScopeAnswer:
    """The stable id of whoever the framework has authenticated."""
    principal = request.principal
    if principal is None or not getattr(principal, "is_authenticated", True):
        return None
    for attribute in ("pk", "id", "identity"):
        try:
            found = getattr(principal, attribute)
        except (AttributeError, NotImplementedError):
            continue
        if isinstance(found, str | int):
            return {"user": found}
        return {"user": str(found)} if found is not None else None
    raise ConfigurationError(
        f"scopes.user found a {type(principal).__name__} that has none of pk, id and identity; "
        "a display name is no stable id: pass a scope function that returns one"
    )


def credentials(header: str = "Authorization") -> ScopeRule:
    """A digest of the credentials themselves, for services that know nothing better.

    A rotated token is a new scope: a retry that is sent after a token refresh *runs again*.  Where tokens
    are short-lived, use an id out of the token instead.
    """
    wanted = header.lower().encode("ascii")

    def by_credentials(request: Request) -> ScopeAnswer:
        values = request.every(wanted)
        if len(values) != 1 or not values[0].strip():
            return None
        return {"credentials": hashlib.sha256(values[0].strip()).hexdigest()}

    return by_credentials


def public() -> ScopeRule:
    """One scope for everybody, declared by the application.

    Whoever knows a key can replay its answer, so keys must be long enough not to be guessed.
    """
    everybody = Scope((("public", "*"),), public=True)
    return lambda _request: everybody


def first_of(*rules: ScopeRule) -> ScopeRule:
    """The first rule that has an answer: `first_of(scopes.user, scopes.public())`."""

    def by_first(request: Request) -> ScopeAnswer:
        for rule in rules:
            if (scope := resolve(_at_once(rule(request)))) is not None:
                return scope
        return None

    return by_first


def all_of(*rules: ScopeRule) -> ScopeRule:
    """All parts together: `all_of(scopes.header("X-Tenant"), scopes.user)`.  One missing: no scope."""

    def by_all(request: Request) -> ScopeAnswer:
        found = [resolve(_at_once(rule(request))) for rule in rules]
        known = [scope for scope in found if scope is not None]
        if len(known) < len(rules):
            return None
        return Scope(
            tuple(part for scope in known for part in scope.parts),
            public=all(scope.public for scope in known),
        )

    return by_all


def resolve(answer: ScopeAnswer) -> Scope | None:
    """Normalise what a scope function answered.  `None`: nobody is known."""
    if answer is None:
        return None
    if isinstance(answer, Scope):
        scope = answer
    elif isinstance(answer, str | int) and not isinstance(answer, bool):
        scope = Scope((("scope", str(answer)),))
    elif isinstance(answer, Mapping):
        # Sorted: in which order somebody wrote a mapping down must not make it another owner.
        parts = sorted((name, "" if value is None else str(value)) for name, value in answer.items())
        scope = Scope(tuple(parts))
    else:
        raise ConfigurationError(
            f"a scope function answered {type(answer).__name__}: expected a string, a number, a mapping of "
            "parts, or None for nobody"
        )
    return scope if _is_somebody(scope.parts) else None


@lru_cache(maxsize=1024)
def _is_somebody(parts: Parts) -> bool:
    return bool(parts) and all(value.strip().lower() not in _NOBODY for _, value in parts)


def _at_once(answer: "ScopeAnswer | Awaitable[ScopeAnswer]") -> ScopeAnswer:
    if isinstance(answer, Awaitable):
        if isinstance(answer, Coroutine):
            answer.close()  # it will never be awaited
        raise ConfigurationError(
            "first_of and all_of combine plain functions: for an asynchronous scope, write one "
            "`async def` that asks them in turn"
        )
    return answer


def describe(rule: ScopeRule) -> str:
    """Where a rule looks for the owner, for an operator."""
    return getattr(rule, "__doc__", None) or repr(rule)
