"""Whose key it is: never guessed, and never shared by strangers."""

import asyncio
import hashlib
import re
import uuid
from collections.abc import Awaitable, Generator
from typing import Any

import pytest

from retrysafe import Guard, scopes
from retrysafe._core import keys
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
    with pytest.raises(ConfigurationError, match=rf"returned {type(answer).__name__}.*expected"):
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
    with pytest.raises(ConfigurationError, match="not a stable id"):
        scopes.user(a_request(principal=principal))


# --- scopes.credentials and scopes.public


SECRET = b"sixteen or more of them"


def test_credentials() -> None:
    """A keyed digest: neither the credentials nor anything that they can be guessed from is stored (I19)."""
    request = a_request((b"authorization", b"Bearer secret "))
    scope = scope_of(scopes.bind(scopes.credentials(), SECRET), request)
    assert scope is not None
    [(name, value)] = scope.parts
    assert name == "credentials"
    assert re.fullmatch("[0-9a-f]{32}", value)
    assert not hashlib.sha256(b"Bearer secret").hexdigest().startswith(value)
    assert scope == scope_of(scopes.bind(scopes.credentials(), SECRET), request)
    assert scope != scope_of(scopes.bind(scopes.credentials(), b"another secret of mine"), request)
    by_key = scopes.credentials("X-Api-Key", secret=SECRET)
    assert scope_of(by_key, a_request((b"x-api-key", b"k"))) is not None


def test_other_credentials_are_another_owner() -> None:
    """Whatever comes before and after them does not count."""
    rule = scopes.bind(scopes.credentials(), SECRET)
    values = (b"Bearer a", b"Bearer b", b" Bearer a\t")
    one, other, same = (scope_of(rule, a_request((b"authorization", value))) for value in values)
    assert one == same != other


@pytest.mark.parametrize("combine", [lambda rule: rule, scopes.first_of, scopes.all_of])
def test_credentials_without_a_secret_are_refused(combine: Any) -> None:
    """Where a guard is built; and where a function of one's own calls the rule, at the call."""
    rule = combine(scopes.credentials())
    with pytest.raises(ConfigurationError, match=r"no secret.*token_hex"):
        scopes.bind(rule, None)
    with pytest.raises(ConfigurationError, match="no secret"):
        rule(a_request((b"authorization", b"Bearer a")))
    assert scope_of(scopes.bind(rule, SECRET), a_request((b"authorization", b"Bearer a"))) is not None


def test_a_rule_with_a_secret_keeps_it() -> None:
    """The guard's is for those that were given none."""
    rule = scopes.credentials(secret="a secret of its own")
    assert scopes.bind(rule, SECRET) is rule
    assert scopes.bind(rule, None) is rule
    assert "secret" not in repr(rule)


def test_digests_are_shortened_where_they_are_shown() -> None:
    """Eight digits tell callers apart; all others are shown as they are."""
    digest = "0123456789abcdef0123456789abcdef"
    assert keys.mask_scope((("tenant", "7"), ("credentials", digest))) == (
        ("tenant", "7"), ("credentials", "01234567")
    )  # fmt: skip
    parts = (("tenant", digest),)
    assert keys.mask_scope(parts) is parts


@pytest.mark.parametrize("values", [[], [b""], [b"  "], [b"a", b"b"]])
def test_no_credentials_are_nobody(values: list[bytes]) -> None:
    """And neither are two of them."""
    request = a_request(*((b"authorization", value) for value in values))
    assert scope_of(scopes.credentials(secret=SECRET), request) is None


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


# --- what a rule is, before it is asked


@pytest.mark.parametrize(
    ("maker", "example"),
    [
        (scopes.header, 'scopes.header("X-Tenant")'),
        (scopes.credentials, "scopes.credentials()"),
        (scopes.public, "scopes.public()"),
        (scopes.first_of, "scopes.first_of("),
        (scopes.all_of, "scopes.all_of("),
    ],
)
def test_a_forgotten_call(maker: Any, example: str) -> None:
    """It would fail on each request: it is refused where the guard is built, with what to write."""
    for rule in (maker, scopes.first_of(maker), scopes.all_of(scopes.user, maker)):
        with pytest.raises(ConfigurationError) as error:
            Guard("memory:", scope=rule, secret=SECRET)
        assert f"scope=scopes.{maker.__name__} is not a valid scope" in str(error.value)
        assert f"scope={example}" in str(error.value)


@pytest.mark.parametrize("bad", ["", "X Tenant", "Mandant-Ü", "X:Y", None, 1])
def test_a_header_must_have_a_name(bad: Any) -> None:
    """Where the rule is made, and not at its first request."""
    for make in (scopes.header, scopes.credentials):
        with pytest.raises(ConfigurationError, match="is not a valid header name"):
            make(bad)


def owner(_: Request) -> str:
    return "7"


TENANT = scopes.header("X-Tenant")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (TENANT, "the header X-Tenant"),
        (scopes.credentials("X-Api-Key"), "the header X-Api-Key"),
        (scopes.user, 'the authenticated user (request.user, scope["user"] or REMOTE_USER)'),
        (scopes.public(), "one scope for all clients"),
        (scopes.first_of(TENANT, scopes.public()), "the header X-Tenant or one scope for all clients"),
        (scopes.all_of(TENANT, scopes.credentials()), "the header X-Tenant and the header Authorization"),
        (owner, f"what {__name__}.owner returns"),
    ],
)
def test_a_rule_can_be_described(rule: ScopeRule, said: str) -> None:
    """For the log: which header or attribute was looked for."""
    assert scopes.describe(rule) == said


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (TENANT, "send the header X-Tenant,"),
        (scopes.credentials(), "send the header Authorization,"),
        (
            scopes.all_of(TENANT, scopes.credentials()),
            "send the header X-Tenant and the header Authorization,",
        ),
        (
            scopes.first_of(TENANT, scopes.credentials()),
            "send the header X-Tenant or the header Authorization,",
        ),
        (scopes.user, None),
        (owner, None),
        (scopes.first_of(TENANT, scopes.user), None),
        (scopes.all_of(TENANT, owner), None),
    ],
)
def test_what_a_client_is_told_that_has_no_owner(rule: ScopeRule, said: str | None) -> None:
    """A header may be named; what the application calls its functions and attributes may not."""
    told = scopes.missing(rule)
    assert told.startswith("It is not known whose key this is")
    if said is None:
        assert told.endswith("whose key this is.")
    else:
        assert said in told


@pytest.mark.parametrize(
    ("rule", "shared", "always"),
    [
        (scopes.public(), "always", True),
        (TENANT, "never", False),
        (scopes.user, "never", False),
        (scopes.first_of(scopes.user, scopes.public()), "sometimes", True),
        (scopes.first_of(scopes.public(), scopes.user), "always", True),
        (scopes.first_of(scopes.user, TENANT), "never", False),
        (scopes.all_of(scopes.public(), scopes.user), "never", False),
        (scopes.all_of(scopes.public(), scopes.public()), "always", True),
        (scopes.all_of(scopes.public(), scopes.first_of(TENANT, scopes.public())), "sometimes", True),
    ],
)
def test_whether_keys_are_shared(rule: ScopeRule, shared: str, always: bool) -> None:
    """What the published specification says about it."""
    assert scopes.shared(rule) == shared
    assert scopes.always_finds(rule) is always


@pytest.mark.parametrize(
    ("rule", "needs"),
    [
        (scopes.user, True),
        (scopes.header("X-Tenant"), False),
        (scopes.public(), False),
        (scopes.argument("user.id"), False),
        (scopes.all_of(scopes.header("X-Tenant"), scopes.user), True),
        (scopes.first_of(scopes.header("X-Tenant"), scopes.first_of(scopes.user, scopes.public())), True),
        (scopes.first_of(scopes.header("X-Tenant"), scopes.public()), False),
        (lambda request: scopes.user(request), False),
    ],
)
def test_whether_the_user_is_needed(rule: ScopeRule, needs: bool) -> None:
    """What has to come after authentication, as far as ready-made rules can tell."""
    assert scopes.needs_user(rule) is needs
