"""Whose key it is.

A key means nothing without its owner: two users who happen to send the same one must never meet.  A scope
is therefore never guessed.  It is a function of the request that returns

- a string or a number: the owner's stable id;
- a mapping of several parts, such as `{"tenant": "7", "user": "42"}`;
- `None`, or nothing of substance: the owner is not known, and the request is refused with
  `principal-required`.

Prefer an id that survives a renewed token and a renamed account.
"""

import hmac
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import lru_cache
from typing import Literal, cast

from retrysafe._core.headers import is_name
from retrysafe._core.keys import CREDENTIALS, MAKE_A_SECRET
from retrysafe._core.model import Parts, Request, Scope
from retrysafe.errors import ConfigurationError

ScopeAnswer = Scope | str | int | Mapping[str, str | int] | None
ScopeRule = Callable[[Request], "ScopeAnswer | Awaitable[ScopeAnswer]"]
Shared = Literal["never", "sometimes", "always"]

# What a missing principal looks like once it was put into a string: a bug in the application's scope
# function, and the very one that would let strangers share a key.
_NO_OWNER = frozenset({"", "none", "null", "undefined", "anonymous", "anonymoususer"})


class ReadyMade:
    """A rule of this module: a function of the request that can be described and bound to a secret."""

    __slots__ = ()

    def __call__(self, request: Request) -> ScopeAnswer:
        return self.find(request)

    def find(self, request: Request) -> Scope | None:
        """The owner; `None` if it is not known."""
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError

    def wanted(self) -> str | None:
        """What a client has to send for it, if it is a thing that clients send."""
        return None

    def headers(self) -> tuple[str, ...]:
        """The headers that it is read from, as an example of a request has them."""
        return ()

    def shared(self) -> "Shared":
        return "never"

    def always_finds(self) -> bool:
        return False

    def needs_user(self) -> bool:
        return False

    def blocks(self) -> bool:
        """Whether it may wait for a database, as a function of a blocking framework's request may."""
        return False

    def replaced(self, replace: "Callable[[ScopeRule], ScopeRule]") -> "ReadyMade":  # noqa: ARG002 - most have none
        """The same of other rules than those that it is made of."""
        return self

    def bind(self, secret: bytes | None) -> "ReadyMade":  # noqa: ARG002 - most need none
        """The rule as it works with the guard's secret."""
        return self

    def __repr__(self) -> str:
        return f"<scope: {self.describe()}>"


class _Header(ReadyMade):
    __slots__ = ("_name", "_part", "_wanted")

    def __init__(self, name: str) -> None:
        self._name = name
        self._wanted = _header_name(name, "header")
        self._part = name.lower()

    def find(self, request: Request) -> Scope | None:
        fields = request.fields
        value = fields.get(self._wanted)
        if value is None:
            return None
        if len(fields) != len(request.headers) and len(request.every(self._wanted)) > 1:
            return None  # two values are two owners: whichever proxy added the second, neither can be trusted
        return _one_part(self._part, value)

    def describe(self) -> str:
        return f"the header {self._name}"

    def wanted(self) -> str | None:
        return self.describe()

    def headers(self) -> tuple[str, ...]:
        return (self._name,)


class _Credentials(ReadyMade):
    __slots__ = ("_name", "_secret", "_wanted")

    def __init__(self, name: str, secret: bytes | None) -> None:
        self._name = name
        self._wanted = _header_name(name, "credentials")
        self._secret = secret

    def find(self, request: Request) -> Scope | None:
        if self._secret is None:
            raise ConfigurationError(_NO_SECRET)
        values = request.every(self._wanted)
        if len(values) != 1 or not (value := values[0].strip()):
            return None
        digest = hmac.digest(self._secret, b"retrysafe/credentials/1:" + value, "sha256").hex()
        return Scope(((CREDENTIALS, digest[:_DIGITS]),))

    def describe(self) -> str:
        return f"the header {self._name}"

    def wanted(self) -> str | None:
        return self.describe()

    def headers(self) -> tuple[str, ...]:
        return (self._name,)

    def bind(self, secret: bytes | None) -> ReadyMade:
        if self._secret is not None:
            return self
        if secret is None:
            raise ConfigurationError(_NO_SECRET)
        return _Credentials(self._name, secret)


_DIGITS = 32
"""128 bits of the digest: two callers never share one, and no more than needed is stored."""

_NO_SECRET = (
    "scopes.credentials() was given no secret: a password could be guessed from its stored digest. "
    + MAKE_A_SECRET
)


class _Public(ReadyMade):
    __slots__ = ()

    def find(self, request: Request) -> Scope | None:  # noqa: ARG002 - the same for every request
        return _EVERYONE

    def describe(self) -> str:
        return "one scope for all clients"

    def shared(self) -> "Shared":
        return "always"

    def always_finds(self) -> bool:
        return True


_EVERYONE = Scope((("public", "*"),), public=True)


class _Service(ReadyMade):
    __slots__ = ("scope",)

    def __init__(self, name: str) -> None:
        self.scope = Scope((("service", name),))

    def find(self, request: Request) -> Scope | None:  # noqa: ARG002 - refused, whatever it is
        raise ConfigurationError(SERVICE_FOR_REQUESTS)

    def describe(self) -> str:
        return f"the service {self.scope.parts[0][1]} itself"


SERVICE_FOR_REQUESTS = (
    "scopes.service(...) was given for requests, where one client could replay the response of another: it "
    "is for operations, whose keys the service makes itself. Use a scope that tells clients apart, such as "
    'scopes.user or scopes.header("X-Tenant")'
)


class _Argument(ReadyMade):
    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def parameter(self) -> str:
        return self._path.partition(".")[0]

    def find(self, request: Request) -> Scope | None:
        arguments = request.arguments
        if arguments is None:
            raise ConfigurationError(
                f"scopes.argument({self._path!r}) is for endpoints that are decorated with @idempotent: a "
                "middleware does not know what an endpoint is called with. Give this route another scope"
            )
        return self.find_in(arguments)

    def find_in(self, arguments: Mapping[str, object]) -> Scope | None:
        """The owner, by what a function is called with."""
        parameter, *attributes = self._path.split(".")
        found: object = arguments.get(parameter)
        for name in attributes:
            if found is not None:
                found = _attribute(found, name)
        if found is None:
            return None
        return resolve(Scope(((self._path, str(found)),)))

    def describe(self) -> str:
        return f"the endpoint's argument {self._path}"


def _attribute(owner: object, name: str) -> object:
    """Of an object, or of a mapping such as the claims of a token."""
    return (
        cast("Mapping[str, object]", owner).get(name) if isinstance(owner, Mapping) else getattr(owner, name)
    )


class _FirstOf(ReadyMade):
    __slots__ = ("rules",)

    def __init__(self, rules: tuple[ScopeRule, ...]) -> None:
        self.rules = rules

    def find(self, request: Request) -> Scope | None:
        for rule in self.rules:
            if (scope := resolve(_at_once(rule(request)))) is not None:
                return scope
        return None

    def describe(self) -> str:
        return " or ".join(describe(rule) for rule in self.rules)

    def wanted(self) -> str | None:
        # If one of them is nothing that clients send, naming the others would be half the truth.
        return _joined(" or ", self.rules)

    def headers(self) -> tuple[str, ...]:
        return next((found for rule in self.rules if (found := headers(rule))), ())

    def shared(self) -> "Shared":
        found = [shared(rule) for rule in self.rules]
        if found[:1] == ["always"]:
            return "always"
        return "sometimes" if set(found) - {"never"} else "never"

    def always_finds(self) -> bool:
        return any(always_finds(rule) for rule in self.rules)

    def needs_user(self) -> bool:
        # Also where another rule finds an owner instead: it is not the owner that was meant.
        return any(needs_user(rule) for rule in self.rules)

    def blocks(self) -> bool:
        return any(blocks(rule) for rule in self.rules)

    def replaced(self, replace: "Callable[[ScopeRule], ScopeRule]") -> ReadyMade:
        return _FirstOf(tuple(replace(rule) for rule in self.rules))

    def bind(self, secret: bytes | None) -> ReadyMade:
        return _FirstOf(tuple(bind(rule, secret) for rule in self.rules))


class _AllOf(ReadyMade):
    __slots__ = ("rules",)

    def __init__(self, rules: tuple[ScopeRule, ...]) -> None:
        self.rules = rules

    def find(self, request: Request) -> Scope | None:
        found = [resolve(_at_once(rule(request))) for rule in self.rules]
        known = [scope for scope in found if scope is not None]
        if len(known) < len(self.rules):
            return None
        return resolve(
            Scope(
                tuple(part for scope in known for part in scope.parts),
                public=all(scope.public for scope in known),
            )
        )

    def describe(self) -> str:
        return " and ".join(describe(rule) for rule in self.rules)

    def wanted(self) -> str | None:
        return _joined(" and ", [rule for rule in self.rules if not isinstance(rule, _Public)])

    def headers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for rule in self.rules for name in headers(rule)))

    def shared(self) -> "Shared":
        found = {shared(rule) for rule in self.rules}
        if "never" in found:
            return "never"
        return "always" if found == {"always"} else "sometimes"

    def always_finds(self) -> bool:
        return all(always_finds(rule) for rule in self.rules)

    def needs_user(self) -> bool:
        return any(needs_user(rule) for rule in self.rules)

    def blocks(self) -> bool:
        return any(blocks(rule) for rule in self.rules)

    def replaced(self, replace: "Callable[[ScopeRule], ScopeRule]") -> ReadyMade:
        return _AllOf(tuple(replace(rule) for rule in self.rules))

    def bind(self, secret: bytes | None) -> ReadyMade:
        return _AllOf(tuple(bind(rule, secret) for rule in self.rules))


def header(name: str) -> ScopeRule:
    """The value of a header that a proxy in front of the application sets and clients cannot forge."""
    return _Header(name)


@lru_cache(maxsize=1024)
def _one_part(name: str, value: bytes) -> Scope | None:
    # A client that sends one request sends more.
    return resolve(Scope(((name, value.decode("latin-1")),)))


def user(request: Request) -> ScopeAnswer:
    """The stable id of the user that the framework or the server has authenticated.

    Under ASGI that is `scope["user"]`, which authentication middlewares set; under WSGI it is `REMOTE_USER`.
    """
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
        "a display name is not a stable id: pass a scope function that returns one"
    )


def credentials(header: str = "Authorization", *, secret: str | bytes | None = None) -> ScopeRule:
    """A digest of the credentials themselves, for services that know nothing better.

    A rotated token is a new scope: a retry that is sent after a token refresh *runs again*.  Where tokens
    are short-lived, use an id out of the token instead.  The digest is an HMAC with the guard's secret; a
    rule that is called by a function of the application's own, and not by a guard, is given one here.
    """
    return _Credentials(header, secret.encode() if isinstance(secret, str) else secret)


def public() -> ScopeRule:
    """One scope for all clients, declared by the application.

    Each client that knows a key can replay its response, so keys must be long enough not to be guessed.
    """
    return _Public()


def service(name: str) -> ScopeRule:
    """All keys belong to this service: for operations and tasks, which no client asks for."""
    if not isinstance(name, str) or not _is_known((("service", name),)):
        raise ConfigurationError(
            f'scopes.service({name!r}): expected the name of a service, such as "billing"'
        )
    return _Service(name)


def of_service(rule: ScopeRule) -> Scope | None:
    """The owner of all keys, where a rule says that there is only one."""
    return rule.scope if isinstance(rule, _Service) else None


def by_argument(rule: object) -> "Callable[[Mapping[str, object]], Scope | None] | None":
    """How an owner is found by what a function is called with, where a rule is `argument(…)`."""
    return rule.find_in if isinstance(rule, _Argument) else None


def argument(path: str) -> ScopeRule:
    """What an endpoint is called with: `argument("user.id")` is the attribute `id` of its parameter `user`.

    For endpoints that are decorated with `@idempotent`, whose frameworks find out by dependencies who asks.
    """
    if not isinstance(path, str) or not all(part.isidentifier() for part in path.split(".")):
        raise ConfigurationError(
            f'scopes.argument({path!r}): expected a parameter, or an attribute of one, such as "user.id"'
        )
    return _Argument(path)


def check_arguments(rule: ScopeRule, parameters: Collection[str], function: str) -> None:
    """Refuse a rule that asks for an argument which a function does not have."""
    for wanted in _arguments(rule):
        if wanted not in parameters:
            raise ConfigurationError(
                f"scopes.argument({wanted!r}): {function} has no such parameter, it has "
                f"{', '.join(parameters) or 'none'}. Add it, or give this endpoint another scope"
            )


def _arguments(rule: ScopeRule) -> set[str]:
    if isinstance(rule, _Argument):
        return {rule.parameter}
    if isinstance(rule, _AllOf | _FirstOf):
        return {name for one in rule.rules for name in _arguments(one)}
    return set()


def first_of(*rules: ScopeRule) -> ScopeRule:
    """The first rule that finds an owner: `first_of(scopes.user, scopes.public())`."""
    return _FirstOf(rules)


def all_of(*rules: ScopeRule) -> ScopeRule:
    """All parts together: `all_of(scopes.header("X-Tenant"), scopes.user)`.  One missing: no scope."""
    return _AllOf(rules)


# Functions that make a rule, and are none themselves: passed without their call they would be asked on each
# request, and would return a rule instead of an owner.
_MAKERS: dict[object, str] = {
    header: 'scopes.header("X-Tenant")',
    argument: 'scopes.argument("user.id")',
    credentials: "scopes.credentials()",
    public: "scopes.public()",
    service: 'scopes.service("billing")',
    first_of: "scopes.first_of(scopes.user, scopes.public())",
    all_of: 'scopes.all_of(scopes.header("X-Tenant"), scopes.user)',
}


def bind(rule: object, secret: bytes | None) -> ScopeRule:
    """Check a rule, and give it and those that it is made of the guard's secret."""
    if not callable(rule):
        raise ConfigurationError(
            f"scope={rule!r} is not a valid scope: expected a function of the request, such as "
            'scopes.user or scopes.header("X-Tenant")'
        )
    if isinstance(rule, ReadyMade):
        return rule.bind(secret)
    example = _MAKERS.get(rule) if getattr(rule, "__module__", None) == __name__ else None
    if example is not None:
        raise ConfigurationError(
            f"scope=scopes.{getattr(rule, '__name__', '')} is not a valid scope: it makes one when it is "
            f"called, as in scope={example}"
        )
    return cast("ScopeRule", rule)


def describe(rule: ScopeRule) -> str:
    """Where a rule looks for the owner, for the log and for operators."""
    if isinstance(rule, ReadyMade):
        return rule.describe()
    if rule is user:
        return 'the authenticated user (request.user, scope["user"] or REMOTE_USER)'
    name = getattr(rule, "__qualname__", None) or type(rule).__qualname__
    return f"what {getattr(rule, '__module__', None) or type(rule).__module__}.{name} returns"


def missing(rule: ScopeRule) -> str:
    """What a client is told whose request has no owner.

    A header may be named; functions and attributes of the application may not.
    """
    wanted = _wanted(rule)
    if wanted is None:
        return "It is not known whose key this is."
    return f"It is not known whose key this is: send {wanted}, once and with a value."


def headers(rule: ScopeRule) -> tuple[str, ...]:
    """The headers that a rule reads, as far as ready-made rules can tell, for an example of a request."""
    return rule.headers() if isinstance(rule, ReadyMade) else ()


def shared(rule: ScopeRule) -> Shared:
    """Whether all clients share their keys, as far as ready-made rules can tell."""
    return rule.shared() if isinstance(rule, ReadyMade) else "never"


def always_finds(rule: ScopeRule) -> bool:
    """Whether each request has an owner by this rule, so that none is refused for the lack of one."""
    return isinstance(rule, ReadyMade) and rule.always_finds()


def needs_user(rule: ScopeRule) -> bool:
    """Whether it reads the user whom authentication leaves in the request, as far as is known.

    Under ASGI that is `scope["user"]`, under WSGI `REMOTE_USER`: what sets it has to come before the claim.
    """
    return rule.needs_user() if isinstance(rule, ReadyMade) else rule is user


def blocks(rule: ScopeRule) -> bool:
    """Whether it may wait for a database, so that an event loop asks it in a thread."""
    return isinstance(rule, ReadyMade) and rule.blocks()


def _wanted(rule: ScopeRule) -> str | None:
    return rule.wanted() if isinstance(rule, ReadyMade) else None


def _joined(conjunction: str, rules: "list[ScopeRule] | tuple[ScopeRule, ...]") -> str | None:
    wanted = [_wanted(rule) for rule in rules]
    known = [text for text in wanted if text is not None]
    return conjunction.join(known) if known and len(known) == len(wanted) else None


def _header_name(name: object, function: str) -> bytes:
    if not isinstance(name, str) or not is_name(name.encode("utf-8", "surrogatepass")):
        raise ConfigurationError(
            f"scopes.{function}({name!r}) is not a valid header name: expected letters, digits and hyphens"
        )
    return name.lower().encode("ascii")


def resolve(answer: ScopeAnswer) -> Scope | None:
    """Normalise what a scope function returned.  `None`: the owner is not known."""
    if answer is None:
        return None
    if isinstance(answer, Scope):
        scope = answer
    elif isinstance(answer, str | int) and not isinstance(answer, bool):
        scope = Scope((("scope", str(answer)),))
    elif isinstance(answer, Mapping):
        # Sorted: the order in which a mapping was written must not make it another owner.
        parts = sorted((name, "" if value is None else str(value)) for name, value in answer.items())
        scope = Scope(tuple(parts))
    else:
        raise ConfigurationError(
            f"a scope function returned {type(answer).__name__}: expected a string, a number, a mapping of "
            "parts, or None where the owner is not known"
        )
    return scope if _is_known(scope.parts) else None


@lru_cache(maxsize=1024)
def _is_known(parts: Parts) -> bool:
    return bool(parts) and all(value.strip().lower() not in _NO_OWNER for _, value in parts)


def _at_once(answer: "ScopeAnswer | Awaitable[ScopeAnswer]") -> ScopeAnswer:
    if isinstance(answer, Awaitable):
        if isinstance(answer, Coroutine):
            answer.close()  # it will never be awaited
        raise ConfigurationError(
            "first_of and all_of combine plain functions: for an asynchronous scope, write one "
            "`async def` that calls them in turn"
        )
    return answer
