"""Slack's Events API (https://docs.slack.dev/apis/events-api).

    X-Slack-Signature           `v0=<hex>`
    X-Slack-Request-Timestamp   of this delivery
    signed                      v0:{timestamp}:{body}

Before the first event, the endpoint is asked to send a challenge back.
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
from retrysafe.callbacks.webhooks.webhook import (
    DAY,
    Headers,
    Identity,
    PayloadInvalid,
    SignatureInvalid,
    Webhook,
)

_SIGNATURE = "x-slack-signature"
_TIMESTAMP = "x-slack-request-timestamp"
_PREFIX = b"v0="
_COMPARED = ("type", "team_id", "api_app_id", "event_time", "event")
"""What an event says.  Not `token`, which is a credential, nor `authorizations`, an excerpt of a list."""


def slack(signing_secret: Secrets, *, tolerance: float = TOLERANCE) -> Webhook:
    """Slack's Events API.  `signing_secret` is on the page of the app, under Basic Information."""
    return _Slack(secrets=secrets_of(signing_secret, "signing_secret"), tolerance=tolerance_of(tolerance))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slack(Webhook):
    secrets: tuple[Secret, ...]
    tolerance: float
    source: str = "slack"
    stored_headers: tuple[str, ...] = ("content-type", "x-slack-retry-num", "x-slack-retry-reason")
    horizon: float = DAY
    """Three retries within minutes; with delayed events switched on, one more each hour of a day."""

    def verify(self, headers: Headers, body: bytes, now: float) -> None:
        timestamp = field(headers, _TIMESTAMP)
        signature = field(headers, _SIGNATURE)
        sent = unix_time(timestamp, f"the header {_TIMESTAMP}")
        if not signature.startswith(_PREFIX):
            raise SignatureInvalid(f"the header {_SIGNATURE} does not begin with v0=")
        message = b"v0:%s:%s" % (timestamp, body)
        if not is_signed(self.secrets, message, [signature.removeprefix(_PREFIX)]):
            raise SignatureInvalid(NOT_SIGNED)
        check_age(sent, now, self.tolerance)

    def challenge(self, headers: Headers, body: bytes) -> bytes | None:
        if b"url_verification" not in body:
            return None  # the body of every event would be parsed once more
        found = document(body)
        if found.get("type") != "url_verification":
            return None
        challenge = found.get("challenge")
        if not isinstance(challenge, str) or not (challenge.isascii() and challenge.isprintable()):
            raise PayloadInvalid("the body's challenge is not text of printable ASCII")
        return challenge.encode()

    def identify(self, headers: Headers, body: bytes) -> Identity:
        found = document(body)
        if found.get("type") == "app_rate_limited":
            # A notice for each minute in which events were dropped, without an id of its own.
            parts = [id_in(found, name) for name in ("api_app_id", "team_id", "minute_rate_limited")]
            return Identity("/".join(["app_rate_limited", *parts]))
        if "event_id" not in found:
            raise PayloadInvalid(
                "the body has no event_id: this is not an event of the Events API (slash commands and "
                "interactive components have none and are not retried; give them a URL of their own)"
            )
        return Identity(id_in(found, "event_id"))

    def compared(self, headers: Headers, body: bytes) -> bytes:
        return chosen(body, _COMPARED)
