"""What holds for every sender: what is not signed is refused, in one way, and nothing else is ever raised."""

import json
import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrysafe.callbacks import webhooks
from retrysafe.callbacks.webhooks import PayloadInvalid, SignatureInvalid
from retrysafe.errors import ConfigurationError, RetrysafeError
from tests.callbacks.webhooks import deliveries
from tests.callbacks.webhooks.deliveries import (
    KEY,
    NOW,
    OTHER,
    OTHER_WHSEC,
    SENDERS,
    TEXT,
    WHSEC,
    Delivery,
    Sender,
)

every = pytest.mark.parametrize("sender", [pytest.param(sender, id=name) for name, sender in SENDERS.items()])
timed = pytest.mark.parametrize(
    "sender", [pytest.param(sender, id=name) for name, sender in SENDERS.items() if sender.timestamp]
)
SIGNERS: dict[str, Callable[..., Delivery]] = {
    "standard": deliveries.standard,
    "stripe": deliveries.stripe,
    "slack": deliveries.slack,
    "signed": deliveries.partner,
    "cloudevents": deliveries.cloudevents,
}


def refused(sender: Sender, delivery: Delivery, now: float = NOW) -> str:
    with pytest.raises(SignatureInvalid) as caught:
        sender.webhook.verify(delivery.headers, delivery.body, now)
    return caught.value.reason


@every
def test_genuine(sender: Sender) -> None:
    """What the sender signed is accepted, and its event is found."""
    headers, body = sender.genuine
    sender.webhook.verify(headers, body, NOW)
    assert sender.webhook.challenge(headers, body) is None
    assert sender.webhook.identify(headers, body).id == sender.id
    assert sender.webhook.compared(headers, body)


@every
def test_forged(sender: Sender) -> None:
    """Another secret is not the secret."""
    assert "no signature matches" in refused(sender, sender.forged)


@every
def test_altered_body(sender: Sender) -> None:
    """One byte more, one less, another one, or the same JSON written anew."""
    body = sender.genuine.body
    for altered in (body + b"\n", body[:-1], b"[" + body[1:], body.replace(b":", b" :"), b""):
        assert "no signature matches" in refused(sender, sender.genuine.having(body=altered))


@every
def test_headers_that_are_missing_or_empty(sender: Sender) -> None:
    """Each header that the signature needs, left out and empty."""
    for name in sender.genuine.headers:
        for value in (None, "", " "):
            delivery = sender.genuine.having({name: value})
            if name in (sender.signature, sender.timestamp):
                assert refused(sender, delivery)
    assert refused(sender, Delivery({}, sender.genuine.body))


@every
@pytest.mark.parametrize(
    "value",
    ["v1,abc", "v1,", "garbage", "=", ",", ", ,", "t=", "t=1,t=2,v1=", "sha256=", "sha256", "v0=", "v1=",
     "v1a,abc v2,def", "\xff\xfe", "v1,\xff", "sha256=\xff", "v0=\xe9", "t=1700000000,v1=\xe9", "\u20ac",
     "\ud800", "v1=" + "a" * 9999, "\x00"],
)  # fmt: skip
def test_signatures_that_are_none(sender: Sender, value: str) -> None:
    """Whatever stands in the header, it is refused in the one way there is, and is not repeated."""
    reason = refused(sender, sender.genuine.having({sender.signature: value}))
    assert value not in reason or value in ("sha256", "sha256=", "v0=", "=", ",")


@every
def test_body_that_is_no_text(sender: Sender) -> None:
    assert "no signature matches" in refused(sender, sender.genuine.having(body=b"\xff\xfe\x00"))


@timed
@pytest.mark.parametrize("off", [0, 299, 300, -299, -300])
def test_within_the_tolerance(sender: Sender, off: int) -> None:
    """Both ends are included."""
    sender.webhook.verify(*sender.genuine, NOW + off)


@timed
@pytest.mark.parametrize("off", [301, -301, 300.5, 86400, -86400, float("nan"), float("inf")])
def test_outside_of_the_tolerance(sender: Sender, off: float) -> None:
    """Too old and too far ahead, although the signature is valid."""
    assert "the signed timestamp is" in refused(sender, sender.genuine, NOW + off)


@timed
def test_timestamp_that_was_renewed(sender: Sender) -> None:
    """It is signed: a captured delivery does not become a new one."""
    assert sender.timestamp
    later = str(NOW + 9999)
    value = sender.genuine.headers[sender.timestamp].replace(str(NOW), later)
    assert "no signature" in refused(sender, sender.genuine.having({sender.timestamp: value}), NOW + 9999)


@timed
@pytest.mark.parametrize(
    "value",
    ["+1700000000", "1_700_000_000", "1700000000.0", "1.7e9", "-1700000000", "0", "01700000000", "0x6553f100",
     "1700000000".translate({ord(digit): ord(digit) + 0xFEE0 for digit in "0123456789"}), "1" * 5000, "nan",
     "1700000000\n", "\xb2"],
)  # fmt: skip
def test_timestamps_are_written_in_one_way(sender: Sender, value: str) -> None:
    """What `int` would take besides is refused, even if the sender's secret signed it."""
    assert sender.timestamp
    headers = dict(sender.genuine.headers)
    headers[sender.timestamp] = headers[sender.timestamp].replace(str(NOW), value)
    assert refused(sender, Delivery(headers, sender.genuine.body))


@pytest.mark.parametrize("name", [name for name in SIGNERS if name != "signed"])
def test_timestamp_with_a_zero_in_front(name: str) -> None:
    """Signed as it is: the strictness is not only the signature's."""
    delivery = SIGNERS[name](at="0" + str(NOW))
    assert "Unix time" in refused(SENDERS[name], delivery)


@pytest.mark.parametrize(
    ("name", "webhook"),
    [
        ("standard", webhooks.standard([OTHER_WHSEC, WHSEC])),
        ("stripe", webhooks.stripe([OTHER.decode(), TEXT])),
        ("github", webhooks.github((OTHER, KEY))),
        ("slack", webhooks.slack([OTHER, TEXT])),
        ("signed", webhooks.signed([OTHER, KEY], header="x-partner-signature", prefix="v1=",
                                   template="{id}.{timestamp}.{body}", timestamp_header="x-partner-time",
                                   id_header="x-partner-id")),
        ("cloudevents", webhooks.cloudevents(webhooks.standard([OTHER_WHSEC, WHSEC]))),
    ],
)  # fmt: skip
def test_rotation(name: str, webhook: webhooks.Webhook) -> None:
    """While a secret is replaced, either is accepted, and no third."""
    webhook.verify(*SENDERS[name].genuine, NOW)
    webhook.verify(*SENDERS[name].forged, NOW)  # signed with the other one
    signer = SIGNERS.get(name, deliveries.github)
    with pytest.raises(SignatureInvalid):
        webhook.verify(*signer(key=b"a third secret that nobody has"), NOW)


@pytest.mark.parametrize("name", ["standard", "stripe", "signed", "cloudevents"])
def test_two_signatures_one_valid(name: str) -> None:
    """A sender that replaces its secret signs with both, in either order; lines may have been joined."""
    sender = SENDERS[name]
    valid, other = (each.headers[sender.signature] for each in (sender.genuine, sender.forged))
    between = "," if name in ("stripe", "signed") else " "
    if name == "stripe":
        other = other.partition(",")[2]
    for value in (f"{valid}{between}{other}", f"{other}{between}{valid}", f"{valid}, {other}"):
        sender.webhook.verify(
            sender.genuine.having({sender.signature: value}).headers, sender.genuine.body, NOW
        )
    assert refused(sender, sender.genuine.having({sender.signature: sender.forged.headers[sender.signature]}))


@every
def test_nothing_shows_the_secret(sender: Sender) -> None:
    """Neither the object nor a traceback with its variables, nor what was sent."""
    webhook = sender.webhook
    shown = [repr(webhook), str(webhook), f"{webhook}"]
    try:
        webhook.verify(*sender.forged, NOW)
    except SignatureInvalid as error:
        shown += traceback.TracebackException.from_exception(error, capture_locals=True).format()
    everything = "\n".join(shown)
    assert "<secret>" in everything
    for text in (TEXT, WHSEC, WHSEC.removeprefix("whsec_"), KEY.hex()):
        assert text not in everything


@every
def test_what_is_expected_is_in_no_traceback(sender: Sender) -> None:
    """It would sign the forgery."""
    body = b'{"forged":true}'
    signer = SIGNERS.get(sender.webhook.source, deliveries.github)
    expected = signer(body).headers[sender.signature]
    with pytest.raises(SignatureInvalid) as caught:
        sender.webhook.verify(signer(body, key=OTHER).headers, body, NOW)
    frames = traceback.walk_tb(caught.tb.tb_next)  # without this test's own, which knows it
    seen = "\n".join(repr(value) for frame, _ in frames for value in frame.f_locals.values())
    assert "forged" in seen
    parts = [part for part in expected.replace("=", ",").split(",") if len(part) > 40]
    assert parts
    assert all(part not in seen for part in parts if set(part) != {"0"})


@every
def test_what_is_kept(sender: Sender) -> None:
    """Names in lower case, and no credentials."""
    assert sender.webhook.stored_headers
    for name in sender.webhook.stored_headers:
        assert name == name.lower()
        assert "signature" not in name
        assert name not in ("authorization", "cookie")


@every
def test_values(sender: Sender) -> None:
    """Frozen, comparable, sent to another process with a guard's settings."""
    assert pickle.loads(pickle.dumps(sender.webhook)) == sender.webhook
    assert sender.webhook.horizon > 300
    with pytest.raises(AttributeError):
        sender.webhook.source = "other"  # type: ignore[misc]  # that it is frozen is what is tested


def test_refusals_are_errors_of_the_library() -> None:
    for error in (SignatureInvalid("because"), PayloadInvalid("because")):
        assert isinstance(error, RetrysafeError)
        assert (error.reason, str(error)) == ("because", "because")
        assert pickle.loads(pickle.dumps(error)).reason == "because"


PRESETS: dict[str, Any] = {
    "standard": webhooks.standard,
    "stripe": webhooks.stripe,
    "github": webhooks.github,
    "slack": webhooks.slack,
    "signed": lambda secret, **more: webhooks.signed(secret, header="x-s", id="id", **more),
    "sign": lambda secret: webhooks.sign(secret, "m", NOW, b""),
}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(
    "secret",
    ["", b"", "short", [], (), [""], None, 5, [None], [TEXT, "short"], " " + TEXT, TEXT + "\n", "\ud800" * 20,
     bytearray(KEY), {TEXT}, KEY + b"\n", b"\t" + KEY, WHSEC.encode() + b"\r\n", b" " + WHSEC.encode()],
)  # fmt: skip
def test_secrets_that_are_none(name: str, secret: Any) -> None:
    """Refused where it is built, with advice and without the secret."""
    with pytest.raises(ConfigurationError) as caught:
        PRESETS[name](secret)
    assert "secret" in str(caught.value)
    assert TEXT not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", PRESETS)
def test_secrets_that_are_random_bytes(name: str) -> None:
    """They may begin and end with anything."""
    PRESETS[name](b"\n" + bytes(range(128, 160)) + b"\n")


@pytest.mark.parametrize("name", ["standard", "stripe", "slack", "signed"])
@pytest.mark.parametrize("tolerance", [0, -1, float("nan"), float("inf"), 86401, True, "300", None])
def test_tolerances_that_are_none(name: str, tolerance: Any) -> None:
    with pytest.raises(ConfigurationError, match="tolerance"):
        PRESETS[name](WHSEC, tolerance=tolerance)


def test_another_tolerance() -> None:
    webhook = webhooks.standard(WHSEC, tolerance=10)
    webhook.verify(*deliveries.standard(), NOW + 10)
    with pytest.raises(SignatureInvalid, match="10 s are allowed"):
        webhook.verify(*deliveries.standard(), NOW + 11)


# --- whatever is sent

NAMES = sorted({name for sender in SENDERS.values() for name in sender.genuine.headers} | {
    "ce-id", "ce-source", "ce-type", "ce-specversion", "ce-subject", "svix-id", "svix-timestamp",
    "svix-signature", "content-type",
})  # fmt: skip
VALUES = st.one_of(
    st.text(max_size=40),
    st.text(alphabet='tv01=,. "%\\sha256:\xff\u20ac', max_size=40),
    st.sampled_from([value for sender in SENDERS.values() for value in sender.genuine.headers.values()]),
    st.sampled_from(
        ["application/cloudevents+json", "application/cloudevents-batch+json", "text/plain", "1.0"]
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "event_id", "type", "data", "data_base64", "source", "specversion", "challenge"]
            ),
            inside | st.sampled_from(["url_verification", "app_rate_limited", "1.0"]),
            max_size=6,
        )
    ),
    max_leaves=12,
)
NASTY = [
    b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b'{"id":"a","id":"b"}', b"[" * 99_999,
    b'{"a":' * 5_000, b'{"id":NaN}', b'{"id":' + b"9" * 5_000 + b"}", b'{"id":1e99999999}', b'{"id":-0}',
    b'{"event_id":"\\u0000"}', b'{"id":1e' + b"9" * 5_000 + b"}", b'{"type":"url_verification"}',
    b'{"id":"\\ud800"}', b'{"type":"url_verification","challenge":"\\ud800"}', b'{"id":{"id":1}}',
]  # fmt: skip


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(encoded),
    st.sampled_from(NASTY),
    st.sampled_from([sender.genuine.body for sender in SENDERS.values()]),
)
CASES: dict[str, webhooks.Webhook] = {
    **{name: sender.webhook for name, sender in SENDERS.items()},
    "bare cloudevents": webhooks.cloudevents(),
    "github by body": webhooks.github(TEXT, identity="body"),
    "path": webhooks.signed(
        TEXT, header="x-s", id="/data/id", encoding="base64", compare=["type", "data.id"]
    ),
}


@pytest.mark.parametrize("name", CASES)
@given(headers=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8), body=BODIES)
def test_nothing_else_is_raised(name: str, headers: dict[str, str], body: bytes) -> None:
    """Any headers and any body: success or one of two exceptions, in each step by itself."""
    webhook = CASES[name]
    with suppress(SignatureInvalid):
        webhook.verify(headers, body, NOW)
    with suppress(PayloadInvalid):
        assert isinstance(webhook.challenge(headers, body), bytes | None)
    with suppress(PayloadInvalid):
        found = webhook.identify(headers, body)
        for text in found:
            assert text.encode().decode().isprintable()
        assert found.id == found.id.strip() != ""
        assert isinstance(webhook.compared(headers, body), bytes)


@pytest.mark.parametrize("name", SIGNERS)
@given(key=st.sampled_from([KEY, OTHER]), body=BODIES, off=st.integers(-400, 400))
def test_valid_if_and_only_if_signed(name: str, key: bytes, body: bytes, off: int) -> None:
    """The secret and the time decide, whatever the body."""
    delivery = SIGNERS[name](body, at=NOW + off, key=key)
    webhook = SENDERS[name].webhook
    if key == KEY and abs(off) <= 300:
        webhook.verify(*delivery, NOW)
    else:
        with pytest.raises(SignatureInvalid):
            webhook.verify(*delivery, NOW)


@pytest.mark.parametrize("name", SENDERS)
@given(data=st.data())
def test_no_change_goes_unnoticed(name: str, data: st.DataObject) -> None:
    """Any byte of what is signed."""
    sender = SENDERS[name]
    at = data.draw(st.integers(0, len(sender.genuine.body) - 1))
    flip = data.draw(st.integers(1, 255))
    body = bytearray(sender.genuine.body)
    body[at] ^= flip
    refused(sender, sender.genuine.having(body=bytes(body)))
