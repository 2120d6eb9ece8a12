"""CloudEvents 1.0 over HTTP, one event per request (https://github.com/cloudevents/spec).

    structured mode     `application/cloudevents+json`: attributes and data are in the body
    binary mode         attributes are in headers, `ce-id`, `ce-source`, …, and the body is the data

The specification has no signatures.  With those of another preset, only structured mode is accepted unless
asked for: they cover the body, and in binary mode the id is not in it.
"""

import re
from base64 import b64decode
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from retrysafe._core.fingerprint.canonical import Value
from retrysafe._core.keys import framed
from retrysafe.callbacks.webhooks.payloads import checked, document, meaning, whole
from retrysafe.callbacks.webhooks.webhook import (
    DAY,
    Headers,
    Identity,
    PayloadInvalid,
    SignatureInvalid,
    Webhook,
)
from retrysafe.errors import ConfigurationError

_MEDIA_TYPE = "application/cloudevents"
_JSON = re.compile(r"[^;]*[/+]json[ \t]*(?:;|$)")
_PRINTABLE = re.compile(r"[ -~]*")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def cloudevents(signature: Webhook | None = None, *, unsigned_headers: bool = False) -> Webhook:
    """CloudEvents.

    `signature` is a preset whose signature these requests carry, such as `standard(secret)`.  Without one
    every request is accepted: authenticate it in another way.  `unsigned_headers=True` accepts binary mode
    beside a signature that does not cover its headers.
    """
    if signature is not None and not isinstance(signature, Webhook):
        raise ConfigurationError(
            f"signature is {type(signature).__name__}: expected a preset, such as webhooks.standard(secret)"
        )
    if isinstance(signature, _CloudEvents):
        raise ConfigurationError(
            "signature is cloudevents(), which has none of its own: expected another preset"
        )
    if signature is None:
        return _CloudEvents(signature=None, unsigned_headers=unsigned_headers)
    return _CloudEvents(signature=signature, unsigned_headers=unsigned_headers, horizon=signature.horizon)


class _Event(NamedTuple):
    """What is read of an event, whatever its mode."""

    id: str
    source: str
    type: str
    subject: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _CloudEvents(Webhook):
    signature: Webhook | None
    unsigned_headers: bool
    source: str = "cloudevents"
    stored_headers: tuple[str, ...] = (
        "content-type",
        "ce-specversion",
        "ce-id",
        "ce-source",
        "ce-type",
        "ce-subject",
        "ce-time",
        "ce-dataschema",
    )
    horizon: float = 7 * DAY
    """The specification has none, and brokers are configured: a week is longer than most retry."""

    def verify(self, headers: Headers, body: bytes, now: float) -> None:
        if self.signature is None:
            return
        self.signature.verify(headers, body, now)
        if not self.unsigned_headers and not _media_type(headers).startswith(_MEDIA_TYPE):
            raise SignatureInvalid(
                "an event in binary mode has its id in a header that is not signed: send it in structured "
                "mode, as application/cloudevents+json"
            )

    def identify(self, headers: Headers, body: bytes) -> Identity:
        event = _read(headers, body)
        return Identity(event.id, event.source)

    def compared(self, headers: Headers, body: bytes) -> bytes:
        event = _read(headers, body)
        return framed(event.type, event.subject) + event.data


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _read(headers: Headers, body: bytes) -> _Event:
    # Section 1.3 of the HTTP binding: the modes are told apart by the media type.
    media_type = _media_type(headers)
    if media_type.startswith(f"{_MEDIA_TYPE}-batch"):
        raise PayloadInvalid(
            "this is a batch of events, of which some may be handled and some not, and one response cannot "
            "say so: send one event per request"
        )
    if media_type == f"{_MEDIA_TYPE}+json":
        return _structured(document(body))
    if media_type.startswith(_MEDIA_TYPE):
        raise PayloadInvalid(f"the event format is not supported: expected {_MEDIA_TYPE}+json")
    return _binary(headers, body)


def _structured(event: dict[str, Value]) -> _Event:
    def attribute(name: str, *, required: bool = True) -> str:
        value = event.get(name)
        if value is None and not required:
            return ""
        if not isinstance(value, str):
            raise PayloadInvalid(f"the event has no attribute {name} that is text")
        return checked(value, f"the attribute {name}")

    _check_version(attribute("specversion"))
    return _Event(
        attribute("id"),
        attribute("source"),
        attribute("type"),
        attribute("subject", required=False),
        _structured_data(event, attribute("datacontenttype", required=False)),
    )


def _structured_data(event: dict[str, Value], media_type: str) -> bytes:
    """The data as binary mode would have them, since a router may forward the same event in another mode."""
    if "data_base64" in event:
        encoded = event["data_base64"]
        if "data" in event or not isinstance(encoded, str):
            raise PayloadInvalid("the event has data and data_base64, or a data_base64 that is not text")
        try:
            return whole(b64decode(encoded.encode(), validate=True))
        except ValueError:  # no ASCII, no base64
            raise PayloadInvalid("the event's data_base64 is not base64") from None
    if "data" not in event:
        return whole(b"")
    data = event["data"]
    # Section 3.1 of the JSON format: without a media type, data are JSON; with another one, text stands for
    # itself.
    if isinstance(data, str) and media_type and not _JSON.match(media_type.lower()):
        return whole(data.encode("utf-8", "surrogatepass"))
    return meaning(data)


def _binary(headers: Headers, body: bytes) -> _Event:
    def attribute(name: str, *, required: bool = True) -> str:
        value = headers.get(f"ce-{name}", "").strip(" \t")
        if not value and not required:
            return ""
        if not value:
            raise PayloadInvalid(f"the header ce-{name} is missing or empty")
        return checked(_decoded(value, name), f"the header ce-{name}")

    _check_version(attribute("specversion"))
    return _Event(
        attribute("id"),
        attribute("source"),
        attribute("type"),
        attribute("subject", required=False),
        whole(body),
    )


def _decoded(value: str, name: str) -> str:
    """Section 3.1.3.2 of the HTTP binding: quotation marks first, then percent-decoding, once."""
    if value.startswith('"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None:
            raise PayloadInvalid(f"the header ce-{name} is not one quoted string")
        value = re.sub(r"\\(.)", r"\1", quoted[1])
    if not _PRINTABLE.fullmatch(value) or _BROKEN_ESCAPE.search(value):
        raise PayloadInvalid(f"the header ce-{name} is not percent-encoded as CloudEvents ask")
    try:
        return unquote_to_bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise PayloadInvalid(f"the header ce-{name} is not percent-encoded UTF-8") from None


def _check_version(version: str) -> None:
    if version != "1.0":
        raise PayloadInvalid("the event's specversion is not supported: expected 1.0")
