"""Whose key it is: never guessed, and never shared by strangers."""

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Generator
from typing import Any

import pytest

from retrysafe import scopes
from retrysafe._core.model import Request, Scope
from retrysafe.errors import ConfigurationError
from retrysafe.scopes import ScopeAnswer, ScopeRule, resolve
from tests.core.values import a_request

NOBODY = [
    "",
    " ",
    "\t",
    "None",
    "none",
    "null",
    "NULL",
    "undefined",
    "anonymous",
    "Anonymous",
    "AnonymousUser",
]


def scope_of(rule: ScopeRule, request: Request) -> Scope | None:
    answer = rule(request)
    assert not isinstance(answer, Awaitable)
    return resolve(answer)


class User:
    """What a framework calls the principal."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


class Unfinished(User):
    """Starlette's `BaseUser`: its identity is not implemented."""

    @property
    def identity(self) -> str:
        raise NotImplementedError


# --- What a function may answer


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        ("7", (("scope", "7"),)),
        (7, (("scope", "7"),)),
        (0, (("scope", "0"),)),
        ({"tenant": "7", "user": 42}, (("tenant", "7"), ("user", "42"))),
    ],
)
def test_answers_with_substance(answer: ScopeAnswer, parts: object) -> None:
    """A string, a number, or named parts in their order."""
    assert resolve(answer) == Scope(parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("nobody", NOBODY)
def test_nobody_is_not_somebody(nobody: str) -> None:
    """What a missing principal looks like as a string is no owner, whole or in part (S1)."""
    assert resolve(nobody) is None
    assert resolve({"tenant": "7", "user": nobody}) is None


def test_nothing_is_nobody() -> None:
    """Neither `None`, nor a mapping without parts, nor one with a missing part."""
    assert resolve(None) is None
    assert resolve({}) is None
    assert resolve({"tenant": "7", "user": None}) is None  # type: ignore[dict-item]  # what happens in practice


def test_a_scope_without_parts_is_nobody() -> None:
    """A ready-made scope is held to the same rule: an empty one would be shared by everybody."""
    assert resolve(Scope(())) is None
    assert resolve(Scope((("user", ""),))) is None


@pytest.mark.parametrize("answer", [True, 1.5, b"7", ["7"], object(), uuid.uuid4()])
def test_other_answers_are_a_mistake(answer: Any) -> None:
    """They are named, and so is what was expected."""
    with pytest.raises(ConfigurationError, match=rf"answered {type(answer).__name__}.*expected"):
        resolve(answer)


def test_a_scope_is_an_answer() -> None:
    """Rules can be combined."""
    scope = Scope((("user", "1"),), public=True)
    assert resolve(scope) is scope


# --- scopes.header


def test_header() -> None:
    """The value of one header, under its own name."""
    by_tenant = scopes.header("X-Tenant")
    assert scope_of(by_tenant, a_request((b"x-tenant", b"7"))) == Scope((("x-tenant", "7"),))
    assert scope_of(by_tenant, a_request((b"x-other", b"7"))) is None
    assert scope_of(by_tenant, a_request()) is None


def test_two_headers_are_no_answer() -> None:
    """Whichever proxy added the second, neither can be trusted."""
    assert scope_of(scopes.header("X-Tenant"), a_request((b"x-tenant", b"7"), (b"x-tenant", b"7"))) is None


@pytest.mark.parametrize("nobody", NOBODY)
def test_an_empty_header_is_nobody(nobody: str) -> None:
    """A gateway that knows nobody may still send the header."""
    assert scope_of(scopes.header("X-User"), a_request((b"x-user", nobody.encode()))) is None


def test_bytes_stay_apart() -> None:
    """Values that are not ASCII are still different owners."""
    by_user = scopes.header("X-User")
    one, other = (scope_of(by_user, a_request((b"x-user", value))) for value in (b"\xe4", b"\xf6"))
    assert one is not None
    assert one != other


# --- scopes.user


@pytest.mark.parametrize(
    ("principal", "user"),
    [
        (User(pk=7), "7"),
        (User(id="abc"), "abc"),
        (User(identity="x"), "x"),
        (User(pk=7, id=8, identity="9"), "7"),
        (User(id=uuid.UUID(int=1)), "00000000-0000-0000-0000-000000000001"),
        (User(id=1, is_authenticated=True), "1"),
        (User(pk=0), "0"),
    ],
)
def test_user(principal: object, user: str) -> None:
    """The stable id of whoever the framework has authenticated."""
    assert scope_of(scopes.user, a_request(principal=principal)) == Scope((("user", user),))


@pytest.mark.parametrize(
    "principal",
    [None, User(id=1, is_authenticated=False), User(pk=None), User(id=""), User(id="AnonymousUser")],
)
def test_nobody_is_logged_in(principal: object) -> None:
    """An anonymous user is nobody, even if it has an id."""
    assert scope_of(scopes.user, a_request(principal=principal)) is None


@pytest.mark.parametrize("principal", [User(username="bob"), User(display_name="Bob"), Unfinished()])
def test_a_user_without_an_id_is_a_mistake(principal: object) -> None:
    """A display name can be changed and reused; the message says what to do."""
    with pytest.raises(ConfigurationError, match="no stable id"):
        scopes.user(a_request(principal=principal))


# --- scopes.credentials and scopes.public


def test_credentials() -> None:
    """A digest: the credentials themselves are never stored (I19)."""
    scope = scope_of(scopes.credentials(), a_request((b"authorization", b"Bearer secret ")))
    assert scope == Scope((("credentials", hashlib.sha256(b"Bearer secret").hexdigest()),))
    by_key = scopes.credentials("X-Api-Key")
    assert scope_of(by_key, a_request((b"x-api-key", b"k"))) is not None


@pytest.mark.parametrize("values", [[], [b""], [b"  "], [b"a", b"b"]])
def test_no_credentials_are_nobody(values: list[bytes]) -> None:
    """And neither are two of them."""
    request = a_request(*((b"authorization", value) for value in values))
    assert scope_of(scopes.credentials(), request) is None


def test_public() -> None:
    """One scope for everybody, and it says so: its keys must be long."""
    scope = scope_of(scopes.public(), a_request())
    assert scope is not None
    assert scope.public


# --- combinations


def test_first_of() -> None:
    """The first rule that has an answer."""
    rule = scopes.first_of(scopes.user, scopes.header("X-Tenant"), lambda _: None)
    assert scope_of(rule, a_request((b"x-tenant", b"7"), principal=User(id=1))) == Scope((("user", "1"),))
    assert scope_of(rule, a_request((b"x-tenant", b"7"))) == Scope((("x-tenant", "7"),))
    assert scope_of(rule, a_request()) is None
    public = scope_of(scopes.first_of(scopes.user, scopes.public()), a_request())
    assert public is not None
    assert public.public


def test_all_of() -> None:
    """All parts together; one that is missing makes it nobody."""
    rule = scopes.all_of(scopes.header("X-Tenant"), scopes.user)
    request = a_request((b"x-tenant", b"7"), principal=User(id=1))
    assert scope_of(rule, request) == Scope((("x-tenant", "7"), ("user", "1")))
    assert scope_of(rule, a_request((b"x-tenant", b"7"))) is None
    assert scope_of(rule, a_request(principal=User(id=1))) is None


def test_all_of_is_public_only_if_all_are() -> None:
    """Whoever is identified in part need not have a key that cannot be guessed."""
    mixed = scope_of(scopes.all_of(scopes.public(), scopes.user), a_request(principal=User(id=1)))
    assert mixed is not None
    assert not mixed.public
    both = scope_of(scopes.all_of(scopes.public(), scopes.public()), a_request())
    assert both is not None
    assert both.public


class Later:
    """An answer that has to be awaited."""

    def __await__(self) -> Generator[None, None, str]:
        yield
        return "7"


@pytest.mark.parametrize("combine", [scopes.first_of, scopes.all_of])
def test_combinations_are_of_plain_functions(combine: Any) -> None:
    """An awaitable among them is a mistake that is explained, and not taken for an answer."""
    with pytest.raises(ConfigurationError, match="async def"):
        combine(lambda _: Later())(a_request())


@pytest.mark.parametrize("combine", [scopes.first_of, scopes.all_of])
def test_a_coroutine_among_them_is_not_left_lying_about(combine: Any) -> None:
    """Nor does the mistake produce a warning about a coroutine that was never awaited."""

    async def later(_: Request) -> str:
        await asyncio.sleep(0)
        return "7"

    with pytest.raises(ConfigurationError, match="async def"):
        combine(later)(a_request())
