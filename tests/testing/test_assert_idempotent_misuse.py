"""What `assert_idempotent` says about a call that cannot work, before it sends anything; and other bodies."""

import asyncio
import json
from typing import Any, cast
from uuid import UUID, uuid4

import flask
import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from retrysafe import Guard, Wire, scopes
from retrysafe._core.problems import CATALOGUE
from retrysafe.testing import assert_idempotent, assert_idempotent_async
from retrysafe.testing.assertions.flow import _BY_CODE
from retrysafe.testing.assertions.request import Body, another
from tests.testing.broken_shops import Shop

GUARD = Guard("memory:", scope=scopes.public())
KNOWN = (
    "expected Starlette's or FastAPI's TestClient, an httpx.Client, a requests.Session, Flask's "
    "app.test_client(), a werkzeug.test.Client or a django.test.Client"
)


async def coroutine() -> int:
    return 1


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        (
            {"effect": len},
            TypeError,
            "no such argument: effect; there are effects, json, data, content, params, headers, expect, "
            "changed, concurrent, omitted, other, ignore_headers, guard, wire, profile, key_header",
        ),
        (
            {"effects": 5},
            TypeError,
            "effects=5 must be a function that returns a number, such as lambda: len(payments)",
        ),
        (
            {"effects": lambda: [1]},
            TypeError,
            "effects returned [1]: expected a whole number, such as len(payments)",
        ),
        (
            {"effects": coroutine},
            TypeError,
            "effects is a coroutine function: use assert_idempotent_async, or a plain function",
        ),
        (
            {"json": coroutine},
            TypeError,
            "a function of the request is a coroutine function: use assert_idempotent_async, or a "
            "plain function",
        ),
        (
            {"json": {}, "data": {}},
            TypeError,
            "json= and data= were given: a request has one body",
        ),
        (
            {"content": iter([b"a"])},
            TypeError,
            "content is list_iterator: expected bytes or text, which can be sent again",
        ),
        (
            {"headers": ["X-User"]},
            TypeError,
            "headers is list: expected a mapping of names to values",
        ),
        (
            {"headers": {"X-User": 5}},
            TypeError,
            "headers has 'X-User': expected names and values of headers, as text",
        ),
        (
            {"headers": {"idempotency-key": "k"}},
            TypeError,
            "headers has Idempotency-Key: keys are made here, one for each step; leave it out",
        ),
        (
            {"concurrent": 1},
            ValueError,
            "concurrent=1 must be 2 or more, or 0 to send none at once",
        ),
        (
            {"guard": GUARD, "profile": "erp"},
            TypeError,
            "guard= and profile= were given: give one of them",
        ),
        ({"guard": "memory:"}, TypeError, "guard='memory:' is not a Guard"),
        ({"wire": "stripe"}, TypeError, "wire='stripe' is not a Wire"),
        (
            {"profile": "strip"},
            ValueError,
            "profile='strip' is not a profile: there are ietf, stripe, validation-api, erp, agents, "
            "workflow-control, job-callbacks",
        ),
        (
            {"ignore_headers": "X-Served-By"},
            TypeError,
            "ignore_headers='X-Served-By' must be a tuple of names, such as (\"X-Served-By\",)",
        ),
        (
            {"other": {"header": {}}},
            TypeError,
            "other has header: expected headers alone, or another client",
        ),
        (
            {"other": {"headers": {"idempotency-key": "k"}}},
            TypeError,
            "other has the header Idempotency-Key: it is sent the first user's key; leave it out",
        ),
        (
            {"other": {"headers": "X-User"}},
            TypeError,
            "headers is str: expected a mapping of names to values",
        ),
        (
            {"expect": "402"},
            ValueError,
            "expect='402' is not a status: expected a number, such as 402",
        ),
        (
            {"changed": None},
            TypeError,
            "changed=None must be a mapping with some of path, json, data, content, params; or False",
        ),
        (
            {"changed": {"headers": {}}},
            TypeError,
            "changed has headers: expected some of path, json, data, content, params",
        ),
        ({"omitted": 1}, TypeError, "omitted=1 must be True or False"),
        (
            {"params": "a=1"},
            TypeError,
            "params is 'a=1': expected a mapping or pairs; text may stand in the path",
        ),
        (
            {"wire": Wire(methods=frozenset({"PUT", "PATCH"}))},
            ValueError,
            "method='POST' is not protected: expected one of PATCH, PUT",
        ),
    ],
)
def test_arguments_that_cannot_work(how: dict[str, Any], kind: type[Exception], message: str) -> None:
    """What was found, what was expected, what to do; and nothing was sent."""
    shop = Shop()
    with pytest.raises(kind) as caught:
        assert_idempotent(shop.client, "POST", "/pay", **how)
    assert str(caught.value) == message
    assert shop.runs == []


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"content": b"<order/>"},
            "the body is not JSON, so that another one of its kind cannot be made: pass "
            'changed={"content": ...} with one that the application accepts, or changed=False',
        ),
        (
            {"json": [1], "changed": {"json": [1]}},
            "changed={'json': [1]} is the same request: give it another body",
        ),
    ],
)
def test_another_body_has_to_be_another(how: dict[str, Any], message: str) -> None:
    shop = Shop()
    with pytest.raises(ValueError, match=r"the body is not JSON|is the same request") as caught:
        assert_idempotent(shop.client, "POST", "/pay", **how)
    assert str(caught.value) == message
    assert shop.runs == []


def test_json_that_cannot_be_encoded() -> None:
    with pytest.raises(TypeError, match="not JSON serializable") as caught:
        assert_idempotent(Shop().client, "POST", "/pay", json={"id": uuid4()})
    assert caught.value.__notes__ == ["Encode what json.dumps does not know yourself, and pass content="]


def test_a_path_that_is_not_text() -> None:
    with pytest.raises(TypeError) as caught:
        assert_idempotent(Shop().client, "POST", cast("str", 5))
    assert str(caught.value) == "path is 5: expected text, such as '/pay', or a function that returns it"


# --- clients


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (
            object(),
            f"builtins.object is not a client that assert_idempotent knows: {KNOWN}",
        ),
        (
            FastAPI(),
            "fastapi.applications.FastAPI is called itself, as applications and classes are: expected a "
            "client of the application, such as TestClient(app), app.test_client() or django.test.Client()",
        ),
        (
            flask.Flask("shop"),
            "flask.app.Flask is called itself, as applications and classes are: expected a client of the "
            "application, such as TestClient(app), app.test_client() or django.test.Client()",
        ),
        (
            httpx.AsyncClient(),
            "httpx.AsyncClient is asynchronous: use `await assert_idempotent_async(client, ...)`, with an "
            "httpx.AsyncClient or a django.test.AsyncClient",
        ),
    ],
)
def test_what_is_not_a_client(client: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        assert_idempotent(client, "POST", "/pay")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("client", "name", "more"),
    [
        (object(), "builtins.object", ""),
        (
            TestClient(FastAPI()),
            "starlette.testclient.TestClient",
            "; it blocks: call assert_idempotent(client, ...)",
        ),
    ],
)
def test_what_is_not_an_async_client(client: Any, name: str, more: str) -> None:
    with pytest.raises(TypeError) as caught:
        asyncio.run(assert_idempotent_async(client, "POST", "/pay"))
    assert str(caught.value) == (
        f"{name} is not a client that assert_idempotent_async knows: expected a django.test.AsyncClient, "
        "or an httpx.AsyncClient such as httpx.AsyncClient(transport=httpx.ASGITransport(app), "
        f'base_url="http://test"){more}'
    )


def test_the_other_users_client_is_checked_too() -> None:
    shop = Shop()
    with pytest.raises(TypeError, match=r"builtins\.object is not a client"):
        assert_idempotent(shop.client, "POST", "/pay", other=cast("Any", object()))
    assert shop.runs == []


# --- another body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"name": "ann", "amount": 5}, {"name": "ann", "amount": 6}),
        ({"items": [{"id": "a", "price": 1.5}]}, {"items": [{"id": "a", "price": 2.5}]}),
        ({"on": "2026-01-09", "by": "ann"}, {"on": "2026-01-08", "by": "ann"}),
        ({"price": "12.50"}, {"price": "12.51"}),
        ({"mail": "ann@example.org"}, {"mail": "ann@example.orh"}),
        ({"gift": True}, {"gift": False}),
        ({"note": "…"}, {"note": "…x"}),
        ({"note": None}, {"note": None, "changed": 1}),
        ({}, {"changed": 1}),
        ([], [1]),
        (None, 1),
    ],
)
def test_one_value_is_changed(body: object, expected: object) -> None:
    """A number if there is one, and of a text its last letter or digit."""
    assert another(body) == expected


def test_a_changed_uuid_is_one() -> None:
    """For each of its last digits."""
    ids = [f"{uuid4()}"[:-1] + digit for digit in "0123456789abcdef"]
    changed = [cast("str", another(one)) for one in ids]
    assert all(UUID(new) != UUID(old) for new, old in zip(changed, ids, strict=True))


@pytest.mark.parametrize(
    ("body", "sent", "changed"),
    [
        (Body("data", {"a": ["b", 1], "c": 2}), b"a=b&a=1&c=2", b"a=c&a=1&c=2"),
        (Body("data", [("a", "1")]), b"a=1", b"a=2"),
        (Body("data", '{"a": 1}'), b'{"a": 1}', b'{"a": 2}'),
        (Body("content", b'{"a": 1}'), b'{"a": 1}', b'{"a": 2}'),
        (Body("json", {"a": 1}), b'{"a": 1}', b'{"a": 2}'),
    ],
)
def test_bodies_in_every_form(body: Body, sent: bytes, changed: bytes) -> None:
    other = body.another()
    assert other is not None
    assert (body.encode()[0], other.encode()[0]) == (sent, changed)


@pytest.mark.parametrize("how", [{}, {"data": {}}, {"content": b""}])
def test_without_a_body_the_query_is_changed(how: dict[str, Any]) -> None:
    """It is compared as well.  The shop refuses every other query, and takes none for another body."""

    class Asked(Shop):
        def respond(self, request: Any) -> Any:
            asked.append(request.full_path)
            return super().respond(request)

    asked: list[str] = []
    with pytest.raises(AssertionError, match="another body with the same key got the first one's response"):
        assert_idempotent(Asked().client, "POST", "/pay?a=1", params={"b": [2, 3]}, **how)
    assert asked == ["/pay?a=1&b=2&b=3", "/pay?a=1&b=2&b=3", "/pay?a=1&b=2&b=3&changed=1"]


def test_a_content_type_of_ones_own() -> None:
    """It replaces the one that follows from the kind of body."""

    class Typed(Shop):
        def respond(self, request: Any) -> Any:
            types.add((request.content_type, request.get_data()))
            return super().respond(request)

    types: set[tuple[str, bytes]] = set()
    headers = {"content-type": "application/vnd.shop+json"}
    assert_idempotent(Typed().client, "POST", "/pay", json={"a": 1}, headers=headers)
    bodies = [json.dumps({"a": a}).encode() for a in (1, 2)]
    assert types == {("application/vnd.shop+json", body) for body in bodies}


def test_every_problem_has_advice() -> None:
    assert _BY_CODE.keys() == CATALOGUE.keys()
