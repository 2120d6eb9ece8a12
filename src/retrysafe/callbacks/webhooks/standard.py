"""Standard Webhooks (https://www.standardwebhooks.com): receiving them, and signing them.

    webhook-id, webhook-timestamp       of the event, and of this delivery
    webhook-signature                   `v1,<base64>`, several separated by spaces
    signed                              {id}.{timestamp}.{body}

Svix, who wrote most of it, sends the same with `svix-` names; they are read where `webhook-id` is missing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from retrysafe._core.keys import Secret
from retrysafe.callbacks.webhooks.payloads import chosen, fields_of, id_in_header
from retrysafe.callbacks.webhooks.signatures import (
    NOT_SIGNED,
    TOLERANCE,
    Secrets,
    base64_secrets_of,
    check_age,
    field,
    is_signed,
    is_unix_time,
    mac,
    tolerance_of,
    unix_time,
)
from retrysafe.callbacks.webhooks.webhook import DAY, Headers, Identity, SignatureInvalid, Webhook
from retrysafe.errors import ConfigurationError

# A repeated header is joined with ", ", and by servers of WSGI with ",".  No base64 has a comma in it.
_BETWEEN = re.compile(rb",?[ \t]+|,(?=v[0-9]+[a-z]*,)")
_ID = re.compile(r"[!#-+\-/-~]+")


def standard(
    secret: Secrets, *, tolerance: float = TOLERANCE, compare: Sequence[str] | None = None
) -> Webhook:
    """A sender that follows Standard Webhooks.

    `secret` is `whsec_…` as the sender shows it, or several of them; bytes are a secret that is not encoded.
    `compare` names fields of a JSON body where a redelivery's body may differ in others.
    """
    return _Standard(
        secrets=base64_secrets_of(secret), tolerance=tolerance_of(tolerance), compare=fields_of(compare)
    )


def sign(secret: Secrets, id: str, timestamp: float, body: bytes) -> dict[str, str]:
    """The headers of a webhook that is sent.  The id stays the same in each delivery, the timestamp does not.

    With several secrets there are several signatures, for receivers that have only one of them.
    """
    if not _ID.fullmatch(id):
        raise ConfigurationError(
            "id must be printable ASCII without spaces, commas, quotation marks and full stops: with a full "
            "stop, what is signed could be read in two ways"
        )
    if not is_unix_time(timestamp):
        raise ConfigurationError(f"timestamp must be a Unix time in seconds, got {timestamp}")
    seconds = int(timestamp)
    message = b"%s.%d.%s" % (id.encode(), seconds, body)
    made = [mac(each, message, encoding="base64").decode() for each in base64_secrets_of(secret)]
    return {
        "webhook-id": id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join([f"v1,{each}" for each in made]),
    }


def _prefix(headers: Headers) -> str:
    """One family of names for all three headers: what is identified is then what was signed."""
    return "webhook" if "webhook-id" in headers or "svix-id" not in headers else "svix"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standard(Webhook):
    secrets: tuple[Secret, ...]
    tolerance: float
    compare: tuple[str, ...] | None
    source: str = "standard"
    stored_headers: tuple[str, ...] = (
        "content-type",
        "webhook-id",
        "webhook-timestamp",
        "svix-id",
        "svix-timestamp",
    )
    horizon: float = 4 * DAY
    """The specification's schedule of retries takes 75 hours, and jitter is added."""

    def verify(self, headers: Headers, body: bytes, now: float) -> None:
        prefix = _prefix(headers)
        id = field(headers, f"{prefix}-id")
        timestamp = field(headers, f"{prefix}-timestamp")
        signatures = field(headers, f"{prefix}-signature")
        if b"." in id:
            # `a.1700000000.` may then belong to the id or end the timestamp, so that a captured body could be
            # cut in two.  The specification asks senders for ids without one.
            raise SignatureInvalid(f"the header {prefix}-id holds a full stop: what was signed is ambiguous")
        sent = unix_time(timestamp, f"the header {prefix}-timestamp")
        # Other versions are ignored, as the specification asks: v1a is asymmetric.
        codes = [each[3:] for each in _BETWEEN.split(signatures) if each.startswith(b"v1,")]
        if not codes:
            raise SignatureInvalid(f"the header {prefix}-signature has no signature of version v1")
        if not is_signed(self.secrets, b"%s.%s.%s" % (id, timestamp, body), codes, encoding="base64"):
            raise SignatureInvalid(NOT_SIGNED)
        check_age(sent, now, self.tolerance)

    def identify(self, headers: Headers, body: bytes) -> Identity:
        return Identity(id_in_header(headers, f"{_prefix(headers)}-id"))

    def compared(self, headers: Headers, body: bytes) -> bytes:
        return chosen(body, self.compare)
