"""The profile `stripe`: what Stripe's API (v1) says of its keys, in process and to Stripe's own SDK.

The SDK is the real one.  It talks over a socket to the reference application on this machine.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import stripe

from retrysafe import current
from retrysafe.testing.adapters.client import until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import fresh
from tests.profiles.conftest import Serve
from tests.profiles.service import Answer, Call, Held, during


@pytest.mark.parametrize("key", ["k" * 255, '"quoted"', "bare_KEY-1"])
def test_keys(serve: Serve, key: str) -> None:
    """Bare and quoted, up to 255 characters."""
    service = serve("stripe")
    assert [service.post(key=key).replayed for _ in range(2)] == [False, True]
    assert len(service.runs) == 1
    refused = service.post(key="k" * 256)
    assert refused.status == 400
    assert refused.document["error"]["type"] == "invalid_request_error"


def test_every_keyed_response_names_the_original(serve: Serve) -> None:
    """`Original-Request` on a first response, a replay, a mismatch and a malformed key; not without a key."""
    service = serve("stripe")
    first, again = (service.post(key="k") for _ in range(2))
    reused = service.post(key="k", body=b"other")
    original = first.header("Request-Id")
    assert [reply.header("Original-Request") for reply in (first, again, reused)] == [original] * 3
    assert len({reply.header("Request-Id") for reply in (first, again, reused)}) == 3
    malformed = service.post(key="a,b")
    assert malformed.header("Original-Request") == malformed.header("Request-Id")
    assert service.post().header("Original-Request") is None


def test_a_mismatch(serve: Serve) -> None:
    """400 in Stripe's envelope, which is not to be retried."""
    service = serve("stripe")
    service.post(key="k")
    reply = service.post(key="k", body=b"other")
    assert reply.status == 400
    assert reply.header("Content-Type") == "application/json"
    assert reply.document["error"].keys() == {"type", "message"}
    assert reply.document["error"]["type"] == "idempotency_error"
    assert reply.header("Stripe-Should-Retry") == reply.header("X-Should-Retry") == "false"


def test_in_flight(serve: Serve) -> None:
    """409 in the same envelope, which is to be retried; it names the request that runs."""
    held = Held()
    service = serve("stripe", held)
    first, meanwhile, after = during(service, held, "k")
    assert meanwhile.status == 409
    error = meanwhile.document["error"]
    assert (error["type"], error["code"]) == ("idempotency_error", "idempotency_key_in_use")
    assert meanwhile.header("Stripe-Should-Retry") == meanwhile.header("X-Should-Retry") == "true"
    assert meanwhile.header("Original-Request") == first.header("Request-Id")
    assert after.replayed
    assert first.essence == after.essence


def test_a_500_is_replayed(serve: Serve) -> None:
    """A result is kept whether it succeeds or fails, 500 included; the first response says so already."""

    async def fail(call: Call) -> Answer:
        return Answer(500, b'{"error": {"type": "api_error"}}')

    service = serve("stripe", fail)
    replies = [service.post(key="k") for _ in range(2)]
    assert [(reply.status, reply.replayed) for reply in replies] == [(500, False), (500, True)]
    assert [reply.header("Stripe-Should-Retry") for reply in replies] == ["false", "false"]
    assert len(service.runs) == 1


def test_a_bug_is_in_the_envelope(serve: Serve) -> None:
    """What the layer sends for an exception is an `api_error`, in the first response and in its replay."""

    async def fail(call: Call) -> Answer:
        raise RuntimeError("a bug")

    service = serve("stripe", fail)
    with pytest.raises(RuntimeError):
        service.post(key="k")
    reply = service.post(key="k")
    assert (reply.status, reply.replayed) == (500, True)
    assert reply.document["error"]["type"] == "api_error"


def test_nothing_is_kept_of_what_failed_validation(serve: Serve) -> None:
    """The handler says that it has not begun, and the corrected request runs with the same key."""

    async def validate(call: Call) -> Answer:
        if call.body != b"valid":
            current().not_started()
            return Answer(400, b'{"error": {"type": "invalid_request_error"}}')
        return Answer(200, b"{}")

    service = serve("stripe", validate)
    statuses = [service.post(key="k", body=body).status for body in (b"wrong", b"valid", b"valid")]
    assert (statuses, len(service.runs)) == ([400, 200, 200], 2)


def test_keys_can_be_reused_after_a_day(serve: Serve) -> None:
    """24 hours after the first request."""
    service = serve("stripe")
    service.post(key="k")
    service.clock.now += 86399
    assert service.post(key="k").replayed
    service.clock.now += 1
    assert not service.post(key="k").replayed


# --- Stripe's SDK


class Counting(stripe.RequestsClient):
    """The SDK's own HTTP client; it counts what it sends."""

    sent = 0

    def request(self, *rest: Any, **more: Any) -> Any:
        self.sent += 1
        return super().request(*rest, **more)


class Sdk:
    def __init__(self, server: Server, retries: int = 0) -> None:
        self.http = Counting()
        self._client = stripe.StripeClient(
            "alice",
            base_addresses={"api": f"http://127.0.0.1:{server.port}"},
            max_network_retries=retries,
            http_client=self.http,
        )

    def post(self, path: str, key: str, **parameters: str) -> Any:
        return self._client.raw_request("post", path, idempotency_key=key, **parameters)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("stripe")
    found = Server("asgi", f"sqlite:///{folder / 'keys.db'}", folder / "effects", profile="stripe")
    yield found
    found.kill()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits half a second and more between its retries."""
    monkeypatch.setattr(stripe.HTTPClient, "INITIAL_DELAY", 0.02)
    monkeypatch.setattr(stripe.HTTPClient, "MAX_DELAY", 0.1)


def test_sdk_replay(server: Server) -> None:
    """One charge, the same id twice, and the SDK's headers."""
    sdk, key, label = Sdk(server), fresh(), fresh("label")
    first, again = (sdk.post(f"/charges?label={label}", key, amount="5") for _ in range(2))
    assert first.data == again.data
    assert first.headers["original-request"] == first.request_id
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["original-request"] == first.request_id
    assert server.effects(label) == 1


def test_sdk_mismatch(server: Server) -> None:
    """`stripe.IdempotencyError`, and not sent again by the SDK."""
    sdk, key, label = Sdk(server, retries=3), fresh(), fresh("label")
    sdk.post(f"/charges?label={label}", key, amount="5")
    with pytest.raises(stripe.IdempotencyError) as raised:
        sdk.post(f"/charges?label={label}", key, amount="6")
    assert raised.value.http_status == 400
    assert raised.value.user_message == "This key was used for a different request."
    assert raised.value.request_id is not None
    assert (sdk.http.sent, server.effects(label)) == (2, 1)


def test_sdk_waits_for_the_first_one(server: Server) -> None:
    """A 409 in flight says `Stripe-Should-Retry: true`: the SDK tries again until it gets the replay."""
    sdk, key, label = Sdk(server, retries=100), fresh(), fresh("label")
    slow = server.started(lambda: Sdk(server).post(f"/slow?ms=600&label={label}", key))
    until(lambda: server.begun(label) > 0)
    again = sdk.post(f"/slow?ms=600&label={label}", key)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.body == slow.result().body
    assert sdk.http.sent > 1
    assert server.effects(label) == 1


def test_sdk_does_not_retry_a_stored_500(server: Server) -> None:
    """By itself it would; `Stripe-Should-Retry: false` on the first 500 says that it would be replayed."""
    sdk, key, label = Sdk(server, retries=3), fresh(), fresh("label")
    with pytest.raises(stripe.APIError) as raised:
        sdk.post(f"/status/500?label={label}", key)
    assert raised.value.http_status == 500
    assert (sdk.http.sent, server.effects(label)) == (1, 1)


def test_sdk_retries_what_was_not_done(server: Server) -> None:
    """503 `not-done` says `Stripe-Should-Retry: true`: the SDK sends the key again, and it runs once."""
    sdk, key, label = Sdk(server, retries=3), fresh(), fresh("label")
    assert sdk.post(f"/notdone?times=2&label={label}", key).code == 201
    assert (sdk.http.sent, server.effects(label)) == (3, 1)


def test_what_failed_validation_over_a_socket(server: Server) -> None:
    """The reference application says that nothing has begun: the same key takes a corrected request."""
    key, label = fresh(), fresh("label")
    fields = [("Idempotency-Key", key)]
    wrong = server.post(f"/validated?label={label}", fields=fields, json_body={"amount": -1})
    right = server.post(f"/validated?label={label}", fields=fields, json_body={"amount": 1})
    assert (wrong.status, right.status, server.effects(label)) == (422, 201, 1)
