"""Stripe (https://docs.stripe.com/webhooks): snapshot and thin events.

Stripe-Signature    `t=<timestamp>,v1=<hex>`, several `v1` while a secret is rolled; `v0` is a fake
signed              {timestamp}.{body}
"""

from dataclasses import dataclass

from retrysafe._core.keys import Secret
from retrysafe.callbacks.webhooks.payloads import chosen, document, id_in
from retrysafe.callbacks.webhooks.signatures import (
    NOT_SIGNED,
    TOLERANCE,
    Secrets,
    check_age,
    field,
    is_signed,
    secrets_of,
    tolerance_of,
    unix_time,
)
from retrysafe.callbacks.webhooks.webhook import DAY, Headers, Identity, SignatureInvalid, Webhook
from retrysafe.errors import ConfigurationError

_HEADER = "stripe-signature"

_COMPARED = (
    "object",
    "type",
    "api_version",
    "created",
    "livemode",
    "account",
    "context",
    "request",
    "data",
    # of thin events
    "related_object",
    "reason",
)
"""What an event says.  Not `pending_webhooks`, which counts the endpoints that have not confirmed it yet."""


def stripe(secret: Secrets, *, tolerance: float = TOLERANCE) -> Webhook:
    """Stripe.  `secret` is the signing secret of the endpoint, `whsec_…`, or several of them."""
    secrets = secrets_of(secret)
    if any(each.startswith((b"sk_", b"rk_", b"pk_")) for each in secrets):
        raise ConfigurationError("secret is an API key: expected the signing secret of the endpoint, whsec_…")
    return _Stripe(secrets=secrets, tolerance=tolerance_of(tolerance))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stripe(Webhook):
    secrets: tuple[Secret, ...]
    tolerance: float
    source: str = "stripe"
    stored_headers: tuple[str, ...] = ("content-type",)
    horizon: float = 30 * DAY
    """Retries take three days; an event can be sent again by hand for as long as Stripe has it."""

    def verify(self, headers: Headers, body: bytes, now: float) -> None:
        items = [item.strip(b" \t").partition(b"=") for item in field(headers, _HEADER).split(b",")]
        timestamps = [value for name, _, value in items if name == b"t"]
        codes = [value for name, _, value in items if name == b"v1"]
        if len(timestamps) != 1:
            raise SignatureInvalid(f"the header {_HEADER} has {len(timestamps)} timestamps: expected one")
        if not codes:
            raise SignatureInvalid(f"the header {_HEADER} has no signature of version v1")
        sent = unix_time(timestamps[0], f"the timestamp in the header {_HEADER}")
        if not is_signed(self.secrets, b"%s.%s" % (timestamps[0], body), codes):
            raise SignatureInvalid(NOT_SIGNED)
        check_age(sent, now, self.tolerance)

    def identify(self, headers: Headers, body: bytes) -> Identity:
        return Identity(id_in(document(body), "id"))

    def compared(self, headers: Headers, body: bytes) -> bytes:
        return chosen(body, _COMPARED)
