"""Exceptions: an application's own handlers give the same response with and without a key."""

import logging
from typing import Any

import pytest
from flask import Response, jsonify
from werkzeug.exceptions import Conflict

from retrysafe import NotDone
from tests.flask.shop import Shop, code, replayed, send


class OutOfStock(Exception):
    pass


def raising(shop: Shop, error: BaseException, **options: Any) -> None:
    def fail() -> None:
        shop.runs.append(1)
        raise error

    shop.post("/fail", fail, **options)


def handle(shop: Shop, kind: Any, status: int) -> list[Exception]:
    seen: list[Exception] = []

    def respond(error: Any) -> tuple[Response, int]:
        seen.append(error)
        original = getattr(error, "original_exception", None) or error
        return jsonify(sorry=type(original).__name__), status

    shop.app.register_error_handler(kind, respond)
    return seen


@pytest.mark.parametrize("kind", [Exception, 500])
def test_a_handler_for_everything(kind: Any) -> None:
    """Its response is sent, stored and replayed, and it is called once."""
    shop = Shop()
    seen = handle(shop, kind, 500)
    raising(shop, ValueError("no"))
    without = send(shop.client, "/fail", key=None)
    first, second = send(shop.client, "/fail"), send(shop.client, "/fail")
    assert without.get_json() == first.get_json() == second.get_json() == {"sorry": "ValueError"}
    assert (first.status_code, replayed(second)) == (500, True)
    assert first.headers["X-Should-Retry"] == "false"
    assert len(seen) == 2


def test_no_handler(caplog: pytest.LogCaptureFixture) -> None:
    """Only then it is our problem.  Flask logs the exception, and it is logged once."""
    shop = Shop()
    shop.app.after_request(lambda response: response.headers.add("X-Added", "1") or response)
    raising(shop, ValueError("no"))
    first, second = send(shop.client, "/fail"), send(shop.client, "/fail")
    assert (first.status_code, code(first), replayed(first)) == (500, "handler-failed", False)
    assert (second.data, replayed(second)) == (first.data, True)
    for response in (first, second):
        assert response.headers.getlist("X-Added") == ["1"]
        assert response.headers.getlist("Content-Type") == ["application/problem+json"]
    assert shop.runs == [1]
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [
        True
    ]


def test_a_page_of_the_applications_own_that_says_500() -> None:
    """What looks like an error of the framework's and is none is left as it is."""
    shop = Shop()
    shop.post("/broken", lambda: ("Internal Server Error", 500))
    first, second = send(shop.client, "/broken"), send(shop.client, "/broken")
    assert (first.text, second.text, replayed(second)) == ("Internal Server Error",) * 2 + (True,)


@pytest.mark.parametrize("error", [Conflict(), OutOfStock()])
def test_a_refusal_of_the_view(error: Exception) -> None:
    """It ran and decided: what the application says is the outcome."""
    shop = Shop()
    handle(shop, OutOfStock, 409)
    raising(shop, error)
    first, second = send(shop.client, "/fail"), send(shop.client, "/fail")
    assert (first.status_code, second.data, replayed(second)) == (409, first.data, True)
    assert shop.runs == [1]


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("testing", [True, False])
def test_not_done(key: str | None, testing: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A 503 that may be retried, with a key and without; nothing is stored, and it is no error to Flask."""
    shop = Shop()
    shop.app.testing = testing
    raising(shop, NotDone("later", retry_after=7))
    for _ in range(2):
        refused = send(shop.client, "/fail", key=key)
        assert (refused.status_code, code(refused)) == (503, "not-done")
        assert refused.headers["Retry-After"] == "7"
    assert (len(shop.runs), shop.records(), caplog.records) == (2, 0, [])


@pytest.mark.parametrize("error", [NotDone("later"), OutOfStock()])
@pytest.mark.parametrize("status", [500, 200])
def test_nothing_done_in_the_applications_words(error: Exception, status: int) -> None:
    """A handler of the application's makes the response, and the key is free all the same."""
    shop = Shop()
    handle(shop, type(error), status)
    raising(shop, error, retry_on=(OutOfStock,))
    assert send(shop.client, "/fail").get_json() == {"sorry": type(error).__name__}
    assert not replayed(send(shop.client, "/fail"))
    assert len(shop.runs) == 2


def test_an_exception_that_may_be_tried_again() -> None:
    shop = Shop()
    raising(shop, OutOfStock(), retry_on=(OutOfStock,))
    for _ in range(2):
        refused = send(shop.client, "/fail")
        assert (refused.status_code, code(refused)) == (503, "not-done")
    assert len(shop.runs) == 2


def breakable(shop: Shop) -> list[int]:
    """An `after_request` function that fails while there is something in this list."""
    broken = list[int]()

    @shop.app.after_request
    def after(response: Response) -> Response:
        if broken:
            raise ValueError("not this time")
        return response

    return broken


def test_an_after_request_that_fails() -> None:
    """The client sees a failure, so that is what is stored, and not the success before it."""
    shop = Shop()
    broken = breakable(shop)
    broken.append(1)
    shop.post("/pay", shop.pay)
    first = send(shop.client, "/pay")
    broken.clear()
    second = send(shop.client, "/pay")
    assert (first.status_code, code(first)) == (500, "handler-failed")
    assert (second.data, replayed(second), shop.runs) == (first.data, True, [1])


def test_a_replay_that_an_after_request_breaks() -> None:
    """The framework's page is sent as it is; the record stays, and the next retry replays."""
    shop = Shop()
    broken = breakable(shop)
    shop.post("/pay", lambda: "paid")
    send(shop.client, "/pay")
    broken.append(1)
    assert (send(shop.client, "/pay").status_code, send(shop.client, "/pay", key=None).status_code) == (
        500,
        500,
    )
    broken.clear()
    assert replayed(send(shop.client, "/pay"))


def test_a_replayed_failure_that_an_after_request_breaks() -> None:
    """The page of the new failure has the status of the stored one, and is not mixed with it."""
    shop = Shop()
    broken = breakable(shop)
    raising(shop, ValueError("no"))
    first = send(shop.client, "/fail")
    broken.append(1)
    second = send(shop.client, "/fail")
    assert (second.data, second.content_type, replayed(second)) == (first.data, first.content_type, True)


def test_exceptions_propagate_to_tests() -> None:
    """`app.testing` raises in the test, as Flask does; what happened is stored all the same."""
    shop = Shop()
    shop.app.testing = True
    raising(shop, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        send(shop.client, "/fail")
    assert (code(send(shop.client, "/fail")), shop.runs) == ("handler-failed", [1])


def test_a_worker_that_is_ended() -> None:
    """`SystemExit`, as gunicorn raises it in a worker that takes too long: how far it came is not known."""
    shop = Shop(lease=0.2)
    raising(shop, SystemExit(1), lease=0.2)
    with pytest.raises(SystemExit):
        send(shop.client, "/fail")
    assert shop.guard.runtime.unfinished() == 0
    refused = send(shop.client, "/fail")
    while code(refused) == "in-flight":
        refused = send(shop.client, "/fail")
    assert (code(refused), shop.runs) == ("outcome-unknown", [1])


def test_a_scope_function_that_fails() -> None:
    """An error before the claim is the application's own, with nothing left behind."""
    shop = Shop()

    def scope(_: object) -> str:
        raise LookupError("no such user")

    shop.post("/pay", shop.pay, scope=scope)
    assert send(shop.client, "/pay").status_code == 500
    assert (shop.runs, shop.records(), shop.guard.runtime.unfinished()) == ([], 0, 0)
