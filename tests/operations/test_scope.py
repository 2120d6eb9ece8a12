"""Whose key it is: said by the call, the operation, the guard, or the guarded call around it."""

from typing import Any

import pytest

from retrysafe import ConfigurationError, Guard, asgi, scopes
from retrysafe.operations import Done, KeyRefused, operation
from retrysafe.stores.memory import MemoryStore


@pytest.fixture
def guard() -> Guard:
    """Of an API, whose requests have users."""
    return Guard(MemoryStore(), scope=scopes.user)


def test_two_callers_with_one_key_do_not_meet(guard: Guard) -> None:
    """Each has a record of its own."""

    @operation(guard)
    def charge(amount: int) -> int:
        return amount

    assert charge.once(1, key="k", scope="ann") == Done(1, replayed=False)
    assert charge.once(2, key="k", scope="bob") == Done(2, replayed=False)
    assert charge.once(1, key="k", scope="ann") == Done(1, replayed=True)
    assert charge.once(3, key="k", scope={"tenant": 7, "user": "ann"}) == Done(3, replayed=False)


def test_an_argument_may_be_left_to_its_default_but_not_be_missing(memory: Guard) -> None:
    """A slip of the pen is an error when decorated, and does not refuse every call."""

    def rename(name: str, tenant: str = "7") -> str:
        return f"{tenant}: {name}"

    made = operation(memory, scope=scopes.argument("tenant"))(rename)
    assert not made.once("tea", key="k").replayed
    assert made.once("tea", "7", key="k").replayed
    assert not made.once("tea", "8", key="k").replayed
    with pytest.raises(ConfigurationError, match=r"argument\('tenent'\): .*rename has no such parameter"):
        operation(memory, scope=scopes.argument("tenent.id"))(rename)


def test_the_operation_finds_it_in_the_arguments(guard: Guard) -> None:
    """By a function with the same parameters, or by name."""

    @operation(guard, scope=lambda caller, amount: caller["id"])
    def charge(caller: dict[str, str], amount: int) -> int:
        return amount

    @operation(guard, scope=scopes.argument("caller.id"))
    def refund(caller: dict[str, str], amount: int) -> int:
        return amount

    for one in (charge, refund):
        assert one.once({"id": "ann"}, 1, key="k") == Done(1, replayed=False)
        assert one.once({"id": "bob"}, 2, key="k") == Done(2, replayed=False)
        assert one.once({"id": "ann"}, 1, key="k") == Done(1, replayed=True)


@pytest.mark.parametrize("nothing", [None, "", "anonymous", "None"])
def test_an_owner_who_is_not_known(guard: Guard, nothing: Any) -> None:
    """It never falls into a scope that others share."""

    @operation(guard, scope=lambda: nothing)
    def charge() -> None:
        raise AssertionError("not reached")

    with pytest.raises(KeyRefused) as refused:
        charge.once(key="k")
    assert refused.value.code == "principal-required"


def test_no_scope_at_all(guard: Guard) -> None:
    """It is not guessed, and the message says where to put it."""

    @operation(guard)
    def charge() -> None:
        raise AssertionError("not reached")

    with pytest.raises(ConfigurationError, match=r"pass scope= to once\(\) or @operation"):
        charge.once(key="k")


def test_inside_of_a_guarded_call_it_is_that_of_the_call(guard: Guard) -> None:
    """Whoever asked for the one asked for the other; the record says which."""
    inner_scopes: list[Any] = []

    @operation(guard)
    def charge() -> int:
        from retrysafe import current

        inner_scopes.append((current().scope, current().claim.correlation_id))
        return 1

    @operation(guard)
    def order() -> str:
        from retrysafe import current

        charge.once(key=current().derive("charge"))
        return current().request_id

    request_id = order.once(key="k", scope="ann").value
    assert inner_scopes == [((("scope", "ann"),), request_id)]


@pytest.mark.parametrize(
    "scope", [scopes.user, scopes.header("X-Tenant"), scopes.public(), scopes.credentials()]
)
def test_a_rule_for_requests_is_refused_when_decorated(guard: Guard, scope: Any) -> None:
    """An operation has no headers."""
    with pytest.raises(ConfigurationError, match="a rule for requests"):

        @operation(guard, scope=scope)
        def charge() -> None: ...


def test_an_asynchronous_scope_for_a_plain_function(guard: Guard) -> None:
    """It could not be awaited."""

    async def who() -> str:
        return "ann"

    @operation(guard, scope=who)
    def charge() -> None:
        raise AssertionError("not reached")

    with pytest.raises(ConfigurationError, match="make the scope a plain function"):
        charge.once(key="k")


def test_the_scope_of_a_service_is_not_for_requests() -> None:
    """All clients would share their keys."""
    guard = Guard(MemoryStore(), scope=scopes.service("billing"))

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="it is for operations"):
        asgi.Middleware(app, guard)


@pytest.mark.parametrize("name", ["", "none", 7])
def test_a_service_has_a_name(name: Any) -> None:
    """One that says which."""
    with pytest.raises(ConfigurationError, match="expected the name of a service"):
        scopes.service(name)
