"""Deliveries that are signed: nothing is looked up, planted or run before it is known who sent them."""

import json
import time
from typing import Annotated, Any

import fastapi
import flask
import pytest
from fastapi.responses import PlainTextResponse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from retrysafe.callbacks import Payload, receipts, webhooks
from tests.callbacks.http.receiving import Reply, Service
from tests.callbacks.webhooks import deliveries

SECRET = deliveries.WHSEC


class Paid(BaseModel):
    callback_id: str = "1"
    type: str
    amount: int = 0


BODY = b'{"type": "invoice.paid", "amount": 5}'


def signed(body: bytes = BODY, id: str = "msg_1", at: float = 0.0) -> dict[str, str]:
    return webhooks.sign(SECRET, id, time.time() + at, body)


def service_of(kind: str, **options: Any) -> Service:
    return Service(kind, webhook=webhooks.standard(SECRET), event=Paid, **options)


def assert_nothing_left(service: Service) -> None:
    assert (service.records(), service.handled) == (0, [])


def test_delivered_twice(kind: str) -> None:
    """With a new timestamp and signature, as senders sign each delivery; and days later."""
    service = service_of(kind)
    assert service.post(BODY, signed(at=-60)).status == 200
    assert service.post(BODY, signed()).is_duplicate
    service.clock.elapse(75 * 3600.0)
    assert service.post(BODY, signed()).is_duplicate
    assert [event.amount for event in service.handled] == [5]


def test_forged_and_then_genuine(kind: str) -> None:
    """401, counted, and nothing is planted under the id: the genuine event is handled."""
    service = service_of(kind)
    reply = service.post(BODY, {**signed(b"other")})
    assert (reply.status, reply.code) == (401, "signature-invalid")
    assert_nothing_left(service)
    assert service.verdicts() == ["signature-invalid"]
    assert service.post(BODY, signed()).status == 200
    assert service.post(BODY, {**signed(b"other")}).status == 401  # a duplicate is asked, too


@pytest.mark.parametrize(
    "signature", ["", "v1,", "v1,abc", "garbage", "v1,\xff", "v2,AAAA", "v1," + "A" * 9999]
)
def test_signatures_that_are_none(framework: str, signature: str) -> None:
    """Conformance 93: 401, and not 500."""
    service = service_of(framework)
    for body in (BODY, b"\xff\xfe", b""):
        sent = {**signed(), "webhook-signature": signature}
        assert post_bytes(service, body, sent).status == 401
    without = signed()
    del without["webhook-signature"]
    assert service.post(BODY, without).status == 401
    assert_nothing_left(service)


def post_bytes(service: Service, body: bytes, headers: dict[str, str]) -> Reply:
    """Headers with characters that a client library would not send."""
    if service.framework == "flask":
        return service.post(body, headers)
    raw: Any = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    return service.post(body, raw)


def test_two_secrets() -> None:
    """While a secret is rotated, one of two signatures is enough."""
    service = Service("starlette", webhook=webhooks.standard([deliveries.OTHER_WHSEC, SECRET]), event=Paid)
    both = signed()
    both["webhook-signature"] = "v1,AAAA " + both["webhook-signature"]
    assert service.post(BODY, both).status == 200


def test_too_old(framework: str) -> None:
    service = service_of(framework)
    assert service.post(BODY, signed(at=-3600)).code == "signature-invalid"
    assert_nothing_left(service)


def test_signed_and_not_valid(framework: str) -> None:
    """Signed by its sender, and no event: FastAPI says it as it says it of any body."""
    service = service_of(framework)
    for body in (b"", b"{", b"\xff\xfe", b'{"type": NaN}', b'{"type": "\\ud800", "amount": "x"}', b"[]"):
        reply = service.post(body, signed(body))
        assert reply.status == 422, body
        if framework == "fastapi":
            assert reply.json()["detail"][0]["loc"][0] == "body"
        else:
            assert reply.code == "payload-invalid"
    assert_nothing_left(service)


def test_a_handler_for_invalid_requests() -> None:
    """An application's own, of FastAPI."""
    service = service_of("fastapi")
    app: fastapi.FastAPI = service.app

    @app.exception_handler(fastapi.exceptions.RequestValidationError)
    async def mine(request: fastapi.Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse("mine", 418)

    assert service.post(b"{", signed(b"{")).body == b"mine"


def test_another_payload(framework: str) -> None:
    service = service_of(framework)
    service.post(BODY, signed())
    other = b'{"type": "invoice.paid", "amount": 6}'
    assert service.post(other, signed(other)).code == "key-reused"
    assert len(service.handled) == 1


def test_before_any_dependency() -> None:
    """Of FastAPI's: a forger must not have a session opened, and learns nothing of what exists."""
    service, looked = service_of("fastapi"), list[str]()

    def database() -> str:
        looked.append("database")
        return "db"

    def handle(event: Paid, db: Annotated[str, fastapi.Depends(database)], q: int) -> None: ...

    def exists(event: Paid) -> bool:
        looked.append("check")
        return True

    checked = receipts(service.guard, webhook=webhooks.standard(SECRET), check=exists)
    service.add("/looks", service.decorate(checked, handle))
    assert service.post(BODY, signed(b"other"), path="/looks").status == 401
    assert looked == []
    assert service.post(BODY, signed(), path="/looks?q=1").status == 200
    assert looked == ["database", "check"]


@pytest.mark.parametrize("mounted", [False, True])
def test_pages_of_the_application(framework: str, mounted: bool) -> None:
    """Its own page of a 401 is for its users; a sender gets the problem, in a mounted application, too."""
    service = service_of(framework)
    path, app = "/callbacks", service.app
    if mounted and framework != "flask":
        path, app = "/below/callbacks", service.new_app()
        service.add("/callbacks", service.endpoint, app=app)
        service.app.mount("/below", app)
    if framework == "flask":
        app.register_error_handler(401, lambda _: ("mine", 401))
    else:

        async def mine(request: object, error: object) -> PlainTextResponse:
            return PlainTextResponse("mine", 401)

        app.add_exception_handler(401, mine)
        app.add_exception_handler(fastapi.HTTPException, mine)
    reply = service.post(BODY, signed(b"other"), path=path)
    assert (reply.status, reply.code) == (401, "signature-invalid")
    assert service.post(BODY, signed(), path=path).status == 200


@pytest.mark.parametrize("mounted", [False, True])
def test_the_challenge_of_slack(kind: str, mounted: bool) -> None:
    """It goes back, is no event, and is signed like one."""
    service = Service(kind, webhook=webhooks.slack(deliveries.TEXT), event=dict[str, Any])
    path = "/callbacks"
    if mounted and service.framework != "flask":
        app = service.new_app()
        service.add("/callbacks", service.endpoint, app=app)
        service.app.mount("/below", app)
        path = "/below/callbacks"
    body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1a", "token": "t"}).encode()
    headers, _ = deliveries.slack(body, at=int(time.time()))
    reply = service.post(body, headers, path=path)
    assert (reply.status, reply.body) == (200, b"3eZbrw1a")
    assert service.post(body + b" ", headers, path=path).status == 401
    assert_nothing_left(service)
    event, delivery = json.dumps(deliveries.MESSAGE).encode(), deliveries.slack(at=int(time.time()))
    assert service.post(event, delivery.headers, path=path).status == 200
    assert service.post(event, delivery.headers, path=path).is_duplicate


def test_what_a_preset_cannot_compare(framework: str) -> None:
    """Its id is in a header, and its body is not what it should be: refused, and no 500."""
    preset = webhooks.signed(
        deliveries.TEXT, header="x-signature", id_header="x-id", template="{id}.{body}", compare=["type"]
    )
    service = Service(framework, webhook=preset, event=Payload)
    import hashlib
    import hmac

    for body in (b"not JSON", b"[]", b'{"a": 1, "a": 2}'):
        code = hmac.new(deliveries.KEY, b"p-1." + body, hashlib.sha256).hexdigest()
        reply = service.post(body, {"x-signature": code, "x-id": "p-1"})
        assert (reply.status, reply.code) == (422, "payload-invalid")
    assert_nothing_left(service)


def test_a_form_that_was_read_already() -> None:
    """By a function of Flask's that runs before: what was signed are the bytes."""
    service = Service("flask", webhook=webhooks.github(deliveries.TEXT), event=Payload)
    app: flask.Flask = service.app

    @app.before_request
    def look() -> None:
        assert flask.request.form["payload"] == "{}"

    delivery = deliveries.github(b"payload=%7B%7D")
    form = {**delivery.headers, "content-type": "application/x-www-form-urlencoded"}
    assert service.post(delivery.body, form).status == 200
    assert service.post(delivery.body, form).is_duplicate


def test_a_form_that_fastapi_reads() -> None:
    """As an event, and beside one."""
    service = Service("fastapi", webhook=webhooks.github(deliveries.TEXT), event=Payload)
    forms = receipts(service.guard, source="forms")

    def beside(event: Payload, payload: Annotated[str, fastapi.Form()]) -> None: ...

    service.add("/beside", service.decorate(service.receipts, beside))
    service.take("/form", forms, Annotated[Paid, fastapi.Form()])
    form = {"content-type": "application/x-www-form-urlencoded"}
    delivery = deliveries.github(b"payload=%7B%7D")
    sent = {**delivery.headers, **form}
    assert service.post(delivery.body, sent, path="/beside").status == 200
    assert service.post(delivery.body, sent, path="/beside").is_duplicate
    assert service.post(delivery.body + b"!", sent, path="/beside").status == 401
    assert service.post(b"type=x&amount=3", form, path="/form").status == 200


SENT = st.dictionaries(
    st.sampled_from(
        [
            "webhook-id",
            "webhook-timestamp",
            "webhook-signature",
            "content-type",
            "x-request-id",
            "idempotency-key",
            "x-correlation-id",
            "content-encoding",
            "host",
        ]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40).map(
        str.strip
    ),
    max_size=6,
)


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.parametrize("kind", ["fastapi", "starlette", "flask"])
def test_hostile_deliveries(kind: str) -> None:
    """Whatever is sent: no 500, no record, no run."""
    service = service_of(kind, check=lambda _: True)

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=SLOW)
    @given(SENT, st.binary(max_size=60) | st.sampled_from([BODY, b"{}", b"null"]), st.booleans())
    def deliver(headers: dict[str, str], body: bytes, genuine: bool) -> None:
        sent = {**signed(body), **headers} if genuine else headers
        if genuine and not headers.keys() & {"webhook-id", "webhook-timestamp", "webhook-signature"}:
            sent["webhook-signature"] = "v1,AAAA"
        assert post_bytes(service, body, sent).status in (400, 401)

    deliver()
    assert_nothing_left(service)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.dictionaries(
    st.sampled_from(["callback_id", "run_id", "status", "result_uri", "correlation_id", "x"]),
    VALUES,
    max_size=6,
)


@pytest.mark.parametrize("kind", ["fastapi", "starlette", "flask"])
def test_hostile_events(kind: str) -> None:
    """Any JSON, without a signature: what is refused leaves nothing, what is handled is acknowledged next."""
    service = Service(kind, event=dict[str, Any])

    @settings(max_examples=80, deadline=None, database=None, suppress_health_check=SLOW)
    @given(EVENTS)
    def deliver(event: dict[str, Any]) -> None:
        before = service.records()
        first = service.post(event)
        assert first.status in (200, 422), first
        again = service.post(event)
        if first.status == 422:
            assert again.status == 422
            assert service.records() == before or first.code == "key-reused"
        elif event.get("callback_id") not in (None, ""):
            assert again.is_duplicate

    deliver()
