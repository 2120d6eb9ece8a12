"""Senders that sign with an HMAC in a header, each in its own way."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from retrysafe._core.headers import is_name
from retrysafe._core.keys import Secret
from retrysafe.callbacks.webhooks.payloads import chosen, document, fields_of, id_in, id_in_header
from retrysafe.callbacks.webhooks.signatures import (
    NOT_SIGNED,
    TOLERANCE,
    Algorithm,
    Encoding,
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

_PARTS = re.compile(r"(\{timestamp\}|\{id\}|\{body\})")
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})


def signed(
    secret: Secrets,
    *,
    header: str,
    id: str | None = None,
    id_header: str | None = None,
    source: str = "signed",
    algorithm: Algorithm = "sha256",
    encoding: Encoding = "hex",
    prefix: str = "",
    template: str = "{body}",
    timestamp_header: str | None = None,
    tolerance: float = TOLERANCE,
    compare: Sequence[str] | None = None,
    stored_headers: Sequence[str] = (),
    horizon: float = 7 * DAY,
) -> Webhook:
    """A sender that puts an HMAC into a header.

    header              where the signature is
    id, id_header       where the event's id is: a path in the JSON body such as `data.id`, which is signed;
                        or a header, which is signed only if `template` has `{id}`
    algorithm           sha256, sha1 or sha512
    encoding            hex or base64
    prefix              in front of the signature, such as `sha256=`
    template            what is signed: `{body}`, `{timestamp}.{body}`, `{id}.{timestamp}.{body}`
    timestamp_header    a Unix time, which `template` has to include
    compare             fields of the JSON body that a redelivery may not change; all of the body if not given
    stored_headers      request headers that are worth storing with a payload
    horizon             for how many seconds the sender delivers again
    """
    if algorithm not in get_args(Algorithm):
        raise ConfigurationError(f"algorithm is {algorithm!r}: expected sha256, sha1 or sha512")
    if encoding not in get_args(Encoding):
        raise ConfigurationError(f"encoding is {encoding!r}: expected hex or base64")
    if not prefix.isascii() or len(prefix.split()) != bool(prefix) or prefix != prefix.strip():
        raise ConfigurationError(f"prefix is {prefix!r}: expected ASCII without white space")
    if (id is None) == (id_header is None):
        raise ConfigurationError("pass either id, a path in the body such as data.id, or id_header")
    if id is not None and not all(id.removeprefix("/").split("/" if id.startswith("/") else ".")):
        raise ConfigurationError(f"id is {id!r}: expected a path of names in the body, such as data.id")
    if not source:
        raise ConfigurationError("source is empty: expected the name of the sender")
    if not horizon > 0:
        raise ConfigurationError(f"horizon must be greater than 0, got {horizon}")
    if isinstance(stored_headers, str):  # a sequence of strings, too
        raise ConfigurationError(
            f"stored_headers is {stored_headers!r}: expected a list of names, as in [{stored_headers!r}]"
        )
    every = (header, id_header, timestamp_header, *stored_headers)
    names = {name: _name(name) for name in every if name is not None}
    stored = tuple(names[name] for name in stored_headers)
    if refused := (_CREDENTIALS | {names[header]}).intersection(stored):
        raise ConfigurationError(
            f"stored_headers has {', '.join(sorted(refused))}: credentials are not stored"
        )
    return _Signed(
        secrets=secrets_of(secret),
        header=names[header],
        algorithm=algorithm,
        encoding=encoding,
        prefix=prefix.encode(),
        template=_template(template, id_header is not None, timestamp_header is not None),
        timestamp_header=names[timestamp_header] if timestamp_header is not None else None,
        tolerance=tolerance_of(tolerance),
        id=id,
        id_header=names[id_header] if id_header is not None else None,
        compare=fields_of(compare),
        source=source,
        stored_headers=stored or ("content-type",),
        horizon=horizon,
    )


def _name(name: str) -> str:
    lower = name.lower()
    if not lower.isascii() or not is_name(lower.encode()):
        raise ConfigurationError(f"{name!r} is not the name of a header")
    return lower


def _template(template: str, has_id: bool, has_timestamp: bool) -> tuple[str, ...]:
    """Literals and parts in turn, such that no two deliveries have the same text to sign."""
    pieces = _PARTS.split(template)
    parts = pieces[1::2]
    if any("{" in text or "}" in text for text in pieces[::2]):
        raise ConfigurationError(f"template is {template!r}: expected text, {{timestamp}}, {{id}}, {{body}}")
    if parts.count("{body}") != 1 or len(set(parts)) != len(parts):
        raise ConfigurationError(f"template is {template!r}: expected {{body}} once, and no part twice")
    if "{timestamp}" in parts and not has_timestamp:
        raise ConfigurationError("template has {timestamp}: pass timestamp_header, too")
    if "{id}" in parts and not has_id:
        raise ConfigurationError("template has {id}: pass id_header, too")
    if has_timestamp and "{timestamp}" not in parts:
        raise ConfigurationError(
            "timestamp_header is given and template has no {timestamp}: a time that is not signed can be "
            "changed with a replay; leave it out, or add it to the template if the sender signs it"
        )
    # Timestamps have a fixed length for as long as their tolerance matters, and so need nothing around them.
    if "{id}" in parts:
        at = pieces.index("{id}")
        neighbours = [pieces[there] for there in (at - 1, at + 1) if there not in (0, len(pieces) - 1)]
        if not all(neighbours):
            raise ConfigurationError(
                f"template is {template!r}: put the text that the sender puts there between {{id}} and its "
                "neighbours; without any, an id could be made longer or shorter unnoticed"
            )
    return tuple(pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signed(Webhook):
    secrets: tuple[Secret, ...]
    header: str
    algorithm: Algorithm
    encoding: Encoding
    prefix: bytes
    template: tuple[str, ...]
    timestamp_header: str | None
    tolerance: float
    id: str | None
    id_header: str | None
    compare: tuple[str, ...] | None

    def verify(self, headers: Headers, body: bytes, now: float) -> None:
        # Several signatures are separated by commas or white space, and header lines are joined with ", ".
        between = rb",?[ \t]+" if b"," in self.prefix else rb"[, \t]+"
        codes = [
            each.removeprefix(self.prefix)
            for each in re.split(between, field(headers, self.header))
            if each.startswith(self.prefix)
        ]
        if not codes:
            raise SignatureInvalid(f"the header {self.header} does not begin as expected")
        if self.encoding == "hex":
            codes = [code.lower() for code in codes]
        sent: int | None = None
        values = {"{body}": body}
        if self.timestamp_header is not None:
            values["{timestamp}"] = field(headers, self.timestamp_header)
            sent = unix_time(values["{timestamp}"], f"the header {self.timestamp_header}")
        if self.id_header is not None and "{id}" in self.template:
            values["{id}"] = self._signed_id(headers, self.id_header)
        message = b"".join([values[piece] if piece in values else piece.encode() for piece in self.template])
        if not is_signed(self.secrets, message, codes, self.algorithm, self.encoding):
            raise SignatureInvalid(NOT_SIGNED)
        if sent is not None:
            check_age(sent, now, self.tolerance)

    def _signed_id(self, headers: Headers, name: str) -> bytes:
        id = field(headers, name)
        at = self.template.index("{id}")
        # The characters next to it may not be in it, or the same text could be taken apart in two ways.
        around = self.template[at - 1][-1:], self.template[at + 1][:1]
        if any(text and text.encode() in id for text in around):
            raise SignatureInvalid(
                f"the header {name} holds a character that separates it in the signed text"
            )
        return id

    def identify(self, headers: Headers, body: bytes) -> Identity:
        if self.id_header is not None:
            return Identity(id_in_header(headers, self.id_header))
        return Identity(id_in(document(body), self.id or ""))

    def compared(self, headers: Headers, body: bytes) -> bytes:
        return chosen(body, self.compare)
