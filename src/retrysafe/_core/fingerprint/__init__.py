"""What a request asks for, in 33 bytes, to notice a key that is used again for something else.

A fingerprint is a version byte and a SHA-256 over method, path, query, media type without
parameters, and the body in one of several encodings.  Requests with equal fingerprints ask for the
same; nothing else is left out or folded, and compressed bodies are hashed as they arrived and
never inflated.

    "raw"               the bytes of the body; of a multipart body its parts, without the boundary
    "json"              the body as canonical JSON: spelling and order of members do not matter
    ("customer.id", …)  these fields of a JSON body, and nothing else of it
    a function          what it makes of the request and the whole body: `bytes` or `str`
    None                method and path only, which are always compared

Where a body is not the JSON that was expected (or too large to be parsed), or not well-formed
multipart, its bytes are compared.  That may take a retry for another request, but never another
request for a retry.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import Literal, cast

from retrysafe._core.fingerprint.body import BodyView, InMemory
from retrysafe._core.fingerprint.multipart import encode_parts
from retrysafe._core.keys import framed
from retrysafe._core.model import Request
from retrysafe.errors import ConfigurationError

__all__ = ["BodyView", "Fingerprint", "InMemory", "check", "fingerprint", "same"]

_Function = Callable[[Request, bytes], bytes | str]
_OfBody = Literal["raw", "json"] | tuple[str, ...] | _Function

Fingerprint = _OfBody | None
"""The choice that a policy makes; the table above says what each means."""

VERSION = b"\x01"
"""Kept with the fingerprint in the record: one of another version was made by other rules."""

LARGEST_JSON = 1024 * 1024
"""A larger body is on disk in order not to be held in memory, and parsed it would take twenty times
its size there, and half a second if it was made to.  Its bytes are compared."""

_SHORT = 512
"""Characters of what is worth remembering."""

_Encoded = tuple[str, Iterable[bytes | memoryview]]
"""An encoding of the body: its name, and its bytes."""


def fingerprint(kind: Fingerprint, request: Request, body: BodyView) -> bytes:
    if kind is None:
        return VERSION + sha256(framed("none", request.method, request.path)).digest()
    content_type = request.fields.get(b"content-type", b"")
    if kind == "raw" and len(request.path) + len(request.query) + len(content_type) <= _SHORT:
        raw_head = _raw_head(request.method, request.path, request.query, content_type)
        if raw_head is not None:
            hashed = sha256(raw_head)
            for chunk in body.chunks():
                hashed.update(chunk)
            return VERSION + hashed.digest()
    parse = _media_type if len(content_type) <= _SHORT else _media_type.__wrapped__
    media_type, is_multipart = parse(content_type)
    pieces: Iterable[bytes | memoryview]
    if kind == "raw" and not is_multipart:
        encoding, pieces = "raw", body.chunks()
    else:
        encoding, pieces = _encode(kind, request, body, content_type, is_multipart=is_multipart)
    # The encoding's name comes first, so that no two encodings meet; the body comes last, so that
    # it can be hashed as it is read, without knowing its length.
    # What is long is rarely asked twice, and a cache full of it would be a gift to whoever sends it.
    is_short = len(request.path) + len(request.query) + len(content_type) <= _SHORT
    make_head = _head if is_short else _head.__wrapped__
    hashed = sha256(make_head(encoding, request.method, request.path, request.query, media_type))
    for piece in pieces:
        hashed.update(piece)
    return VERSION + hashed.digest()


# Most requests of a service are of a few kinds, and go to a few routes.
@lru_cache(maxsize=256)
def _media_type(content_type: bytes) -> tuple[str, bool]:
    """Without its parameters, and whether it is a multipart one."""
    media_type = content_type.partition(b";")[0].strip(b" \t").lower().decode("latin-1")
    return media_type, media_type.startswith("multipart/")


@lru_cache(maxsize=1024)
def _raw_head(method: str, path: str, query: bytes, content_type: bytes) -> bytes | None:
    """What comes before the bytes of a body that is compared raw; `None` for a multipart one."""
    media_type, is_multipart = _media_type(content_type)
    return None if is_multipart else _head("raw", method, path, query, media_type)


@lru_cache(maxsize=1024)
def _head(encoding: str, method: str, path: str, query: bytes, media_type: str) -> bytes:
    return framed(encoding, method, path, query.decode("latin-1"), media_type)


same = compare_digest
"""In constant time: how much of a fingerprint was right must not be measurable."""


def check(kind: object) -> None:
    """Refuse what is not a `Fingerprint`, where a policy is built and not at its first request."""
    if kind is None or kind in ("raw", "json") or callable(kind):
        return
    paths = cast("tuple[object, ...]", kind) if isinstance(kind, tuple) else ()
    if paths and all(isinstance(path, str) for path in paths):
        return
    raise ConfigurationError(
        f'fingerprint={kind!r} is none of "raw", "json", a tuple of fields such as '
        '("customer.id",), a function of the request and its body, and None'
    )


def _encode(
    kind: _OfBody, request: Request, body: BodyView, content_type: bytes, *, is_multipart: bool
) -> _Encoded:
    if callable(kind):
        return "function", (_answer(kind, request, body),)
    if kind != "raw":
        with suppress(ValueError, RecursionError):
            return _as_json(kind, body)
    if is_multipart:
        parts = encode_parts(body.view(), content_type)
        if parts is not None:
            return "multipart", parts
    return "raw", body.chunks()


def _as_json(kind: Literal["json"] | tuple[str, ...], body: BodyView) -> _Encoded:
    # Here, because most requests are compared raw, and a parser takes milliseconds to load.
    from retrysafe._core.fingerprint.canonical import parse, write
    from retrysafe._core.fingerprint.fields import choose

    if body.size > LARGEST_JSON:
        raise ValueError("too large to be parsed")
    document = parse(_whole(body))
    if kind == "json":
        return "json", (write(document).encode("utf-8", "surrogatepass"),)
    return "fields", (choose(document, kind),)


def _whole(body: BodyView) -> bytes:
    view = body.view()
    return view if isinstance(view, bytes) else view[:]


def _answer(function: _Function, request: Request, body: BodyView) -> bytes:
    # What it raises is left to rise: a fingerprint that cannot be made is a fault of the
    # application, and there is no safe guess at what it would have said.
    answer: object = function(request, _whole(body))
    match answer:
        case bytes():
            return answer
        case str():
            return answer.encode("utf-8", "surrogatepass")
        case _:
            raise TypeError(
                f"the fingerprint function {function!r} returned {type(answer).__name__}; "
                "return bytes or str, and not from an async function"
            )
