"""Secrets, message authentication codes and timestamps: what all signatures have in common."""

import hmac
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from retrysafe._core.keys import Secret
from retrysafe.callbacks.webhooks.webhook import DAY, Headers, SignatureInvalid
from retrysafe.errors import ConfigurationError

Secrets: TypeAlias = str | bytes | Sequence[str | bytes]
"""One secret, or several while one is replaced by another: each of them is accepted."""

Algorithm: TypeAlias = Literal["sha256", "sha1", "sha512"]
"""SHA-1 is broken for signatures over certificates and files, where collisions matter, and not for HMAC."""

Encoding: TypeAlias = Literal["hex", "base64"]

TOLERANCE = 300.0
"""Five minutes: what Standard Webhooks, Stripe and Slack use.  It has to cover the difference of two clocks
and the time of transfer, and it is how long a captured delivery can be sent again."""

_SHORTEST = 16
"""Bytes of a secret, as for a guard's.  Shorter ones can be guessed from a single captured delivery."""

_TEXT = re.compile(rb"[\t\n\r -~]*")

# `int` would also take "+1", "1_0", " 1" and digits of other scripts, and one time would have many spellings.
# Eleven digits last until the year 5138.
_UNIX_TIME = re.compile(r"[1-9][0-9]{0,10}")


def secrets_of(secret: Secrets, what: str = "secret") -> tuple[Secret, ...]:
    """The secrets as bytes: text in UTF-8.  Unfit ones are refused, without showing them."""
    return tuple(_long_enough(_plain(each, what), what) for each in _each(secret, what))


def base64_secrets_of(secret: Secrets) -> tuple[Secret, ...]:
    """The same in the serialization of Standard Webhooks: `whsec_` and base64.  Other bytes are taken as they
    are."""
    return tuple(_long_enough(_serialized(each), "secret") for each in _each(secret, "secret"))


def _each(secret: Secrets, what: str) -> Sequence[str | bytes]:
    if isinstance(secret, str | bytes):
        return (secret,)
    if not isinstance(secret, list | tuple):
        raise ConfigurationError(f"{what} is {type(secret).__name__}: expected text, bytes or a list of them")
    if not secret:
        raise ConfigurationError(f"{what} is an empty list: expected at least one")
    return secret


def _plain(secret: str | bytes, what: str) -> bytes:
    if not isinstance(secret, str | bytes):
        raise ConfigurationError(f"{what} is {type(secret).__name__}: expected text or bytes")
    # Random bytes may end in any of them; those that are text have been read from a file.
    if secret != secret.strip() and (isinstance(secret, str) or _TEXT.fullmatch(secret)):
        raise ConfigurationError(
            f"{what} begins or ends with white space, as a file's last line does: pass {what}.strip()"
        )
    try:
        return secret if isinstance(secret, bytes) else secret.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} is text that has no UTF-8: pass bytes") from None


def _serialized(secret: str | bytes) -> bytes:
    if isinstance(secret, bytes) and not secret.lstrip().startswith((b"whsec_", b"whsk_", b"whpk_")):
        return _plain(secret, "secret")
    text = _plain(secret, "secret").removeprefix(b"whsec_")
    if text.startswith((b"whsk_", b"whpk_")):
        raise ConfigurationError(
            "secret is a key for asymmetric signatures (v1a), which are not supported: use the sender's "
            "whsec_ secret"
        )
    try:
        return b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise ConfigurationError(
            "secret is not base64: expected whsec_ and base64, as the sender shows it; pass a secret that is "
            "not encoded as bytes"
        ) from None


def _long_enough(secret: bytes, what: str) -> Secret:
    if len(secret) < _SHORTEST:
        raise ConfigurationError(
            f"{what} has {len(secret)} bytes: expected the one that the sender shows or was given, of at "
            f"least {_SHORTEST}; make one with python -c 'import secrets; print(secrets.token_hex())'"
        )
    return Secret(secret)


def tolerance_of(tolerance: float) -> float:
    """Seconds.  At most a day: so far apart, a timestamp with a digit more or less is never accepted."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float):
        raise ConfigurationError(f"tolerance is {type(tolerance).__name__}: expected a number of seconds")
    if not (math.isfinite(tolerance) and 0 < tolerance <= DAY):
        raise ConfigurationError(f"tolerance must be greater than 0 and at most {DAY:.0f} s, got {tolerance}")
    return float(tolerance)


def mac(secret: bytes, message: bytes, algorithm: Algorithm = "sha256", encoding: Encoding = "hex") -> bytes:
    """An HMAC (RFC 2104), as it is sent."""
    found = hmac.digest(secret, message, algorithm)
    return b64encode(found) if encoding == "base64" else found.hex().encode()


def is_signed(
    secrets: Iterable[bytes],
    message: bytes,
    sent: Sequence[bytes],
    algorithm: Algorithm = "sha256",
    encoding: Encoding = "hex",
) -> bool:
    """Whether one of the signatures that were sent was made with one of the secrets, in constant time.

    A function of its own that raises nothing: what it expects is then in no traceback with its variables.
    """
    return any(
        hmac.compare_digest(expected, each)
        for expected in [mac(secret, message, algorithm, encoding) for secret in secrets]
        for each in sent
    )


def field(headers: Headers, name: str) -> bytes:
    """A header that has to be there, as the bytes that were sent."""
    value = headers.get(name, "").strip(" \t")
    if not value:
        raise SignatureInvalid(f"the header {name} is missing or empty")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise SignatureInvalid(f"the header {name} holds characters that no header has") from None


def unix_time(value: bytes, where: str) -> int:
    """A timestamp in seconds, in the one spelling that every parser reads in the same way."""
    text = value.decode("latin-1")
    if not _UNIX_TIME.fullmatch(text):
        raise SignatureInvalid(f"{where} is not a Unix time in whole seconds")
    return int(text)


def is_unix_time(seconds: float) -> bool:
    """Whether `unix_time` reads the whole of it: milliseconds are none."""
    return math.isfinite(seconds) and _UNIX_TIME.fullmatch(str(int(seconds))) is not None


def check_age(sent: int, now: float, tolerance: float) -> None:
    """Checked after the signature: what is reported is then the age of a genuine delivery."""
    if not abs(now - sent) <= tolerance:
        direction = "old" if sent < now else "in the future"
        raise SignatureInvalid(
            f"the signed timestamp is {abs(now - sent):.0f} s {direction}, and {tolerance:.0f} s are "
            "allowed: check the clocks, and whether something delays deliveries"
        )


NOT_SIGNED = (
    "no signature matches the secret: check that it is the one of this endpoint, and that nothing changes "
    "the body on its way"
)
