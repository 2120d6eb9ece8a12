"""Exceptions: an application's own handlers give the same response with and without a key."""

from typing import Any

import pytest
from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse

from retrysafe import NotDone
from tests.fastapi.shop import Shop, SignedIn, replayed, send


class OutOfStock(Exception):
    pass


def raising(shop: Shop, error: Exception, **options: Any) -> None:
    def fail(user: SignedIn) -> None:
        shop.runs.append(1)
        raise error

    shop.post("/fail", fail, **options)


def handle(shop: Shop, kind: Any, status: int) -> list[Exception]:
    seen: list[Exception] = []

    def respond(_: Request, error: Exception) -> JSONResponse:
        seen.append(error)
        return JSONResponse({"sorry": type(error).__name__}, status)

    shop.app.add_exception_handler(kind, respond)
    return seen


@pytest.mark.parametrize("kind", [Exception, 500])
def test_a_handler_for_everything(kind: Any) -> None:
    """Its response is sent, stored and replayed, and it is called once."""
    shop = Shop()
    seen = handle(shop, kind, 500)
    raising(shop, ValueError("no"))
    with shop.client as client:
        without = send(client, "/fail", key=None)
        first, second = send(client, "/fail"), send(client, "/fail")
    assert without.json() == first.json() == second.json() == {"sorry": "ValueError"}
    assert (first.status_code, replayed(second)) == (500, True)
    assert first.headers["x-should-retry"] == "false"
    assert len(seen) == 2


def test_no_handler() -> None:
    """Only then it is our problem."""
    shop = Shop()
    raising(shop, ValueError("no"))
    with shop.client as client:
        first, second = send(client, "/fail"), send(client, "/fail")
    assert (first.status_code, first.json()["code"]) == (500, "handler-failed")
    assert (second.json()["code"], replayed(second)) == ("handler-failed", True)
    assert shop.runs == [1]


@pytest.mark.parametrize("error", [HTTPException(409, "sold"), OutOfStock()])
def test_a_refusal_of_the_endpoint(error: Exception) -> None:
    """It ran and decided: what the application says is the outcome."""
    shop = Shop()
    handle(shop, OutOfStock, 409)
    raising(shop, error)
    with shop.client as client:
        first, second = send(client, "/fail"), send(client, "/fail")
    assert (first.status_code, second.content, replayed(second)) == (409, first.content, True)
    assert shop.runs == [1]


def test_not_done() -> None:
    """A 503 that may be retried, and nothing is stored."""
    shop = Shop()
    raising(shop, NotDone("later", retry_after=7))
    with shop.client as client:
        refused = send(client, "/fail")
        assert (refused.status_code, refused.json()["code"]) == (503, "not-done")
        assert refused.headers["retry-after"] == "7"
        send(client, "/fail")
    assert len(shop.runs) == 2
    assert shop.records() == 0


@pytest.mark.parametrize("error", [NotDone("later"), OutOfStock()])
def test_nothing_done_in_the_applications_words(error: Exception) -> None:
    """A handler of the application's makes the response, and the key is free all the same."""
    shop = Shop()
    handle(shop, type(error), 500)
    raising(shop, error, retry_on=(OutOfStock,))
    with shop.client as client:
        assert send(client, "/fail").json() == {"sorry": type(error).__name__}
        assert not replayed(send(client, "/fail"))
    assert len(shop.runs) == 2


def test_a_response_that_does_not_validate() -> None:
    """The endpoint ran, and FastAPI refuses what it returned: a failure, which is replayed."""
    shop = Shop()

    def wrong(user: SignedIn) -> int:
        shop.runs.append(1)
        return "many"  # type: ignore[return-value]  # that is the mistake

    shop.post("/wrong", wrong)
    with shop.client as client:
        assert [send(client, "/wrong").status_code for _ in range(2)] == [500, 500]
    assert shop.runs == [1]
