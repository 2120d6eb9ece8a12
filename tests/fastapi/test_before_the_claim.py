"""What stands before a claim: authentication, permission, validation, routing.  No record is left of it."""

from typing import Any

import pytest
from fastapi import APIRouter

from retrysafe.fastapi import idempotent
from tests.fastapi.shop import Shop, SignedIn, order, replayed, send


def test_an_expired_token() -> None:
    """401 with its challenge, whatever key is sent; no record, and the key is free."""
    shop = Shop()
    with shop.client as client:
        refused = order(client, token="alice.expired")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert shop.records() == 0
        assert order(client).status_code == 201


def test_a_revoked_user_gets_no_replay() -> None:
    """The stored response is there, and is not for a user that lost the permission."""
    shop = Shop()
    with shop.client as client:
        first = order(client)
        refused = order(client, token="alice.revoked")
        assert (refused.status_code, first.text in refused.text) == (403, False)


def test_a_refreshed_token_replays() -> None:
    """The scope is who it is, and not by which token."""
    shop = Shop()
    with shop.client as client:
        first, second = order(client, token="alice.1"), order(client, token="alice.2")
        assert replayed(second)
        assert second.content == first.content
    assert shop.runs == [("alice", 1)]


def test_two_users_never_meet() -> None:
    """The same key and body from another user is another request."""
    shop = Shop()
    with shop.client as client:
        first, second = order(client, token="alice"), order(client, token="bob")
    assert not replayed(second)
    assert second.content != first.content
    assert shop.runs == [("alice", 1), ("bob", 1)]


def test_a_body_that_is_corrected() -> None:
    """Validation refuses without a claim: the right body runs with the same key."""
    shop = Shop()
    with shop.client as client:
        assert order(client, "many").status_code == 422
        assert shop.records() == 0
        assert order(client, 2).status_code == 201
        assert replayed(order(client, 2))


@pytest.mark.parametrize("path", ["/orders/", "/nowhere"])
def test_what_routing_answers(path: str) -> None:
    """A redirect to the path without its slash, or a 404, leaves the key free."""
    shop = Shop()
    with shop.client as client:
        found = send(client, path, json={"amount": 1}, follow_redirects=False)
        assert found.status_code in (307, 404)
        assert shop.records() == 0
        assert not replayed(order(client))
        # The client follows it, with the same key.
        if found.status_code == 307:
            assert replayed(send(client, path, json={"amount": 1}, follow_redirects=True))


def test_a_required_key() -> None:
    """Refused after authentication, which comes first."""
    shop = Shop(required=True)
    with shop.client as client:
        assert order(client, token="", key=None).status_code == 401
        refused = order(client, key=None)
        assert (refused.status_code, refused.json()["code"]) == (400, "key-missing")
        assert refused.headers["content-type"] == "application/problem+json"
    assert shop.runs == []
    assert [ended.verdict for ended in shop.guard.counts()] == ["key-missing"]


def test_without_a_key() -> None:
    """It runs each time, and is counted."""
    shop = Shop()
    with shop.client as client:
        assert [order(client, key=None).json()["number"] for _ in range(2)] == [1, 2]
    assert [(ended.verdict, ended.route) for ended in shop.guard.counts()] == [("keyless", "/orders")]


@pytest.mark.parametrize("key", ['"a', "a b", "x" * 256])
def test_a_malformed_key(key: str) -> None:
    """Refused by the endpoint, before it runs."""
    shop = Shop()
    with shop.client as client:
        assert order(client, key=key).json()["code"] == "key-invalid"
    assert shop.runs == []


def test_an_owner_that_is_not_known() -> None:
    """A dependency that finds no user is refused, and never falls into a shared scope."""
    shop = Shop()

    def optional(user: Any = None) -> str:
        return "ran"

    shop.post("/optional", optional)
    with shop.client as client:
        assert send(client, "/optional").json()["code"] == "principal-required"


def test_routers_within_routers() -> None:
    """Endpoints of included routers claim as any other, and are counted under their whole path."""
    shop = Shop()
    inner, outer = APIRouter(prefix="/inner"), APIRouter(prefix="/outer")

    @inner.post("/{number}")
    @idempotent(shop.guard)
    async def nested(number: int, user: SignedIn) -> int:
        shop.runs.append(number)
        return number

    outer.include_router(inner)
    shop.app.include_router(outer)
    with shop.client as client:
        assert not replayed(send(client, "/outer/inner/7"))
        assert replayed(send(client, "/outer/inner/7"))
        assert send(client, "/outer/inner/8").json()["code"] == "key-reused"
    assert shop.runs == [7]
