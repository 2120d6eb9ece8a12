"""`assert_idempotent` against real applications that are right, by every kind of client."""

import asyncio
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text
from werkzeug.test import Client as WerkzeugClient

from retrysafe import Guard, NotDone, Wire, scopes, stores, wsgi
from retrysafe.fastapi import idempotent, protect
from retrysafe.sqlalchemy import sessionmaker
from retrysafe.testing import assert_idempotent, assert_idempotent_async
from tests.testing import django_shop, shops
from tests.testing.shops import ALICE, BOB, TOGETHER, Till

JSON: dict[str, Any] = {"json": {"amount": 5}, "headers": ALICE}
FORM: dict[str, Any] = {"data": {"amount": 5}, "headers": ALICE}


@pytest.fixture
def till() -> Iterator[Till]:
    till = Till()
    yield till
    till.guard.close()


def seen(till: Till) -> dict[str, int]:
    """How the calls have ended: one in flight met all its duplicates, and they were refused."""
    return dict(Counter(till.verdicts))


# A first request, one with a fresh key and one of the concurrent ones run; the first is repeated twice, the
# concurrent one once; another body is refused, and so are the other concurrent ones.
REFUSED = {"completed": 3, "replayed": 3, "key-reused": 1, "in-flight": TOGETHER - 1}


# --- clients


@pytest.mark.parametrize("lasting", [True, False], ids=["with", "without with"])
def test_test_client_of_fastapi(till: Till, lasting: bool) -> None:
    """On one event loop for all requests, or on one for each."""
    client = TestClient(shops.fastapi(till))
    if lasting:
        with client:
            response = assert_idempotent(client, "POST", "/pay", effects=till.count, **JSON)
    else:
        response = assert_idempotent(client, "POST", "/pay", effects=till.count, **JSON)
    assert response.json() == {"number": 1, "amount": 5}
    assert seen(till) == REFUSED


def test_middleware_around_starlette(till: Till) -> None:
    client = TestClient(shops.starlette(till))
    response = assert_idempotent(
        client, "post", "/pay", content=b'{"a": 1}', headers=ALICE, effects=till.count
    )
    assert response.headers["location"] == "/payments/1"
    assert seen(till) == REFUSED


@pytest.mark.parametrize("preserving", [True, False], ids=["with", "without with"])
def test_test_client_of_flask(till: Till, preserving: bool) -> None:
    """Each thread has a client of its own, which is signed in as the test's is."""
    client = shops.flask_app(till).test_client()
    assert client.post("/sign-in").status_code == 200
    how: dict[str, Any] = {**FORM, "headers": {**ALICE, "X-Session": "yes"}}
    if preserving:
        with client:
            response = assert_idempotent(client, "POST", "/pay", effects=till.count, **how)
    else:
        response = assert_idempotent(client, "POST", "/pay", effects=till.count, **how)
    assert response.get_json() == {"number": 1, "amount": 5}
    assert seen(till) == REFUSED


def test_test_client_of_werkzeug(till: Till) -> None:
    client = WerkzeugClient(shops.flask_app(till))
    assert assert_idempotent(client, "POST", "/pay", effects=till.count, **FORM).status_code == 201
    assert seen(till) == REFUSED


def test_httpx_with_a_wsgi_application(till: Till) -> None:
    with httpx.Client(transport=httpx.WSGITransport(shops.flask_app(till)), base_url="http://shop") as client:
        assert assert_idempotent(client, "POST", "/pay", effects=till.count, **FORM).status_code == 201
    assert seen(till) == REFUSED


def test_httpx_and_requests_over_the_network(till: Till) -> None:
    """Two kinds of clients, and two users with their own."""
    with (
        shops.served(shops.flask_app(till)) as address,
        httpx.Client(base_url=address, headers=ALICE) as alice,
        requests.Session() as bob,
    ):
        bob.headers.update(BOB)
        assert (
            assert_idempotent(alice, "POST", "/pay", data={"amount": 5}, effects=till.count).status_code
            == 201
        )
        till.pausing = False
        response = assert_idempotent(bob, "POST", f"{address}/pay", data={"amount": 5}, effects=till.count)
        assert response.json() == {"number": 4, "amount": 5}
        module: Any = requests
        assert assert_idempotent(module, "POST", f"{address}/pay", effects=till.count, **FORM).ok


@pytest.mark.parametrize("effects", ["plain", "coroutine"])
def test_async_client(till: Till, effects: str) -> None:
    """On the loop of the test: the duplicates are tasks beside the first one."""

    async def count() -> int:
        return till.count()

    async def data() -> dict[str, int]:
        return {"amount": 5}

    async def check() -> httpx.Response:
        transport = httpx.ASGITransport(shops.fastapi(till))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            if effects == "plain":
                return await assert_idempotent_async(client, "POST", "/pay", effects=till.count, **JSON)
            how: dict[str, Any] = {"json": data, "headers": ALICE, "other": {"headers": BOB}}
            return await assert_idempotent_async(client, "POST", "/pay", effects=count, **how)

    assert asyncio.run(check()).json() == {"number": 1, "amount": 5}
    others = {} if effects == "plain" else {"completed": 1, "replayed": 2}
    assert seen(till) == {verdict: REFUSED[verdict] + others.get(verdict, 0) for verdict in REFUSED}


def test_test_client_of_django(till: Till, tmp_path: Path) -> None:
    """Threads that the test did not start leave no connection open: a test database is dropped afterwards."""
    with django_shop.project(till, tmp_path, django_shop.PROTECTED) as project:
        client: Any = django_shop.test.Client()
        response = assert_idempotent(client, "POST", "/pay", effects=till.count, **FORM)
        mine = django_shop.db.connections[django_shop.DATABASE]
        assert [one for one in project.connections if one is not mine and one.connection is not None] == []
        assert len({id(one) for one in project.connections}) == 2
    assert response.json() == {"number": 1, "amount": 5}
    assert seen(till) == REFUSED


def test_django_behind_the_middleware_for_wsgi(till: Till, tmp_path: Path) -> None:
    """Django's own client does not pass through it; one that calls WSGI does."""
    with django_shop.project(till, tmp_path):
        application = wsgi.Middleware(django_shop.handlers.WSGIHandler(), till.guard)
        with httpx.Client(transport=httpx.WSGITransport(application), base_url="http://shop") as client:
            assert assert_idempotent(client, "POST", "/pay", effects=till.count, **FORM).status_code == 201
    assert seen(till) == REFUSED


def test_inside_a_transaction_of_django(till: Till, tmp_path: Path) -> None:
    """Where a test is rolled back, threads would not see its rows: that is said, and nothing is sent."""
    client = WerkzeugClient(shops.flask_app(till))
    with (
        django_shop.project(till, tmp_path),
        django_shop.db.transaction.atomic(using=django_shop.DATABASE),
    ):
        with pytest.raises(RuntimeError) as caught:
            assert_idempotent(client, "POST", "/pay", effects=till.count, **FORM)
        assert till.count() == 0
        assert_idempotent(client, "POST", "/pay", effects=till.count, concurrent=0, **FORM)
    assert str(caught.value) == (
        "this test runs inside a transaction of Django's (django.test.TestCase, or pytest-django without "
        "transaction=True), and concurrent requests in other threads do not see what it has written: use "
        "TransactionTestCase or @pytest.mark.django_db(transaction=True), or pass concurrent=0"
    )


# --- applications


def test_duplicates_that_wait() -> None:
    """They get the response of the one that ran, and that is right, too."""
    till = Till(in_flight="wait", wait_for=shops.PATIENCE)
    with TestClient(shops.fastapi(till)) as client:
        assert_idempotent(client, "POST", "/pay", effects=till.count, **JSON)
    assert seen(till) == {"completed": 3, "replayed": 3 + TOGETHER - 1, "key-reused": 1}


def test_effects_in_the_database(tmp_path: Path) -> None:
    """Counted by the application's own engine, which sees what was committed."""
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as db:
        db.execute(text("CREATE TABLE orders (item TEXT NOT NULL)"))
    guard = Guard(stores.from_engine(engine), scope=scopes.header("X-User"), effects="database")
    sessions = sessionmaker(guard)
    app = FastAPI()
    protect(app, guard)

    def count() -> int:
        with engine.connect() as db:
            return int(db.execute(text("SELECT count(*) FROM orders")).scalar_one())

    @app.post("/orders")
    @idempotent(guard)
    def order(item: str) -> dict[str, str]:
        with sessions.begin() as db:
            db.execute(text("INSERT INTO orders VALUES (:item)"), {"item": item})
        return {"ordered": item}

    with TestClient(app) as client:
        how: dict[str, Any] = {"params": {"item": "apple"}, "headers": ALICE, "other": {"headers": BOB}}
        assert assert_idempotent(client, "POST", "/orders", effects=count, **how).status_code == 200
    assert count() == 4
    engine.dispose()


@pytest.mark.parametrize("named", ["guard", "profile", "neither"])
@pytest.mark.parametrize("profile", ["ietf", "stripe", "validation-api", "erp", "agents", "workflow-control"])
def test_profiles(profile: str, named: str) -> None:
    """Names and statuses of the guard or the profile; most need neither."""
    till = Till(profile=profile)
    given: dict[str, Any] = {"guard": till.guard, "profile": profile}
    how: dict[str, Any] = {name: value for name, value in given.items() if name == named}
    if profile == "agents" and named == "neither":
        how["key_header"] = "X-Idempotency-Key"
    with TestClient(shops.fastapi(till)) as client:
        assert_idempotent(client, "POST", "/pay", effects=till.count, **JSON, **how)
    assert seen(till) == REFUSED


def test_an_envelope_and_headers_of_its_own() -> None:
    """All that a wire may change: statuses, the form of problems, names, strict keys, what is dropped."""
    wire = Wire(
        key_header="X-Key",
        longest_key=20,
        strict_keys=True,
        replayed_header="X-Again",
        statuses={"key-reused": 409, "in-flight": 425},
        render_problem=lambda problem: {"wrong": problem.detail},
    )
    till = Till(wire=wire, drop_headers=("X-Served-By",))
    app = shops.fastapi(till)
    served_by = iter(range(100))

    @app.middleware("http")
    async def add_header(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        response = await call_next(request)
        response.headers["X-Served-By"] = str(next(served_by))
        return response

    with TestClient(app) as client:
        assert_idempotent(client, "POST", "/pay", effects=till.count, guard=till.guard, **JSON)
        till.pausing = False
        how: dict[str, Any] = {"wire": wire, "ignore_headers": ("x-served-by",)}
        assert_idempotent(client, "POST", "/pay", effects=till.count, **JSON, **how)


def test_another_user(till: Till) -> None:
    """By headers or by a client, that user has a run of their own, and both get their own responses again."""
    app = shops.fastapi(till)
    with TestClient(app) as client:
        assert_idempotent(client, "POST", "/pay", effects=till.count, other={"headers": BOB}, **JSON)
    assert till.verdicts[-3:] == ["completed", "replayed", "replayed"]
    till.pausing = False
    bob = TestClient(app, headers=BOB)
    assert_idempotent(TestClient(app, headers=ALICE), "POST", "/pay", json={"amount": 5}, other=bob)
    assert seen(till)["completed"] == 8


def refuse_twice(till: Till) -> None:
    """Have the handler refuse an amount that was paid before."""

    def refuse(amount: int) -> None:
        if amount in till.payments:
            raise HTTPException(409, "taken")

    till.before = refuse


def test_a_handler_that_refuses_the_same_data_twice(till: Till) -> None:
    """Functions make other data for each key, and the same data for each retry."""
    refuse_twice(till)
    amounts = iter(range(1, 100, 10))
    how: dict[str, Any] = {"json": lambda: {"amount": next(amounts)}, "headers": lambda: ALICE}
    with TestClient(shops.fastapi(till)) as client:
        assert_idempotent(client, "POST", lambda: "/pay", effects=till.count, **how)
    assert till.payments == [1, 11, 21]


def test_a_refusal_is_replayed_too(till: Till) -> None:
    """With the status that the test expects."""
    till.after = lambda paid: JSONResponse({"declined": paid["amount"]}, 402)
    with TestClient(shops.fastapi(till)) as client:
        response = assert_idempotent(client, "POST", "/pay", expect=402, effects=till.count, **JSON)
    assert (response.status_code, response.json()) == (402, {"declined": 5})


def raising(error: Exception) -> Callable[[object], Any]:
    def fail(_: object) -> None:
        raise error

    return fail


def test_a_failure_is_replayed_too(till: Till) -> None:
    """With a client that gives the response instead of the exception; one that raises says at which step."""
    till.after = raising(OSError("no card reader"))
    app = shops.fastapi(till)
    client = TestClient(app, raise_server_exceptions=False)
    assert_idempotent(client, "POST", "/pay", expect=500, effects=till.count, **JSON)
    with pytest.raises(OSError, match="no card reader") as caught:
        assert_idempotent(TestClient(app), "POST", "/pay", expect=500, effects=till.count, **JSON)
    assert caught.value.__notes__ == ["assert_idempotent was sending POST /pay"]


def test_a_failure_of_one_of_the_concurrent_requests(till: Till) -> None:
    """Its exception is raised in the test, after all have ended."""
    till.before = lambda amount: till.count() == 2 and raising(OSError("no card reader"))(amount)
    with pytest.raises(OSError, match="no card reader") as caught:
        assert_idempotent(TestClient(shops.fastapi(till)), "POST", "/pay", effects=till.count, **JSON)
    assert caught.value.__notes__ == ["assert_idempotent was sending POST /pay 5 times at once"]


def test_responses_without_a_stored_body() -> None:
    """A tombstone is what such a route promises, and has to be said."""
    till = Till()
    with TestClient(shops.fastapi(till, no_store=True)) as client:
        with pytest.raises(AssertionError) as caught:
            assert_idempotent(client, "POST", "/pay", effects=till.count, **JSON)
        till.payments.clear()
        response = assert_idempotent(client, "POST", "/pay", effects=till.count, omitted=True, **JSON)
    assert response.json() == {"number": 1, "amount": 5}
    assert str(caught.value).split("\n")[0] == (
        "the repeated request got a replay without its body (Idempotency-Body: omitted): it is larger than "
        "max_response, a stream, or the route has no_store=True; if that is meant, pass omitted=True"
    )
    till = Till()
    with TestClient(shops.fastapi(till)) as client, pytest.raises(AssertionError) as caught:
        assert_idempotent(client, "POST", "/pay", effects=till.count, omitted=True, **JSON)
    assert str(caught.value).split("\n")[0] == (
        "the repeated request got a replay with its body, expected one without it, because omitted=True was "
        "passed"
    )


def test_a_tombstone_that_is_an_empty_200() -> None:
    """As the wire says, and of successes only."""
    till = Till(wire=Wire(tombstone="empty-200"))
    with TestClient(shops.fastapi(till, no_store=True)) as client:
        assert_idempotent(client, "POST", "/pay", effects=till.count, omitted=True, guard=till.guard, **JSON)


def test_a_route_that_compares_no_bodies() -> None:
    till = Till()
    with TestClient(shops.fastapi(till, fingerprint=None)) as client:
        assert_idempotent(client, "POST", "/pay", effects=till.count, changed=False, **JSON)
    assert "key-reused" not in seen(till)


def test_a_body_that_the_application_refuses_by_itself(till: Till) -> None:
    """1001 is more than it takes, and was refused before the key was asked: another one is given."""
    how: dict[str, Any] = {"json": {"amount": 1000}, "headers": ALICE}
    with TestClient(shops.fastapi(till)) as client:
        with pytest.raises(AssertionError) as caught:
            assert_idempotent(client, "POST", "/pay", effects=till.count, **how)
        till.payments.clear()
        assert_idempotent(
            client, "POST", "/pay", effects=till.count, changed={"json": {"amount": 999}}, **how
        )
    assert str(caught.value).split("\n")[0] == (
        "another body with the same key was refused with 422, but not as a reused key, expected 422 "
        "key-reused; if the application refuses this body by itself, pass changed={...} with one that it "
        "accepts"
    )


# --- refusals of an application that is right


def first_line(application: Any, **how: Any) -> str:
    with TestClient(application) as client, pytest.raises(AssertionError) as caught:
        assert_idempotent(client, "POST", how.pop("path", "/pay"), **how)
    return str(caught.value).split("\n")[0]


REFUSALS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {},
        {"headers": {}},
        "the first request was refused with 401, expected a success (2xx or 3xx); pass headers= (or a "
        "client) that the application accepts",
    ),
    (
        {},
        {"path": "/buy"},
        "the first request was refused with 404, expected a success (2xx or 3xx); is the path right?",
    ),
    (
        {},
        {"path": "/pay/"},
        "the first request was redirected with 307 to /pay, expected a response of the route; pass this path",
    ),
    (
        {},
        {"json": {"sum": 5}},
        "the first request was refused with 422, expected a success (2xx or 3xx); if this is the response to "
        "be tested, pass expect=422",
    ),
    (
        {},
        {"expect": 402},
        "the first request got 201, expected 402, because expect=402 was passed",
    ),
    (
        {"required": True},
        {"key_header": "X-Key"},
        "the first request was refused with 400, expected a success (2xx or 3xx); the key was sent as X-Key: "
        "if the API reads another header, pass guard=, profile= or key_header=",
    ),
    (
        {"scope": scopes.header("X-Tenant")},
        {},
        "the first request was refused with 400, expected a success (2xx or 3xx); its scope= found no "
        "owner of the key: pass headers= that identify the user",
    ),
    (
        {"wire": Wire(strict_keys=True)},
        {},
        "the first request was refused with 400, expected a success (2xx or 3xx); pass guard=, profile= or "
        "wire=, so that keys have the form that it asks for",
    ),
    (
        {"scope": scopes.public()},
        {"other": {"headers": BOB}},
        "the other user's request with the first user's key got the first user's response, expected a run of "
        "its own; does scope= tell these two users apart?",
    ),
    (
        {},
        {"other": {"headers": {"X-User": ""}}},
        "the other user's request with the first user's key was refused with 401, expected a success (2xx or "
        "3xx); pass headers= (or a client) that the application accepts",
    ),
]


@pytest.mark.parametrize(("options", "how", "sentence"), REFUSALS, ids=range(len(REFUSALS)))
def test_what_to_pass_is_said(options: dict[str, Any], how: dict[str, Any], sentence: str) -> None:
    till = Till(**options)
    assert first_line(shops.fastapi(till), **{**JSON, **how}) == sentence


@pytest.mark.parametrize("status", [401, 403, 408, 413, 425, 429])
def test_statuses_that_are_never_stored(till: Till, status: int) -> None:
    """They say that nothing was done, so there is nothing to replay; and a test cannot expect it."""
    till.after, till.pausing = raising(HTTPException(status, "not now")), False
    app = shops.fastapi(till)
    assert first_line(app, expect=status, effects=till.count, **JSON) == (
        f"the repeated request ran again, as it must: {status} says that nothing was done, so it is never "
        "stored, and the next request with the key runs; test a response that is stored"
    )
    assert first_line(app, expect=status, **JSON) == (
        f"the repeated request was not replayed: {status} says that nothing was done, so it is never stored, "
        "and the next request with the key runs; test a response that is stored"
    )


def test_handlers_that_say_that_nothing_was_done(till: Till) -> None:
    till.after, till.pausing = raising(NotDone("closed")), False
    app = shops.fastapi(till)
    assert first_line(app, effects=till.count, **JSON) == (
        "the first request failed with 503, expected a success (2xx or 3xx); the handler raised NotDone, or "
        "one of retry_on, so that the key was released, and there is no response to replay"
    )
    assert first_line(app, expect=503, effects=till.count, **JSON) == (
        "the repeated request ran again, as it must: 503 with Retry-After says that nothing was done, so "
        "it is never stored, and the next request with the key runs; test a response that is stored"
    )


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        (1, "the repeated request got 429, expected the first response again, 201"),
        (4, "the same request with a fresh key was refused with 429, expected a success (2xx or 3xx)"),
    ],
)
def test_a_rate_limit(till: Till, allowed: int, said: str) -> None:
    """It is told apart from a response that is never stored, and from data that is refused twice."""
    app = shops.fastapi(till)
    asked: list[int] = []

    @app.middleware("http")
    async def limit(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        asked.append(1)
        return PlainTextResponse("slow down", 429) if len(asked) > allowed else await call_next(request)

    assert first_line(app, effects=till.count, **JSON) == (
        f"{said}; a rate limit refused it: lift it for this test"
    )


def test_failures_that_run_again() -> None:
    """Where doing it again does no harm, a failure is not replayed, and that is said."""
    till = Till(effects="repeatable")
    till.after = raising(OSError("no card reader"))
    client = TestClient(shops.fastapi(till), raise_server_exceptions=False)
    with pytest.raises(AssertionError) as caught:
        assert_idempotent(client, "POST", "/pay", expect=500, effects=till.count, **JSON)
    assert str(caught.value).split("\n")[0] == (
        'the repeated request ran again: effects went from 1 to 2; with effects="repeatable", '
        'effects="database" or failed="retry" a failure is not replayed, and the next request with the key '
        "runs; otherwise: is the route decorated with @idempotent, or is the middleware installed?"
    )


def test_the_same_data_with_a_fresh_key(till: Till) -> None:
    """An application that refuses it is right, and the test has to bring other data."""
    refuse_twice(till)
    assert first_line(shops.fastapi(till), effects=till.count, **JSON) == (
        "the same request with a fresh key was refused with 409, expected a success (2xx or 3xx); if the "
        "application refuses the same data twice, pass functions, such as json=lambda: {...}: they are "
        "called once for each key"
    )


def test_a_guard_that_was_drained(till: Till) -> None:
    till.guard.drain()
    assert first_line(shops.fastapi(till), effects=till.count, **JSON) == (
        "the first request failed with 503, expected a success (2xx or 3xx); the guard was drained, as it is "
        "when a server stops: call guard.resume()"
    )


# --- what it needs


def test_neither_pytest_nor_a_client_is_imported() -> None:
    """It runs where no test runner and no client's library is installed."""
    code = (
        "import sys; from retrysafe.testing import assert_idempotent, assert_idempotent_async; "
        "print({'pytest', 'httpx', 'starlette', 'werkzeug', 'django', 'requests'} & set(sys.modules))"
    )
    run = functools.partial(subprocess.run, check=True, capture_output=True, text=True)
    assert run([sys.executable, "-I", "-c", code]).stdout == "set()\n"
