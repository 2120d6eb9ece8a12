"""The wire as a client meets it: one application behind guards whose wires differ."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from retrysafe import ProblemDetails, Wire
from retrysafe.asgi import Middleware
from tests.core.asgi_calls import Client, Message, a_guard, guards


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    while guards:
        guards.pop().close()


async def application(scope: Message, receive: Any, send: Any) -> None:
    """Charges a card, is overloaded, is broken, or has a bug; by its path."""
    await receive()
    match scope["path"]:
        case "/bug":
            raise RuntimeError("a bug")
        case "/broken":
            status = 502
        case "/overloaded":
            status = 503
        case _:
            status = 201
    headers = [(b"content-type", b"text/plain"), (b"x-should-retry", b"maybe"), (b"retry-after", b"7")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"done"})


def fields(client: Client) -> dict[bytes, bytes]:
    return dict(client.got[0]["headers"])


def twice(path: str, wire: Wire | None = None, key: bytes = b"k", **options: Any) -> list[Client]:
    """The same request two times; what an application raises is for its log."""
    guarded = Middleware(application, a_guard(wire=wire, **options))

    async def ask() -> list[Client]:
        clients = [Client(guarded, path, key=key) for _ in range(2)]
        for client in clients:
            try:
                await client()
            except RuntimeError as error:
                assert str(error) == "a bug"  # noqa: PT017 - raised again once the response is out
        return clients

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/broken", "/bug"])
def test_a_stored_failure_is_not_to_be_retried(path: str) -> None:
    """Its first response says so, and each replay."""
    for client in twice(path):
        assert fields(client)[b"x-should-retry"] == b"false"
        assert b"retry-after" not in fields(client)


@pytest.mark.parametrize("path", ["/broken", "/bug"])
def test_a_failure_that_runs_again_may_be_retried(path: str) -> None:
    """Each attempt says so."""
    for client in twice(path, failed="retry"):
        assert not client.replayed
        assert fields(client)[b"x-should-retry"] == b"true"


def test_what_was_not_begun_may_be_retried() -> None:
    """A 503 that says when to come back is released, and says how long to wait."""
    for client in twice("/overloaded"):
        assert not client.replayed
        assert (fields(client)[b"x-should-retry"], fields(client)[b"retry-after"]) == (b"true", b"7")


@pytest.mark.parametrize(("path", "previous"), [("/bug", (500, "handler-failed")), ("/broken", (502, None))])
def test_a_conflict_carries_the_previous_failure(path: str, previous: tuple[int, str | None]) -> None:
    """Status, code and time."""
    _, refused = twice(path, failed="conflict")
    told = json.loads(refused.body)
    assert (refused.status, told["code"]) == (409, "previously-failed")
    assert (told["previous"]["status"], told["previous"].get("code")) == previous
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told["previous"]["at"])


def stripe_error(problem: ProblemDetails) -> dict[str, object]:
    return {"error": {"type": "idempotency_error", "message": problem.detail}}


STRIPE = Wire(
    statuses={"key-reused": 400},
    render_problem=stripe_error,
    should_retry_headers=("X-Should-Retry", "Stripe-Should-Retry"),
    original_id_header="Original-Request",
    keyed_id_header="Original-Request",
    request_id_header="Request-Id",
)


def test_stripes_wire() -> None:
    """`Original-Request` on every keyed response; a mismatch is 400, in Stripe's envelope."""
    first, again = twice("/pay", STRIPE)
    assert first.status == again.status == 201
    assert fields(first)[b"original-request"] == fields(first)[b"request-id"]
    assert fields(again)[b"original-request"] == fields(first)[b"request-id"] != fields(again)[b"request-id"]
    assert (first.replayed, again.replayed) == (False, True)
    guarded = Middleware(application, a_guard(wire=STRIPE))

    async def mismatched() -> Client:
        await Client(guarded, "/pay")()
        return await Client(guarded, "/pay", query_string=b"other=1")()

    refused = asyncio.run(mismatched())
    assert refused.status == 400
    assert json.loads(refused.body)["error"]["type"] == "idempotency_error"
    assert fields(refused)[b"content-type"] == b"application/json"
    assert fields(refused)[b"stripe-should-retry"] == fields(refused)[b"x-should-retry"] == b"false"


@pytest.mark.parametrize("key", [b"k-1", b'"k-1"'])
@pytest.mark.parametrize("path", ["/pay", "/broken", "/bug"])
def test_the_key_is_echoed(path: str, key: bytes) -> None:
    """On the first response and on its replay, as it came."""
    for client in twice(path, Wire(echo_key=True), key):
        assert fields(client)[b"idempotency-key"] == key
    for client in twice(path, None, key):
        assert b"idempotency-key" not in fields(client)


def test_a_missing_owner_is_told_which_header_to_send() -> None:
    """The header that the scope looks for; the request has another one."""
    guarded = Middleware(application, a_guard())

    async def ask() -> Client:
        return await Client(guarded, headers=[(b"idempotency-key", b"k"), (b"x-user", b"1")])()

    refused = asyncio.run(ask())
    assert refused.status == 400
    assert "the header X-Tenant" in json.loads(refused.body)["detail"]
