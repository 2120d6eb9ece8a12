"""Deliveries of each sender, signed by the formula of its documentation and not by our code."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import NamedTuple

from retrysafe.callbacks import webhooks

NOW = 1_700_000_000
KEY = b"0123456789abcdef0123456789abcdef"
TEXT = KEY.decode()
WHSEC = "whsec_" + base64.b64encode(KEY).decode()
OTHER = b"another secret of another endpoint"
OTHER_WHSEC = "whsec_" + base64.b64encode(OTHER).decode()


class Delivery(NamedTuple):
    headers: dict[str, str]
    body: bytes

    def having(
        self, headers: Mapping[str, str | None] | None = None, body: bytes | None = None
    ) -> "Delivery":
        """The same with other headers, or without those that are `None`."""
        found = {**self.headers, **(headers or {})}
        return Delivery(
            {name: value for name, value in found.items() if value is not None},
            self.body if body is None else body,
        )


def _code(key: bytes, message: bytes) -> "hmac.HMAC":
    return hmac.new(key, message, hashlib.sha256)


def standard(
    body: bytes = b'{"type":"invoice.paid"}', id: str = "msg_1", at: int = NOW, key: bytes = KEY
) -> Delivery:
    code = _code(key, f"{id}.{at}.".encode() + body).digest()
    signature = "v1," + base64.b64encode(code).decode()
    return Delivery({"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}, body)


EVENT = {
    "id": "evt_1",
    "object": "event",
    "type": "invoice.paid",
    "created": NOW,
    "livemode": False,
    "pending_webhooks": 2,
    "request": {"id": None, "idempotency_key": None},
    "data": {"object": {"id": "in_1", "amount_paid": 500}},
}


def stripe(body: bytes = json.dumps(EVENT).encode(), at: int = NOW, key: bytes = KEY) -> Delivery:
    code = _code(key, f"{at}.".encode() + body).hexdigest()
    return Delivery({"stripe-signature": f"t={at},v1={code},v0={'0' * 64}"}, body)


def github(body: bytes = b'{"ref":"refs/heads/main"}', id: str = "d-1", key: bytes = KEY) -> Delivery:
    return Delivery(
        {
            "x-hub-signature-256": f"sha256={_code(key, body).hexdigest()}",
            "x-github-delivery": id,
            "x-github-event": "push",
        },
        body,
    )


MESSAGE = {
    "token": "not-to-be-stored",
    "type": "event_callback",
    "team_id": "T1",
    "api_app_id": "A1",
    "event": {"type": "message", "text": "hello"},
    "event_id": "Ev1",
    "event_time": NOW,
}


def slack(body: bytes = json.dumps(MESSAGE).encode(), at: int = NOW, key: bytes = KEY) -> Delivery:
    code = _code(key, f"v0:{at}:".encode() + body).hexdigest()
    return Delivery({"x-slack-request-timestamp": str(at), "x-slack-signature": f"v0={code}"}, body)


def partner(body: bytes = b'{"n":1}', id: str = "p-1", at: int = NOW, key: bytes = KEY) -> Delivery:
    code = _code(key, f"{id}.{at}.".encode() + body).hexdigest()
    return Delivery(
        {"x-partner-id": id, "x-partner-time": str(at), "x-partner-signature": f"v1={code}"}, body
    )


CLOUD_EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/orders",
    "type": "order.paid",
    "data": {"order": "o-1"},
}


def cloudevents(body: bytes = json.dumps(CLOUD_EVENT).encode(), at: int = NOW, key: bytes = KEY) -> Delivery:
    """In structured mode, with a signature of Standard Webhooks."""
    return standard(body, at=at, key=key).having({"content-type": "application/cloudevents+json"})


class Sender(NamedTuple):
    webhook: webhooks.Webhook
    genuine: Delivery
    forged: Delivery
    """Signed with another secret."""
    timestamp: str | None
    """The header that has it."""
    signature: str
    id: str


SENDERS = {
    "standard": Sender(
        webhooks.standard(WHSEC),
        standard(),
        standard(key=OTHER),
        "webhook-timestamp",
        "webhook-signature",
        "msg_1",
    ),
    "stripe": Sender(
        webhooks.stripe(TEXT), stripe(), stripe(key=OTHER), "stripe-signature", "stripe-signature", "evt_1"
    ),
    "github": Sender(webhooks.github(TEXT), github(), github(key=OTHER), None, "x-hub-signature-256", "d-1"),
    "slack": Sender(
        webhooks.slack(TEXT),
        slack(),
        slack(key=OTHER),
        "x-slack-request-timestamp",
        "x-slack-signature",
        "Ev1",
    ),
    "signed": Sender(
        webhooks.signed(
            TEXT,
            header="X-Partner-Signature",
            prefix="v1=",
            template="{id}.{timestamp}.{body}",
            timestamp_header="X-Partner-Time",
            id_header="X-Partner-Id",
        ),
        partner(),
        partner(key=OTHER),
        "x-partner-time",
        "x-partner-signature",
        "p-1",
    ),
    "cloudevents": Sender(
        webhooks.cloudevents(webhooks.standard(WHSEC)),
        cloudevents(),
        cloudevents(key=OTHER),
        "webhook-timestamp",
        "webhook-signature",
        "1",
    ),
}
