"""Idempotency keys: read from a header, made into an identity.

Whatever a client sends is either a key or a `BadKey` that says what to do about it; nothing
raises, and nothing is guessed.  A key is 1 to 255 printable ASCII characters, quoted or bare:

    "k", "k";a=1    an RFC 9651 String, which the header is specified to be; parameters are ignored,
                    as section 3.1.2 asks for those that are not known
    k               what most clients send; the same key as "k"

No part of a key is ever folded: case, inner spaces and every other character tell two keys apart.
"""

import hmac
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from retrysafe._core.model import Parts

LONGEST = 255
"""What Stripe allows, and so what clients already keep to; it fits an index of any database."""

_IDENTITY = "retrysafe/identity/1"
"""The scheme: it changes with what `digest` hashes, so that old and new identities never meet."""

# Bare, or quoted without escapes and parameters: nearly every key there is, in one look.  A bare
# key has no comma, quotation mark or space: servers join a header that was sent twice with a comma
# (RFC 9110, section 5.3), and `"a", "b"` must not pass for a key.  White space around the value is
# not part of it (section 5.5).
_SIMPLE = re.compile(rb'[ \t]*(?:([!#-+\--~]+)|"([ !#-\[\]-~]*)")[ \t]*')
_UNPRINTABLE = re.compile(rb"[^ -~]")


class BadKey(NamedTuple):
    """Why a header holds no key: for the client, and so without repeating what it sent."""

    reason: str


def parse_key(
    values: Sequence[bytes], *, longest: int = LONGEST, shortest: int = 1, strict: bool = False
) -> str | BadKey:
    """The key in the field lines of a header, given as they arrived; `strict` refuses bare ones."""
    if len(values) != 1:
        # RFC 9651, section 4.2: several lines are one comma-separated value, and that is not an Item.
        # Even when all are alike: something between the client and us repeats headers.
        return BadKey(f"the header was sent {len(values)} times; send it once")
    key: str | BadKey
    if found := _SIMPLE.fullmatch(values[0]):
        if strict and found.lastindex == 1:
            # RFC 9651, section 4.2: a bare one is a Token, a number or nothing, where a String is expected.
            return BadKey("it is not quoted; send it as a string of RFC 9651, in quotation marks")
        key = found[found.lastindex or 1].decode("ascii")
    else:
        key = _parse_unusual(values[0].strip(b" \t"))
        if isinstance(key, BadKey):
            return key
    if shortest <= len(key) <= longest:
        return key
    return BadKey(f"it has {len(key)} characters; send {shortest} to {longest}")


def _parse_unusual(value: bytes) -> str | BadKey:
    """A String with escapes or parameters; else what is wrong with it."""
    if not value:
        return BadKey("it is empty; send the key of this operation, or leave the header out")
    if _UNPRINTABLE.search(value):
        return BadKey("it holds bytes that are not printable ASCII; send letters, digits, - or _")
    if not value.startswith(b'"'):
        if b"," in value:
            return BadKey("it holds a comma; send the header once, or quote a key with commas")
        return BadKey("it holds a space or a quotation mark; quote such a key")
    import http_sf  # here: it takes milliseconds to load, and hardly any client needs it

    with suppress(Exception):  # whatever it thinks of hostile bytes, they are no 500
        item = http_sf.parse(value, tltype="item")
        if isinstance(item, tuple) and isinstance(item[0], str):
            return item[0]
    return BadKey(
        "it opens with a quotation mark but is not a string of RFC 9651; close the string, escape "
        'only \\" and \\\\ in it, and let nothing but ;parameters follow'
    )


def check_key(key: object, *, longest: int = LONGEST) -> str | BadKey:
    """The key that a caller passes as a value and not in a header: any printable text, without white space
    around it.  Its length is counted in bytes of UTF-8, as a column or a peer would count it."""
    if not isinstance(key, str):
        return BadKey(f"it is of type {type(key).__name__}; pass a string")
    trimmed = key.strip()
    if not trimmed:
        return BadKey("it is empty; pass the key of this operation")
    if not trimmed.isprintable():
        return BadKey("it holds characters that cannot be printed; pass letters, digits, - or _")
    size = len(trimmed.encode())
    if size > longest:
        return BadKey(f"it has {size} bytes; pass 1 to {longest}")
    return trimmed


MAKE_A_SECRET = (
    "Pass Guard(..., secret=...) a text of at least 16 characters that stays the same, for example the "
    "output of python -c 'import secrets; print(secrets.token_hex())'"
)


class Secret(bytes):
    """A secret that is not shown by a traceback with its variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"


def digest(door: str, scope: Parts, key: str, secret: bytes | None = None) -> bytes:
    """The identity of a key: 32 bytes that no other door, scope and key have.

    With a secret it is an HMAC, for stores that must not hold the key: a plain digest of a weak key can be
    guessed by trying keys.
    """
    identity = _owner(door, scope) + f"{len(key)}:{key}".encode("utf-8", "surrogatepass")
    if secret is None:
        return sha256(identity).digest()
    return hmac.digest(secret, identity, "sha256")


@lru_cache(maxsize=1024)
def _owner(door: str, scope: Parts) -> bytes:
    # A client that sends one request sends more.
    return framed(_IDENTITY, door, *(text for part in scope for text in part))


def framed(*fields: str) -> bytes:
    """Many fields as one string of bytes, such that no two lists of fields look alike.

    Each field is its length in characters, a colon and itself, so where one ends is never read off its
    content: (`k`, `/a/b`) and (`k/a`, `/b`) stay two things.  What follows the last field needs no length,
    as long as the first one says how many fields there are.
    """
    # One encoding for the whole string instead of one for each field: half the time.
    # `surrogatepass`, because a Python string may hold lone surrogates (a path that was not
    # UTF-8); they are not an error here, and the encoding is still one to one.
    return "".join([f"{len(field)}:{field}" for field in fields]).encode("utf-8", "surrogatepass")


def mask(key: str) -> str:
    """A key as people may see it: `pay_••••`.

    A key gives access to its stored response, so at most a third of it is shown, and two thirds remain to be
    guessed.  Within that, up to four characters: enough to recognise a key in a list.  Short keys (`k-12345`)
    show fewer instead of none, or all of them would look alike.  The dots are always four, because the exact
    length would narrow a guess.
    """
    return f"{key[: min(4, len(key) // 3)]}••••"


CREDENTIALS = "credentials"
"""The part of a scope that holds a digest of credentials (`scopes.credentials`)."""

_SHOWN = 8
"""Digits of it that people are shown: they tell callers apart, and leave little to check a guess against."""


def mask_scope(parts: Parts) -> Parts:
    """A scope as people and metrics may see it: digests of credentials shortened."""
    if all(name != CREDENTIALS for name, _ in parts):
        return parts
    return tuple((name, value[:_SHOWN] if name == CREDENTIALS else value) for name, value in parts)
