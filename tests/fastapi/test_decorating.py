"""What is refused when an application is built, and what a decorated function is to other code."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import wraps
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from retrysafe import Guard, scopes
from retrysafe.errors import ConfigurationError
from retrysafe.fastapi import idempotent, protect
from tests.fastapi.shop import KEY, Order, Shop, SignedIn, User, send


@pytest.fixture
def guard() -> Guard:
    return Guard("memory:", scope=scopes.header("X-Tenant"))


def test_an_application_that_is_not_protected(guard: Guard) -> None:
    """A clear error and no unprotected run."""
    app, runs = FastAPI(), list[int]()

    @app.post("/pay")
    @idempotent(guard)
    def pay() -> None:
        runs.append(1)

    with (
        TestClient(app) as client,
        pytest.raises(ConfigurationError, match=r"pay is decorated.*protect"),
    ):
        client.post("/pay", headers={"Idempotency-Key": KEY, "X-Tenant": "7"})
    assert runs == []


def test_another_guard(guard: Guard) -> None:
    """Protected, but not by the guard of the endpoint."""
    app = FastAPI()
    protect(app, Guard("memory:", scope=scopes.header("X-Tenant")))
    app.post("/pay")(idempotent(guard)(lambda: 1))
    with TestClient(app) as client, pytest.raises(ConfigurationError, match="the same guard"):
        client.post("/pay", headers={"Idempotency-Key": KEY, "X-Tenant": "7"})


def test_generators(guard: Guard) -> None:
    """FastAPI would look through the decorator and stream them past it."""

    def pieces() -> Iterator[int]:
        yield 1

    async def awaited() -> AsyncIterator[int]:
        yield 1

    for function in (pieces, awaited):
        with pytest.raises(ConfigurationError, match="is a generator"):
            idempotent(guard)(function)


def test_above_the_route(guard: Guard) -> None:
    """FastAPI was given the function itself: said when the application starts, and it never runs."""
    app = FastAPI()
    protect(app, guard)

    @idempotent(guard)
    @app.post("/pay")
    def pay() -> str:
        raise AssertionError("it does not start")

    with pytest.raises(ConfigurationError, match="pay serves /pay without its @idempotent"), TestClient(app):
        pass


def test_protected_on_one_route_only(guard: Guard) -> None:
    """A function may serve another route unprotected, if it is protected on one."""
    app = FastAPI()
    protect(app, guard)

    def pay() -> str:
        return "paid"

    app.post("/pay")(idempotent(guard)(pay))
    app.post("/internal")(pay)
    with TestClient(app) as client:
        assert [client.post(path).json() for path in ("/pay", "/internal")] == ["paid"] * 2


def test_a_class(guard: Guard) -> None:
    """Its methods are decorated, and not the class."""
    with pytest.raises(ConfigurationError, match="decorate its methods"):
        idempotent(guard)(User)


def test_a_scope_that_the_function_does_not_have(guard: Guard) -> None:
    """Said when it is decorated, with the parameters that there are."""
    with pytest.raises(ConfigurationError, match=r"has no such parameter, it has order"):

        @idempotent(guard, scope=scopes.first_of(scopes.argument("customer.id"), scopes.public()))
        def pay(order: Order) -> None: ...


@pytest.mark.parametrize("path", ["", "user.", "user id", 7])
def test_an_argument_that_is_none(path: str) -> None:
    """A scope is the name of a parameter, or of an attribute of one."""
    with pytest.raises(ConfigurationError, match="expected a parameter"):
        scopes.argument(path)


def test_no_guard() -> None:
    """Bare, the decorator would take the function for its guard."""
    with pytest.raises(ConfigurationError, match="was given no guard"):
        idempotent(lambda: 1)  # type: ignore[arg-type]  # as people write it


def test_options_are_checked(guard: Guard) -> None:
    """As those of any route."""
    with pytest.raises(ConfigurationError, match="no such option"):
        idempotent(guard, requires=True)  # type: ignore[call-arg]  # a typing mistake


def test_protecting_too_late_or_twice(guard: Guard) -> None:
    """Where it would have no effect, it says so."""
    app = FastAPI()
    protect(app, guard)
    with pytest.raises(ConfigurationError, match="twice"):
        protect(app, guard)
    with TestClient(FastAPI()) as started, pytest.raises(ConfigurationError, match="had started"):
        protect(started.app, guard)  # type: ignore[arg-type]  # the application that was given above
    with pytest.raises(ConfigurationError, match="expected an application of FastAPI's"):
        protect(lambda: 1, guard)  # type: ignore[arg-type]  # another ASGI application


def test_a_middleware_cannot_know_arguments() -> None:
    """A scope that only a decorated endpoint has is refused by name."""
    from retrysafe import asgi

    guard = Guard("memory:", scope=scopes.argument("user.id"))
    app = FastAPI()
    app.add_middleware(asgi.Middleware, guard=guard)
    with TestClient(app) as client, pytest.raises(ConfigurationError, match="decorated with @idempotent"):
        client.post("/pay", headers={"Idempotency-Key": KEY})


def test_called_by_other_code() -> None:
    """A plain function stays one, and a coroutine function too: tests call them without a request."""
    shop = Shop()
    assert shop.create(Order(amount=3), User(id="alice")) == {"number": 1, "amount": 3}

    @idempotent(shop.guard)
    async def awaited(user: User) -> str:
        return user.id

    assert asyncio.run(awaited(User(id="bob"))) == "bob"


def test_another_decorator_below() -> None:
    """A plain function around a coroutine function is awaited, as FastAPI does without us."""
    shop = Shop()

    async def awaited(user: SignedIn) -> str:
        shop.runs.append(1)
        return user.id

    @wraps(awaited)
    def timed(*args: Any, **named: Any) -> Any:
        return awaited(*args, **named)

    shop.post("/timed", timed)
    with shop.client as client:
        assert [send(client, "/timed").json() for _ in range(2)] == ["alice", "alice"]
    assert shop.runs == [1]


def test_a_request_of_its_own(guard: Guard) -> None:
    """An endpoint may ask for the request itself, and for keyword arguments."""
    app = FastAPI()
    protect(app, guard)

    @app.post("/pay")
    @idempotent(guard)
    async def pay(request: Request) -> str:
        return request.headers["X-Tenant"]

    headers = {"Idempotency-Key": KEY, "X-Tenant": "7"}
    with TestClient(app) as client:
        assert [client.post("/pay", headers=headers).json() for _ in range(2)] == ["7", "7"]


@pytest.mark.parametrize("outermost", [False, True])
def test_below_a_middleware_that_has_claimed(outermost: bool) -> None:
    """One claim per request: what a middleware outside guards is not claimed again inside."""
    from retrysafe import asgi

    guard = Guard("memory:", scope=scopes.header("X-Tenant"))
    app, runs = FastAPI(), list[int]()
    protect(app, guard)
    if not outermost:
        app.add_middleware(asgi.Middleware, guard=guard)

    @app.post("/pay")
    @idempotent(guard)
    def pay() -> int:
        runs.append(1)
        return len(runs)

    headers = {"Idempotency-Key": KEY, "X-Tenant": "7"}
    with TestClient(asgi.Middleware(app, guard) if outermost else app) as client:
        assert [client.post("/pay", headers=headers).json() for _ in range(2)] == [1, 1]
    assert runs == [1]
