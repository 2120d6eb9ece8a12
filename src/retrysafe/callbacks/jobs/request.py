"""One callback as it is sent: the same bytes, to the same URL, under the same id, at every attempt.

Also as a file, which has what another process needs to send it again and no credentials: headers and secrets
are given anew to the process that delivers.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from time import time
from typing import NamedTuple, cast
from uuid import UUID

import httpx
from pydantic import BaseModel
from pydantic.networks import AnyUrl

from retrysafe._core.times import Duration, seconds
from retrysafe.callbacks.jobs.envelope import LONGEST_ID, checked_url, new_callback_id
from retrysafe.callbacks.jobs.errors import CallbackChanged, DamagedFile
from retrysafe.errors import ConfigurationError

HORIZON = 72 * 3600.0
"""Seconds for which attempts are made.  A service that breaks on Friday evening is repaired on Monday, and
what was done at the weekend still arrives."""

LONGEST_HORIZON = 30 * 86400.0
"""Seconds for which receipts are stored by default.  A duplicate that is later would be processed again."""

_VERSION = 1

_SENDABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
"""What may stand in any header line: visible ASCII, with spaces between (RFC 9110 section 5.5)."""


class CallbackRequest(NamedTuple):
    url: str
    body: bytes
    callback_id: str | None
    message_id: str
    """What a signature covers: the callback id, or one made for a callback that has none."""
    correlation_id: str | None
    first_attempt: float
    """Seconds since 1970: the horizon is counted from here, across restarts."""
    horizon: float

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return "a callback without an id" if self.callback_id is None else f"callback {self.callback_id!r}"

    @property
    def file_name(self) -> str:
        """The same for each delivery of one callback.  A digest, because an id may have any characters.

        Without an id, a callback is its content: what is sent again has the same.
        """
        if self.callback_id is None:
            identity = b"content\0" + self.url.encode() + b"\0" + self.body
        else:
            identity = b"id\0" + self.callback_id.encode()
        return f"{sha256(identity).hexdigest()[:32]}.json"

    @property
    def shown_url(self) -> str:
        """Without what may be a credential: the user, the password and the query."""
        url = httpx.URL(self.url)
        port = "" if url.port is None else f":{url.port}"
        host = f"[{url.host}]" if ":" in url.host else url.host
        return f"{url.scheme}://{host}{port}{url.path}"

    def remaining(self, now: float) -> float:
        """Seconds until the horizon ends.  A first attempt in the future is a clock that was set back."""
        return self.horizon - max(0.0, now - self.first_attempt)

    def check_same(self, other: "CallbackRequest", where: object) -> None:
        """Raise unless the other one, found in a folder, is the same callback."""
        for what, changed in (("body", self.body != other.body), ("URL", self.url != other.url)):
            if changed:
                raise CallbackChanged(
                    f"{self.name} is stored with another {what} in {where}: an id stands for one callback, "
                    "and the receiver refuses another body under it. Deliver what is stored with "
                    "deliver_pending(), or remove that file if it is not to be delivered"
                )

    def dump(self) -> bytes:
        content = {
            "version": _VERSION,
            "callback_id": self.callback_id,
            "message_id": self.message_id,
            "correlation_id": self.correlation_id,
            "url": self.url,
            "body": b64encode(self.body).decode(),
            "first_attempt": self.first_attempt,
            "horizon": self.horizon,
        }
        return json.dumps({**content, "sha256": _digest(content)}, indent=1).encode()

    @classmethod
    def load(cls, data: bytes, where: object) -> "CallbackRequest":
        """Raises `DamagedFile` for anything that `dump` has not written."""
        try:
            content: object = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise DamagedFile(f"{where} is damaged: expected JSON, {error}") from None
        if not isinstance(content, dict):
            raise DamagedFile(f"{where} is damaged: expected a JSON object")
        fields = cast("dict[str, object]", content)
        version = fields.get("version")
        if version != _VERSION:
            raise DamagedFile(f"{where} has version {version!r}: this release knows version {_VERSION}")
        digest = fields.pop("sha256", None)
        if digest != _digest(fields):
            raise DamagedFile(f"{where} is damaged: its content does not have the digest that it names")
        match fields:
            case {
                "callback_id": str() | None as callback_id,
                "message_id": str() as message_id,
                "correlation_id": str() | None as correlation_id,
                "url": str() as url,
                "body": str() as body,
                "first_attempt": float() as first_attempt,
                "horizon": float() as horizon,
            }:
                try:
                    return cls(
                        checked_url(url),
                        b64decode(body, validate=True),
                        _checked_id(callback_id),
                        message_id,
                        correlation_id,
                        first_attempt,
                        _checked_horizon(horizon),
                    )
                except ValueError as error:  # ours, and of base64
                    raise DamagedFile(f"{where} is damaged: {error}") from None
            case _:
                raise DamagedFile(f"{where} is damaged: a field is missing or of another type")


def _digest(content: Mapping[str, object]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def make_request(
    callback: BaseModel | Mapping[str, object] | bytes,
    url: str | AnyUrl,
    *,
    callback_id: str | None = None,
    correlation_id: str | None = None,
    horizon: Duration = HORIZON,
) -> CallbackRequest:
    for name, given in (("callback_id", callback_id), ("correlation_id", correlation_id)):
        if given is not None and not isinstance(given, str):
            raise ConfigurationError(f"{name} must be text, got {given!r}")
    own = _own(callback, "callback_id")
    found = callback_id or own
    if own is not None and found != own:
        raise ConfigurationError(f"callback_id is {found!r}, and the callback itself says {own!r}")
    return CallbackRequest(
        url=checked_url(url),
        body=_encode(callback),
        callback_id=_checked_id(found),
        message_id=found or new_callback_id(),
        correlation_id=correlation_id or _own(callback, "correlation_id"),
        first_attempt=time(),
        horizon=_checked_horizon(horizon),
    )


def _checked_id(callback_id: str | None) -> str | None:
    if callback_id is None:
        return None
    try:
        size = len(callback_id.encode())
    except UnicodeEncodeError:
        raise ConfigurationError("callback_id is text that has no UTF-8") from None
    if size > LONGEST_ID:
        raise ConfigurationError(f"callback_id must have at most {LONGEST_ID} bytes in UTF-8, got {size}")
    return callback_id


def is_sendable(text: str) -> bool:
    """Whether it may be the value of a header."""
    return _SENDABLE.fullmatch(text) is not None


def _own(callback: BaseModel | Mapping[str, object] | bytes, name: str) -> str | None:
    """An id that the callback itself carries."""
    if isinstance(callback, bytes):
        return None
    value: object = callback.get(name) if isinstance(callback, Mapping) else getattr(callback, name, None)
    if value is None or value == "":
        return None
    if isinstance(value, str | UUID):
        return str(value)
    raise ConfigurationError(f"{name} of a callback must be text, got {value!r}")


def _encode(callback: BaseModel | Mapping[str, object] | bytes) -> bytes:
    if isinstance(callback, bytes):
        return callback
    if isinstance(callback, BaseModel):
        return callback.model_dump_json(by_alias=True).encode()
    if not isinstance(callback, Mapping):
        raise ConfigurationError(
            f"a callback must be a pydantic model, a mapping or bytes, got {type(callback).__name__}"
        )
    try:
        # Sorted, so that a restart that builds the mapping in another order sends the same bytes.
        text = json.dumps(dict(callback), sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the callback cannot be written as JSON: {error}") from None
    return text.encode()


def _checked_horizon(horizon: Duration) -> float:
    try:
        found = float(seconds(horizon))
    except ValueError as error:
        raise ConfigurationError(f"horizon: {error}") from None
    if not 0 < found < LONGEST_HORIZON:
        raise ConfigurationError(
            f"horizon must be greater than 0 and less than {LONGEST_HORIZON / 86400:g} days, after which the "
            f"receiver no longer knows its first delivery, got {found:g} s"
        )
    return found
