"""Headers of a stored answer: nothing leaves that could end a line, what must not be kept never is, and all
the rest is kept in its order and number.

An input is names and values in turn, with 0xFE between them.
"""

from retrysafe._core import headers
from tools.fuzz.targets import Broken

# What must not be stored, not copied from the product: RFC 9110 (section 7.6.1), RFC 6265, RFC 9110 (section
# 11), and what is one message's own.
_NEVER = frozenset(
    b"set-cookie authorization authentication-info connection keep-alive proxy-connection te trailer "
    b"transfer-encoding upgrade date content-length traceparent tracestate server-timing vary x-request-id "
    b"x-auth-token x-access-token x-refresh-token x-session-token x-session-id x-csrf-token x-csrftoken "
    b"x-xsrf-token csrf-token xsrf-token x-api-key api-key "
    b"idempotent-replayed idempotency-body idempotency-stored original-request-id".split()
)
_FAMILIES = (b"access-control-", b"ratelimit", b"x-ratelimit-", b"proxy-")
_ENDINGS = (b"-authenticate", b"-authorization")
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_BREAKS = frozenset((*range(9), *range(10, 32), 127))
_NAMES = (
    b"location", b"link", b"etag", b"content-type", b"set-cookie", b"connection", b"x-request-id", b"vary",
    b"date", b"www-authenticate", b"access-control-allow-origin", b"original-request-id", b"x-a", b"proxy-x",
)  # fmt: skip


def check(data: bytes) -> None:
    fields = data.split(b"\xfe")
    given: list[tuple[bytes, bytes]] = []
    for name, value in zip(fields[::2], fields[1::2], strict=False):
        # A byte that begins no token chooses a name, so that those that matter are met.
        if name and name[0] >= 0x80:
            name = _NAMES[name[0] % len(_NAMES)]
        given.append((name.lower(), value))
    kept = headers.kept(given)
    if list(kept) != _expected(given):
        raise Broken(f"of {given!r} was kept {kept!r}")
    if not headers.are_fit(kept):
        raise Broken(f"{kept!r} was kept, and is not fit to be replayed")
    clean = all(_is_clean(name, value) for name, value in given)
    if headers.are_fit(given) and not (
        clean and all(not _is_dropped(name) or name == b"original-request-id" for name, _ in given)
    ):
        raise Broken(f"{given!r} would be replayed")
    if (headers.unfit(given) is None) != clean:
        raise Broken(f"{given!r} could be sent: {headers.unfit(given)!r}")
    length = headers.length(data)
    if length is not None and not (data.isdigit() and length == min(int(data), length)):
        raise Broken(f"the length {data!r} is {length}")


def _is_clean(name: bytes, value: bytes) -> bool:
    return bool(name) and _TOKEN.issuperset(name) and _BREAKS.isdisjoint(value)


def _is_dropped(name: bytes) -> bool:
    return name in _NEVER or name.startswith(_FAMILIES) or name.endswith(_ENDINGS)


def _expected(given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    options = {
        option.strip().lower()
        for name, value in given
        if name == b"connection"
        for option in value.split(b",")
    }
    expected: list[tuple[bytes, bytes]] = []
    for name, value in given:
        if not _is_clean(name, value):
            continue
        if name == b"x-request-id":
            name = b"original-request-id"
        elif _is_dropped(name):
            continue
        if name not in options:
            expected.append((name, value))
    return expected
