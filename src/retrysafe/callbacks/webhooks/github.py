"""GitHub (https://docs.github.com/webhooks).

    X-Hub-Signature-256     `sha256=<hex>`
    signed                  {body}, and neither X-GitHub-Delivery nor X-GitHub-Event nor a time

A captured delivery can therefore be sent again with another delivery id, and is then another event.  That id
is what GitHub documents for telling deliveries apart, and two events may have the same body to the byte (two
`repository_dispatch` in a row), so it is the default: no event is lost.  `identity="body"` takes a digest of
the signed body: no replay is handled, and the second of two equal events is not either.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from retrysafe._core.keys import Secret, framed
from retrysafe.callbacks.webhooks.payloads import id_in_header, whole
from retrysafe.callbacks.webhooks.signatures import NOT_SIGNED, Secrets, field, is_signed, secrets_of
from retrysafe.callbacks.webhooks.webhook import DAY, Headers, Identity, SignatureInvalid, Webhook
from retrysafe.errors import ConfigurationError

_HEADER = "x-hub-signature-256"
_PREFIX = b"sha256="


def github(secret: Secrets, *, identity: Literal["delivery", "body"] = "delivery") -> Webhook:
    """GitHub, and what signs as it does.  `secret` is what was entered as the webhook's secret."""
    if identity not in ("delivery", "body"):
        raise ConfigurationError(f'identity is {identity!r}: expected "delivery" or "body"')
    return _GitHub(secrets=secrets_of(secret), identity=identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GitHub(Webhook):
    secrets: tuple[Secret, ...]
    identity: Literal["delivery", "body"]
    source: str = "github"
    stored_headers: tuple[str, ...] = (
        "content-type",
        "x-github-event",
        "x-github-delivery",
        "x-github-hook-id",
    )
    horizon: float = 3 * DAY
    """It does not retry by itself; what is up to three days old can be sent again by hand or by its API."""

    def verify(self, headers: Headers, body: bytes, now: float) -> None:
        sent = field(headers, _HEADER)
        if not sent.startswith(_PREFIX):
            raise SignatureInvalid(f"the header {_HEADER} does not begin with sha256=")
        if not is_signed(self.secrets, body, [sent.removeprefix(_PREFIX)]):
            raise SignatureInvalid(NOT_SIGNED)

    def identify(self, headers: Headers, body: bytes) -> Identity:
        if self.identity == "body":
            return Identity(f"sha256:{sha256(body).hexdigest()}")
        return Identity(id_in_header(headers, "x-github-delivery"))

    def compared(self, headers: Headers, body: bytes) -> bytes:
        if self.identity == "body":
            return whole(body)
        # Not signed, and applications decide by it what a body means.
        return framed(headers.get("x-github-event", "")) + whole(body)
