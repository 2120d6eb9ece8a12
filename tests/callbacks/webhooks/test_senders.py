"""What is particular to one sender, checked against its own library or the examples of its documentation."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

import pytest
import standardwebhooks
import stripe
from slack_sdk.signature import Clock, SignatureVerifier

from retrysafe.callbacks import webhooks
from retrysafe.callbacks.webhooks import Identity, PayloadInvalid, SignatureInvalid
from retrysafe.errors import ConfigurationError
from tests.callbacks.webhooks import deliveries
from tests.callbacks.webhooks.deliveries import (
    CLOUD_EVENT,
    EVENT,
    KEY,
    MESSAGE,
    NOW,
    OTHER_WHSEC,
    TEXT,
    WHSEC,
    Delivery,
)


def document(value: Any) -> bytes:
    return json.dumps(value).encode()


# --- Standard Webhooks


@pytest.mark.parametrize("body", ['{"type":"invoice.paid"}', "", "no JSON", '{"name":"Zoë"}'])
def test_the_official_library_signs(body: str) -> None:
    """Its headers are accepted by us."""
    at = datetime.fromtimestamp(NOW, tz=UTC)
    signature = standardwebhooks.Webhook(WHSEC).sign(msg_id="msg_1", timestamp=at, data=body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(NOW), "webhook-signature": signature}
    webhooks.standard(WHSEC).verify(headers, body.encode(), NOW)
    with pytest.raises(SignatureInvalid):
        webhooks.standard(OTHER_WHSEC).verify(headers, body.encode(), NOW)


def test_the_official_library_verifies() -> None:
    """What we sign is accepted by it, with one secret and with two."""
    now = datetime.now(UTC).timestamp()
    for secret in (WHSEC, [OTHER_WHSEC, WHSEC], KEY):
        headers = webhooks.sign(secret, "msg_1", now, b'{"n":1}')
        assert standardwebhooks.Webhook(WHSEC).verify(b'{"n":1}', headers) == {"n": 1}
        webhooks.standard(WHSEC).verify(headers, b'{"n":1}', now)


def test_the_example_of_the_specification() -> None:
    """A vector that its libraries share."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = webhooks.sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize("id", ["", "a.b", "a b", "a,b", '"a"', "é", "a\n"])
def test_ids_that_are_not_signed(id: str) -> None:
    with pytest.raises(ConfigurationError, match="id must be"):
        webhooks.sign(WHSEC, id, NOW, b"")


@pytest.mark.parametrize("at", [0, -1, 0.5, NOW * 1000, float("nan"), float("inf")])
def test_a_time_that_is_none(at: float) -> None:
    """Milliseconds, too, which no receiver would accept."""
    with pytest.raises(ConfigurationError, match="timestamp"):
        webhooks.sign(WHSEC, "a", at, b"")


def test_lines_that_a_server_of_wsgi_has_joined() -> None:
    """Without a space.  A signature may itself begin with what looks like the next version."""
    sender = webhooks.standard([WHSEC, OTHER_WHSEC])
    genuine, other = deliveries.standard(), "v1,AAAA"
    valid = genuine.headers["webhook-signature"]
    for joined in (f"{other},{valid}", f"{valid},{other}", f"v1a,AAAA,{valid}", f"{other},{other} {valid}"):
        sender.verify(genuine.having({"webhook-signature": joined}).headers, genuine.body, NOW)
    for number in range(100_000):
        found = deliveries.standard(str(number).encode())
        if found.headers["webhook-signature"].startswith("v1,v1"):
            sender.verify(*found, NOW)
            return
    raise AssertionError("no such signature was found")


def test_svix() -> None:
    """The same under the names of Svix; never some headers of one family and some of the other."""
    sender = webhooks.standard(WHSEC)
    genuine = deliveries.standard()
    svix = {name.replace("webhook", "svix"): value for name, value in genuine.headers.items()}
    sender.verify(svix, genuine.body, NOW)
    assert sender.identify(svix, genuine.body) == Identity("msg_1")
    both = {**svix, "webhook-id": "msg_2"}
    with pytest.raises(SignatureInvalid):
        sender.verify(both, genuine.body, NOW)
    unsigned = {**genuine.headers, "svix-id": "msg_2"}
    sender.verify(unsigned, genuine.body, NOW)
    assert sender.identify(unsigned, genuine.body) == Identity("msg_1")


@pytest.mark.parametrize("id", ["msg_2", "MSG_1", "msg_1 x", "msg_1, msg_1"])
def test_its_id_is_signed(id: str) -> None:
    """A captured delivery cannot be made another event."""
    with pytest.raises(SignatureInvalid):
        webhooks.standard(WHSEC).verify(
            deliveries.standard().having({"webhook-id": id}).headers, deliveries.standard().body, NOW
        )


def test_what_was_signed_cannot_be_cut_in_another_way() -> None:
    """A body that has a timestamp between full stops would otherwise be a second event, with half of it."""
    genuine = deliveries.standard(body=f"note=x.{NOW}.pay=500".encode())
    cut = Delivery(
        {**genuine.headers, "webhook-id": f"msg_1.{NOW}.note=x", "webhook-timestamp": str(NOW)}, b"pay=500"
    )
    with pytest.raises(SignatureInvalid, match="full stop"):
        webhooks.standard(WHSEC).verify(*cut, NOW)
    sent = deliveries.standard(id="a.b")
    with pytest.raises(SignatureInvalid, match="full stop"):
        webhooks.standard(WHSEC).verify(*sent, NOW)


@pytest.mark.parametrize("secret", ["whsec_not base64 at all!", "whsk_" + "a" * 40, b"whpk_" + b"a" * 40])
def test_secrets_of_another_kind(secret: str | bytes) -> None:
    with pytest.raises(ConfigurationError, match="whsec_"):
        webhooks.standard(secret)


def test_spellings_of_a_secret() -> None:
    """With and without its prefix and padding, as the official library takes it, and as bytes."""
    for secret in (WHSEC, WHSEC.removeprefix("whsec_"), WHSEC.rstrip("="), WHSEC.encode(), KEY):
        webhooks.standard(secret).verify(*deliveries.standard(), NOW)


def test_bodies_are_compared_by_what_they_mean() -> None:
    sender = webhooks.standard(WHSEC)
    one, same, other = b'{"a": 1, "b": 2}', b'{"b":2,"a":1.0}', b'{"a":1,"b":3}'
    assert sender.compared({}, one) == sender.compared({}, same) != sender.compared({}, other)
    assert sender.compared({}, b"a=1") != sender.compared({}, b"a=2")
    assert sender.compared({}, b"\xff") != sender.compared({}, b"\xfe")


def test_comparing_some_fields() -> None:
    sender = webhooks.standard(WHSEC, compare=["data"])
    first, again = b'{"data":{"n":1},"attempt":1}', b'{"data":{"n":1},"attempt":2}'
    assert sender.compared({}, first) == sender.compared({}, again)
    assert sender.compared({}, first) != sender.compared({}, b'{"data":{"n":2}}')
    with pytest.raises(PayloadInvalid):
        sender.compared({}, b"data=1")
    for compare in ("data", [], [""], [1]):
        with pytest.raises(ConfigurationError, match="compare"):
            webhooks.standard(WHSEC, compare=compare)  # type: ignore[arg-type]  # what is refused


# --- Stripe


def test_stripe_signs() -> None:
    """Its own library signs and verifies; `v0` counts for nothing."""
    body = json.dumps(EVENT)
    header = stripe.WebhookSignature.generate_signature_header(body, WHSEC, NOW)
    webhooks.stripe(WHSEC).verify({"stripe-signature": header}, body.encode(), NOW)
    ours = deliveries.stripe(key=WHSEC.encode())
    assert stripe.WebhookSignature.verify_header(ours.body, ours.headers["stripe-signature"], WHSEC)
    with pytest.raises(SignatureInvalid, match="version v1"):
        webhooks.stripe(WHSEC).verify({"stripe-signature": header.replace("v1", "v0")}, body.encode(), NOW)


def test_two_times_in_one_header() -> None:
    header = deliveries.stripe().headers["stripe-signature"]
    with pytest.raises(SignatureInvalid, match="2 timestamps"):
        webhooks.stripe(TEXT).verify({"stripe-signature": f"t=1,{header}"}, deliveries.stripe().body, NOW)


def test_what_stripe_changes() -> None:
    """`pending_webhooks` does change between deliveries; nothing else that is known does."""
    sender = webhooks.stripe(TEXT)
    first = sender.compared({}, document(EVENT))
    assert sender.compared({}, document({**EVENT, "pending_webhooks": 1})) == first
    assert sender.compared({}, document({**EVENT, "some_new_field": 1})) == first
    for changed in ({"type": "invoice.voided"}, {"data": {"object": {"amount_paid": 5}}}, {"livemode": True},
                    {"request": None}, {"account": "acct_1"}, {"related_object": {"id": "x"}}):  # fmt: skip
        assert sender.compared({}, document({**EVENT, **changed})) != first


def test_thin_events() -> None:
    body = document(
        {"id": "evt_test_1", "object": "v2.core.event", "type": "v1.billing.meter.no_meter_found"}
    )
    sender = webhooks.stripe(TEXT)
    sender.verify(*deliveries.stripe(body), NOW)
    assert sender.identify({}, body) == Identity("evt_test_1")


def test_an_api_key_is_no_secret() -> None:
    with pytest.raises(ConfigurationError, match="API key"):
        webhooks.stripe("sk_test_0123456789abcdef")


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"id":""}', b'{"id":null}', b'{"id":true}', b'{"id":["a"]}', b'{"id":1.5}',
     b'{"id":"a\\u0000"}', b'{"id":" a"}', b'{"id":"\\ud800"}', b'{"id":"a","id":"a"}', b'{"id":"a","x":NaN}',
     b"\xff", b"[" * 99_999],
)  # fmt: skip
def test_bodies_without_an_id(body: bytes) -> None:
    """Refused although they are signed, without repeating what was sent."""
    with pytest.raises(PayloadInvalid) as caught:
        webhooks.stripe(TEXT).identify({}, body)
    assert "body" in caught.value.reason


# --- GitHub


def test_the_example_of_githubs_documentation() -> None:
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    sender = webhooks.github("It's a Secret to Everybody")
    sender.verify({"x-hub-signature-256": f"sha256={digest}"}, b"Hello, World!", NOW)
    with pytest.raises(SignatureInvalid):
        sender.verify({"x-hub-signature-256": f"sha1={digest}"}, b"Hello, World!", NOW)


def test_its_id_is_not_signed() -> None:
    """The threat that the page describes: another id makes another event of a captured delivery."""
    swapped = deliveries.github().having({"x-github-delivery": "d-2"})
    sender = webhooks.github(TEXT)
    sender.verify(*swapped, NOW + 10**9)
    assert sender.identify(*swapped) == Identity("d-2")


def test_identity_of_the_body() -> None:
    """No header changes it."""
    sender = webhooks.github(TEXT, identity="body")
    first, swapped = deliveries.github(), deliveries.github().having({"x-github-delivery": None})
    assert sender.identify(*first) == sender.identify(*swapped)
    assert sender.identify(*first) != sender.identify(*deliveries.github(b"{}"))
    assert sender.compared(*first) == sender.compared(*swapped)
    with pytest.raises(ConfigurationError, match="identity"):
        webhooks.github(TEXT, identity="header")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("id", [None, "", "a, b", "a b", "é", '"a"'])
def test_delivery_ids_that_are_none(id: str | None) -> None:
    with pytest.raises(PayloadInvalid, match="x-github-delivery"):
        webhooks.github(TEXT).identify(*deliveries.github().having({"x-github-delivery": id}))


def test_the_name_of_the_event_is_compared() -> None:
    """It is not signed, and says what a body means."""
    sender = webhooks.github(TEXT)
    other = deliveries.github().having({"x-github-event": "release"})
    assert sender.compared(*deliveries.github()) != sender.compared(*other)


# --- Slack


def test_the_example_of_slacks_documentation() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
        b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    sender = webhooks.slack("8f742231b10e8888abcd99yyyzzz85a5")
    sender.verify(headers, body, 1531420618)
    with pytest.raises(PayloadInvalid):
        sender.identify(headers, body)


def test_slacks_library_signs() -> None:
    class Still(Clock):
        def now(self) -> float:
            return NOW

    verifier = SignatureVerifier(TEXT, Still())
    ours = deliveries.slack()
    assert verifier.is_valid_request(ours.body, ours.headers)
    signature = verifier.generate_signature(timestamp=str(NOW), body=ours.body)
    assert signature
    webhooks.slack(TEXT).verify({**ours.headers, "x-slack-signature": signature}, ours.body, NOW)


def test_challenge() -> None:
    """Given back after the signature was verified; no event."""
    body = document({"token": "t", "challenge": "3eZbrw1aBm2r", "type": "url_verification"})
    sender = webhooks.slack(TEXT)
    sender.verify(*deliveries.slack(body), NOW)
    assert sender.challenge({}, body) == b"3eZbrw1aBm2r"
    for other in ({**MESSAGE, "event": {"text": "url_verification"}}, MESSAGE):
        assert sender.challenge({}, document(other)) is None
    for wrong in (None, 5, "\n", "é", "\ud800"):
        with pytest.raises(PayloadInvalid):
            sender.challenge({}, document({"type": "url_verification", "challenge": wrong}))


def test_what_slack_changes() -> None:
    sender = webhooks.slack(TEXT)
    first = sender.compared({}, document(MESSAGE))
    assert sender.compared({}, document({**MESSAGE, "token": "new", "authorizations": []})) == first
    assert sender.compared({}, document({**MESSAGE, "event": {"type": "message", "text": "bye"}})) != first


def test_notices_of_dropped_events() -> None:
    """They have no id, and Slack would count a refusal as a failure."""
    notice = {
        "type": "app_rate_limited",
        "team_id": "T1",
        "api_app_id": "A1",
        "minute_rate_limited": 1518467820,
    }
    sender = webhooks.slack(TEXT)
    assert sender.identify({}, document(notice)) == Identity("app_rate_limited/A1/T1/1518467820")
    with pytest.raises(PayloadInvalid, match="team_id"):
        sender.identify({}, document({**notice, "team_id": None}))


# --- generic


def by_hand(algorithm: str, message: bytes) -> bytes:
    return hmac.new(KEY, message, getattr(hashlib, algorithm)).digest()


@pytest.mark.parametrize("algorithm", ["sha256", "sha1", "sha512"])
@pytest.mark.parametrize("encoding", ["hex", "base64"])
@pytest.mark.parametrize("prefix", ["", "sha256=", "v1,"])
def test_any_hmac(algorithm: Any, encoding: Any, prefix: str) -> None:
    sender = webhooks.signed(
        KEY, header="X-Signature", id="data.id", algorithm=algorithm, encoding=encoding, prefix=prefix
    )
    body = b'{"data":{"id":7}}'
    code = by_hand(algorithm, body)
    text = code.hex() if encoding == "hex" else base64.b64encode(code).decode()
    sender.verify({"x-signature": prefix + text}, body, NOW)
    sender.verify({"x-signature": f"{prefix}{text}, {prefix}other"}, body, NOW)
    if encoding == "hex":
        sender.verify({"x-signature": prefix + text.upper()}, body, NOW)
    for wrong in (prefix + text[:-1], text[1:], prefix, prefix + prefix + text if prefix else "x"):
        with pytest.raises(SignatureInvalid):
            sender.verify({"x-signature": wrong}, body, NOW)
    assert sender.identify({}, body) == Identity("7")


@pytest.mark.parametrize(
    ("body", "path", "id"),
    [
        (b'{"data":{"id":"a"}}', "data.id", "a"),
        (b'{"data":{"id":"a"}}', "/data/id", "a"),
        (b'{"a.b":{"c/d":"x"}}', "/a.b/c~1d", "x"),
        (b'{"id":12}', "id", "12"),
        (b'{"id":-12}', "id", "-12"),
        (b'{"id":12.0}', "id", "12"),
        (b'{"id":12345678901234567890123}', "id", "12345678901234567890123"),
        (b'{"id":10000000000000000000000000001000}', "id", "10000000000000000000000000001000"),
        (b'{"id":"Zo\xc3\xab"}', "id", "Zoë"),
    ],
)
def test_ids_in_bodies(body: bytes, path: str, id: str) -> None:
    """Integers in all their digits: two of them are never taken for one."""
    assert webhooks.signed(KEY, header="x-s", id=path).identify({}, body) == Identity(id)


@pytest.mark.parametrize(
    "body", [b'{"data":"id"}', b'{"data":[{"id":1}]}', b'{"data":{}}', b'{"id":1e400}', b"id=1"]
)
def test_ids_that_are_not_there(body: bytes) -> None:
    with pytest.raises(PayloadInvalid):
        webhooks.signed(KEY, header="x-s", id="data.id").identify({}, body)


@pytest.mark.parametrize(
    "template",
    [
        "{id}.{timestamp}.{body}",
        "{timestamp}.{id}.{body}",
        "v1:{id}:{body}.{timestamp}",
        "{body}--{timestamp}--{id}",
    ],
)
def test_ids_that_are_signed(template: str) -> None:
    """A swapped id is noticed, and one that has what separates it is refused."""
    sender = webhooks.signed(KEY, header="x-s", id_header="x-id", timestamp_header="x-t", template=template)

    def made(id: str) -> dict[str, str]:
        message = template.replace("{id}", id).replace("{timestamp}", str(NOW)).replace("{body}", "b")
        return {"x-s": by_hand("sha256", message.encode()).hex(), "x-id": id, "x-t": str(NOW)}

    sender.verify(made("a"), b"b", NOW)
    with pytest.raises(SignatureInvalid, match="no signature"):
        sender.verify({**made("a"), "x-id": "c"}, b"b", NOW)
    separator = ":" if ":" in template else "-" if "--" in template else "."
    with pytest.raises(SignatureInvalid, match="separates"):
        sender.verify(made(f"a{separator}"), b"b", NOW)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "either id"),
        ({"id": "id", "id_header": "x-id"}, "either id"),
        ({"id": ""}, "path"),
        ({"id": "data..id"}, "path"),
        ({"id": "/"}, "path"),
        ({"id": "id", "algorithm": "md5"}, "algorithm"),
        ({"id": "id", "encoding": "base32"}, "encoding"),
        ({"id": "id", "prefix": "HMAC "}, "prefix"),
        ({"id": "id", "prefix": "é"}, "prefix"),
        ({"id": "id", "template": ""}, "body"),
        ({"id": "id", "template": "{body}{body}"}, "body"),
        ({"id": "id", "template": "{payload}"}, "template"),
        ({"id": "id", "template": "{timestamp}.{body}"}, "timestamp_header"),
        ({"id": "id", "timestamp_header": "x-t"}, "not signed"),
        ({"id": "id", "template": "{id}.{body}"}, "id_header"),
        ({"id_header": "x-id", "template": "{id}{body}"}, "neighbours"),
        ({"id_header": "x-id", "template": "{body}{id}."}, "neighbours"),
        ({"id": "id", "header": "x y"}, "header"),
        ({"id": "id", "header": ""}, "header"),
        ({"id_header": "x-ï"}, "header"),
        ({"id": "id", "stored_headers": ["Authorization"]}, "credentials"),
        ({"id": "id", "stored_headers": ["X-S"]}, "credentials"),
        ({"id": "id", "stored_headers": "X-Kind"}, "stored_headers"),
        ({"id": "id", "source": ""}, "source"),
        ({"id": "id", "horizon": 0}, "horizon"),
    ],
)
def test_what_cannot_work(more: dict[str, Any], said: str) -> None:
    """Refused where it is built."""
    arguments: dict[str, Any] = {"header": "x-s", **more}
    with pytest.raises(ConfigurationError, match=said):
        webhooks.signed(KEY, **arguments)


def test_what_is_said_of_it() -> None:
    sender = webhooks.signed(
        KEY, header="x-s", id="id", source="partner", stored_headers=["X-Kind"], horizon=60
    )
    assert (sender.source, sender.stored_headers, sender.horizon) == ("partner", ("x-kind",), 60)


# --- CloudEvents

BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/orders", "ce-type": "order.paid",
          "content-type": "application/json"}  # fmt: skip
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}


def test_both_modes() -> None:
    """A router may forward an event in the other mode: it stays the same event."""
    sender = webhooks.cloudevents()
    binary = BINARY, b'{"order":"o-1"}'
    structured = STRUCTURED, document(CLOUD_EVENT)
    for mode in (binary, structured):
        sender.verify(*mode, NOW)
        assert sender.identify(*mode) == Identity("1", "/orders")
    assert sender.compared(*binary) == sender.compared(*structured)
    assert sender.compared(*binary) != sender.compared(BINARY, b'{"order":"o-2"}')
    assert sender.compared(*binary) != sender.compared({**BINARY, "ce-subject": "s"}, binary[1])
    assert sender.compared({**BINARY, "ce-time": "2026-01-01T00:00:00Z"}, binary[1]) == sender.compared(
        *binary
    )


@pytest.mark.parametrize(
    ("data", "body"),
    [
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data": "text", "datacontenttype": "application/json; charset=utf-8"}, b'"text"'),
        ({"data": "text", "datacontenttype": "application/vnd.x+json"}, b'"text"'),
        ({"data": "text", "datacontenttype": "application/jsonp"}, b"text"),
        ({"data": "text"}, b'"text"'),
        ({"data": None}, b"null"),
        ({"data": 12345678901234567890123}, b"12345678901234567890123"),
        ({"data_base64": base64.b64encode(b"\xff\x00").decode()}, b"\xff\x00"),
        ({}, b""),
    ],
)
def test_data_in_both_modes(data: dict[str, Any], body: bytes) -> None:
    event = {**{name: CLOUD_EVENT[name] for name in CLOUD_EVENT if name != "data"}, **data}
    sender = webhooks.cloudevents()
    assert sender.compared(STRUCTURED, document(event)) == sender.compared(BINARY, body)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ("%e2%82%ac", "€"),
        ("a%41", "aA"),
        ("%2541", "%41"),
        ('"quoted \\"text\\""', 'quoted "text"'),
        ('"%41"', "A"),
        ("a b", "a b"),
    ],
)
def test_headers_are_decoded_once(sent: str, read: str) -> None:
    """Section 3.1.3.2 of the HTTP binding, with its example."""
    assert webhooks.cloudevents().identify({**BINARY, "ce-id": sent}, b"") == Identity(read, "/orders")


@pytest.mark.parametrize(
    "sent", ["%C0%A0", "%zz", "%", "%4", '"a', '"a"b"', "é", "%00", "%20", "", "a\x7f", "\ud800"]
)
def test_headers_that_are_not_encoded(sent: str) -> None:
    with pytest.raises(PayloadInvalid, match="ce-id"):
        webhooks.cloudevents().identify({**BINARY, "ce-id": sent}, b"")


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_attributes_that_are_required(name: str) -> None:
    sender = webhooks.cloudevents()
    with pytest.raises(PayloadInvalid, match=name):
        sender.identify({key: value for key, value in BINARY.items() if key != f"ce-{name}"}, b"")
    for value in (None, 5, ""):
        with pytest.raises(PayloadInvalid, match=name):
            sender.identify(STRUCTURED, document({**CLOUD_EVENT, name: value}))


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ({"content-type": "application/cloudevents-batch+json"}, b"[]", "one event per request"),
        ({"content-type": "Application/CloudEvents-Batch+JSON; x=1"}, b"[]", "one event per request"),
        ({"content-type": "application/cloudevents+avro"}, b"", "not supported"),
        (STRUCTURED, b"[]", "JSON object"),
        (STRUCTURED, document({**CLOUD_EVENT, "specversion": "0.3"}), "specversion"),
        (STRUCTURED, document({**CLOUD_EVENT, "data_base64": "AA=="}), "data_base64"),
        ({**BINARY, "ce-specversion": "2.0"}, b"", "specversion"),
    ],
)
def test_what_is_no_event(headers: dict[str, str], body: bytes, said: str) -> None:
    with pytest.raises(PayloadInvalid, match=said):
        webhooks.cloudevents().identify(headers, body)


@pytest.mark.parametrize("data", ["no base64!", "é", 5])
def test_data_that_are_not_base64(data: object) -> None:
    event = {**{name: CLOUD_EVENT[name] for name in CLOUD_EVENT if name != "data"}, "data_base64": data}
    with pytest.raises(PayloadInvalid, match="data_base64"):
        webhooks.cloudevents().compared(STRUCTURED, document(event))


def test_signed_by_another_preset() -> None:
    """In structured mode all of the event is signed; in binary mode its id is not: that is asked for."""
    body = b'{"order":"o-1"}'
    binary = {**deliveries.standard(body).headers, **BINARY}
    signature = webhooks.standard(WHSEC)
    with pytest.raises(SignatureInvalid, match="structured mode"):
        webhooks.cloudevents(signature).verify(binary, body, NOW)
    webhooks.cloudevents(signature, unsigned_headers=True).verify(binary, body, NOW)
    with pytest.raises(SignatureInvalid, match="no signature"):
        webhooks.cloudevents(signature, unsigned_headers=True).verify(binary, b"{}", NOW)
    assert webhooks.cloudevents(signature).horizon == signature.horizon
    with pytest.raises(ConfigurationError, match="signature"):
        webhooks.cloudevents(WHSEC)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ConfigurationError, match="another preset"):
        webhooks.cloudevents(webhooks.cloudevents())
