"""Which headers of an answer are kept, and what may be put on the wire."""

import pytest

from retrysafe._core.headers import ORIGINAL_ID, are_fit, find, is_event_stream, kept
from retrysafe._core.model import Headers

KEPT = (
    "cache-control content-disposition content-encoding content-language content-location content-range "
    "content-type etag expires last-modified link location retry-after x-custom x-total-count "
    "content-security-policy strict-transport-security allow accept-patch deprecation sunset "
    "x-continuation-token x-next-page-token upload-token"
).split()

# Line by line: sessions and credentials, hop by hop, one message, one origin, quotas, and our own.
DROPPED = (
    "set-cookie authorization authentication-info "
    "x-auth-token x-access-token x-refresh-token x-session-token x-session-id "
    "x-csrf-token x-csrftoken x-xsrf-token csrf-token xsrf-token x-api-key api-key "
    "connection keep-alive proxy-connection te trailer transfer-encoding upgrade "
    "date content-length traceparent tracestate server-timing "
    "access-control-allow-origin access-control-allow-credentials access-control-expose-headers "
    "access-control-allow-methods access-control-allow-headers access-control-max-age vary "
    "ratelimit ratelimit-limit ratelimit-remaining ratelimit-reset ratelimit-policy "
    "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset "
    "www-authenticate proxy-authenticate proxy-authorization proxy-authentication-info x-authorization "
    "idempotent-replayed original-request-id idempotency-body idempotency-stored"
).split()


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    """What describes the representation, or is nobody's business but the application's, is replayed."""
    pair = (name.encode(), b"value")
    assert kept([pair]) == (pair,)


@pytest.mark.parametrize("name", DROPPED)
def test_dropped(name: str) -> None:
    """What belongs to one message, one connection or one client is never stored (S9)."""
    assert kept([(name.encode(), b"value"), (b"etag", b'"1"')]) == ((b"etag", b'"1"'),)


def test_a_guard_names_more() -> None:
    """What only the application knows to be one client's is not stored either."""
    sent: Headers = ((b"x-session", b"s"), (b"etag", b'"1"'), (b"x-tab", b"t"))
    assert kept(sent, frozenset({b"x-session", b"x-tab"})) == ((b"etag", b'"1"'),)
    assert kept(sent) == sent


def test_order_and_number_are_kept() -> None:
    """`Link` may come twice, and its values are neither joined nor split (I4)."""
    headers: Headers = (
        (b"link", b'<a>; rel="next", <b>; rel="last"'),
        (b"etag", b'"1"'),
        (b"link", b'<c>; rel="up"'),
        (b"x-empty", b""),
    )
    assert kept(headers) == headers


def test_the_request_id_becomes_the_original_one() -> None:
    """Every replay has an id of its own, and names that of the first answer."""
    assert kept([(b"x-request-id", b"r-1")]) == ((ORIGINAL_ID, b"r-1"),)


@pytest.mark.parametrize("value", [b"x-hop", b"close, X-Hop", b" x-hop ,keep-alive", b"X-HOP"])
@pytest.mark.parametrize("before", [True, False])
def test_what_connection_names_is_dropped(value: bytes, before: bool) -> None:
    """RFC 9110 section 7.6.1, wherever the two stand."""
    pair, connection = (b"x-hop", b"1"), (b"connection", value)
    headers = [connection, pair] if before else [pair, connection]
    assert kept([*headers, (b"etag", b'"1"')]) == ((b"etag", b'"1"'),)


def test_connection_may_come_twice() -> None:
    """It is a list (RFC 9110 section 5.3): what either line names belongs to the connection."""
    headers = [(b"connection", b"close"), (b"x-hop", b"1"), (b"connection", b"x-hop")]
    assert kept(headers) == ()


@pytest.mark.parametrize(
    "value", [b"a\r\nx-evil: 1", b"a\nb", b"a\rb", b"a\x00b", b"\x0b", b"\x7f", b"\x1b[2J"]
)
def test_unfit_values_are_dropped(value: bytes) -> None:
    """A header that would split the answer, or is no text, is not stored (S10)."""
    assert kept([(b"x-value", value), (b"etag", b'"1"')]) == ((b"etag", b'"1"'),)
    assert kept([(b"x-request-id", value)]) == ()
    assert not are_fit([(b"x-value", value)])


@pytest.mark.parametrize("name", [b"", b"x y", b"x:y", b"x\r\ny", b"x\x00", "é".encode(), b"x(y)", b'"x"'])
def test_unfit_names_are_dropped(name: bytes) -> None:
    """RFC 9110 section 5.6.2: a name is a token."""
    assert kept([(name, b"value"), (b"etag", b'"1"')]) == ((b"etag", b'"1"'),)
    assert not are_fit([(name, b"value")])


@pytest.mark.parametrize("value", [b"", b"text", b"tab\there", "ü".encode(), b"\xfc", b"\x80\xff"])
def test_fit_values_are_kept_as_they_are(value: bytes) -> None:
    """RFC 9110 section 5.5 allows tabs and the upper half of bytes, whatever they mean."""
    assert kept([(b"x-value", value)]) == ((b"x-value", value),)
    assert are_fit([(b"x-value", value)])


def test_nothing() -> None:
    """No headers are fit, and none are kept of none."""
    assert kept([]) == ()
    assert are_fit([])


def test_find() -> None:
    """The last value counts, as in a dictionary."""
    headers = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    assert find(headers, b"a") == b"3"
    assert find(headers, b"c") is None


@pytest.mark.parametrize(
    ("media_type", "stream"),
    [
        (b"text/event-stream", True),
        (b"Text/Event-Stream; charset=utf-8", True),
        (b"text/html", False),
        (b"application/json", False),
    ],
)
def test_event_streams(media_type: bytes, stream: bool) -> None:
    """An answer without an end of its own is recognised by its media type."""
    assert is_event_stream([(b"content-type", media_type)]) is stream
    assert not is_event_stream([])
