"""Which header fields of a response are stored, and whether they are fit to be sent.

Stored is what describes the *representation* (`Location`, `ETag`, `Content-Type`, `Link`, …).  Dropped is
what belongs to one message, one connection or one client.  Names and values are checked when they are
stored and again when they are replayed: a store is not a trusted place (CWE-113).  All names here are in
lower case already.
"""

import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

from retrysafe._core.model import Header, Headers, make

_DROPPED = frozenset(
    {
        # one client's session and credentials
        b"set-cookie",
        b"authorization",
        b"authentication-info",
        # the same by the names that frameworks, gateways and SPAs give to tokens.  By name and not by
        # `*-token`: page, continuation and upload tokens are part of a representation.
        b"x-auth-token",
        b"x-access-token",
        b"x-refresh-token",
        b"x-session-token",
        b"x-session-id",
        b"x-csrf-token",
        b"x-csrftoken",
        b"x-xsrf-token",
        b"csrf-token",
        b"xsrf-token",
        b"x-api-key",
        b"api-key",
        # hop by hop: RFC 9110 section 7.6.1, and what its predecessors listed
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        # one message: sent anew with every replay
        b"date",
        b"content-length",
        b"x-request-id",
        b"traceparent",
        b"tracestate",
        b"server-timing",
        # one origin, one cache key: a layer in front of us adds it to every response
        b"vary",
        # ours: an inner service's own marker must not pass for ours
        b"idempotent-replayed",
        b"original-request-id",
        b"idempotency-body",
        b"idempotency-stored",
    }
)
ORIGINAL_ID = b"original-request-id"
_DROPPED_PREFIXES = (b"access-control-", b"ratelimit", b"x-ratelimit-", b"proxy-")
_DROPPED_SUFFIXES = (b"-authenticate", b"-authorization")

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2, token
_IN_VALUES = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])  # RFC 9110 section 5.5, field-value


@lru_cache(maxsize=1024)
def _is_kept(name: bytes) -> bool:
    return (
        name not in _DROPPED
        and not name.startswith(_DROPPED_PREFIXES)
        and not name.endswith(_DROPPED_SUFFIXES)
        and _NAME.fullmatch(name) is not None
    )


class Sorted(NamedTuple):
    """The headers of a response, looked at once."""

    sent: Headers
    """All of them, names in lower case."""
    storable: Headers
    """As `kept` gives them."""
    length: int | None
    """What `Content-Length` announces."""
    is_event_stream: bool


class UnfitHeader(ValueError):
    """A header that no server could send."""

    def __init__(self, name: bytes) -> None:
        # By its name only: the value may be a secret.
        super().__init__(f"the application's header {name!r} has a character that no header may have")


_DROPPED_HERE, _LENGTH, _TYPE, _REQUEST_ID, _CONNECTION = range(5)
_SPECIAL = {
    b"content-length": _LENGTH,
    b"content-type": _TYPE,
    b"x-request-id": _REQUEST_ID,
    b"connection": _CONNECTION,
}


@lru_cache(maxsize=1024)
def _kind(name: bytes) -> tuple[bytes, int | None]:
    """A name in lower case, and what is done with its header; `None`: it is stored as it is."""
    lower = name.lower()
    if not is_name(lower):
        raise UnfitHeader(lower)
    return lower, _SPECIAL.get(lower, None if _is_kept(lower) else _DROPPED_HERE)


def sort(headers: Iterable[tuple[bytes, bytes]], drop: Set[bytes] = frozenset()) -> Sorted:
    """All that has to be known about the headers of a response, in one pass; none in `drop` is storable."""
    sent: list[Header] = []
    storable: list[Header] = []
    values: list[bytes] = []
    announced: int | None = None
    streams = False
    named = drop
    for given, value in headers:
        if type(given) is not bytes or type(value) is not bytes:
            given, value = bytes(given), bytes(value)  # they may be buffers that will be used again
        name, kind = _kind(given)
        pair = (name, value)
        sent.append(pair)
        values.append(value)
        if kind is None:
            storable.append(pair)
        elif kind == _LENGTH:
            announced = length(value)
        elif kind == _TYPE:
            storable.append(pair)
            streams = value[:17].lower() == b"text/event-stream"
        elif kind == _REQUEST_ID:
            storable.append((ORIGINAL_ID, value))
        elif kind == _CONNECTION:
            # RFC 9110 section 7.6.1: fields that `Connection` names belong to the connection too.
            named = {*named, *(option.strip().lower() for option in value.split(b","))}
    if not _is_value(b"".join(values)):
        raise UnfitHeader(next(name for name, value in sent if not _is_value(value)))
    if named:
        storable = [pair for pair in storable if pair[0] not in named]
    return make(Sorted, (tuple(sent), tuple(storable), announced, streams))


def kept(headers: Sequence[Header], drop: Set[bytes] = frozenset()) -> Headers:
    """What of a response's headers goes into the record, in their order and number; not those in `drop`.

    The response's own request id is stored under another name: it becomes the *original* one of every replay.
    """
    chosen: list[Header] = []
    named: set[bytes] = set()
    for pair in headers:
        name, value = pair
        if _is_kept(name):
            if _is_value(value):
                chosen.append(pair)
        elif name == b"x-request-id":
            if _is_value(value):
                chosen.append((ORIGINAL_ID, value))
        elif name == b"connection":
            # RFC 9110 section 7.6.1: fields that `Connection` names belong to the connection too.
            named.update(option.strip().lower() for option in value.split(b","))
    if drop:
        named.update(drop)
    return tuple([pair for pair in chosen if pair[0] not in named] if named else chosen)


def are_fit(headers: Sequence[Header], *more: bytes) -> bool:
    """Whether stored headers are such as `kept` would have let through, and so may be replayed.

    `more` are values that are to be sent with them.
    """
    names, values = zip(*headers, strict=True) if headers else ((), ())
    if not all(map(_is_kept, names)) and not all(_is_kept(name) or name == ORIGINAL_ID for name in names):
        return False
    return _is_value(b"".join((*values, *more)))


def _is_value(value: bytes) -> bool:
    """Whether this may be the value of a header, or be several of them, one after the other."""
    # What is printable may; for what is not, `translate` knows, but it builds a table each time.
    return value.decode("latin-1").isprintable() or not value.translate(None, _IN_VALUES)


def unfit(headers: Iterable[Header]) -> bytes | None:
    """The name of a header that no server could send."""
    for name, value in headers:
        if not _is_value(value) or not is_name(name):
            return name
    return None


@lru_cache(maxsize=1024)
def is_name(name: bytes) -> bool:
    """Whether this may be the name of a header."""
    return _NAME.fullmatch(name) is not None


def find(headers: Iterable[Header], name: bytes) -> bytes | None:
    """The value of a header; the last one, should there be several."""
    return dict(headers).get(name)


def is_event_stream(headers: Iterable[Header]) -> bool:
    """Whether this is a response without an end of its own."""
    return dict(headers).get(b"content-type", b"")[:17].lower() == b"text/event-stream"


def length(value: bytes) -> int | None:
    """What a `Content-Length` says, if it is a number; a longer one than 19 digits is cut to 19."""
    if not value.isdigit():
        return None
    return int(value if len(value) < 20 else value.lstrip(b"0")[:19] or b"0")
