"""Whatever a client or a damaged disk comes up with: no 5xx, no injected header, no unprotected run.

A request that carries the key header at all is refused or guarded: sent twice, it runs at most once.
"""

import asyncio
import logging
import re
import socket
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrysafe import Guard, scopes
from retrysafe._core.fingerprint import Fingerprint
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import Connection
from retrysafe.stores.memory import MemoryStore
from tests.faults.conftest import StartTrapped
from tests.faults.hostility import LONG, Counting, assert_clean, hostile
from tests.faults.trapped import Trapped
from tests.faults.wire import Heard, call, connection, fresh

SOCKET_EXAMPLES = 400 if LONG else 30
COVERED = ["POST", "PUT", "PATCH", "DELETE"]


class Target:
    """A guarded application, asked in process."""

    def __init__(self, fingerprint: Fingerprint) -> None:
        self.app = Counting()
        self.guard = Guard(MemoryStore(), scope=scopes.header("X-Tenant"), fingerprint=fingerprint)
        self.guarded = Middleware(self.app, self.guard)
        self.loop = asyncio.new_event_loop()

    def ask(self, scope: Connection, *pieces: bytes) -> Heard:
        return self.loop.run_until_complete(call(self.guarded, scope, *pieces))

    def close(self) -> None:
        self.loop.close()
        self.guard.close()


FINGERPRINTS: dict[str, Fingerprint] = {
    "raw": "raw",
    "json": "json",
    "fields": ("customer.id", "/items/0", "amount"),
    "none": None,
}


@pytest.fixture(scope="module", params=FINGERPRINTS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    target = Target(FINGERPRINTS[request.param])
    yield target
    target.close()


def assert_safe(heard: Heard) -> None:
    assert 200 <= heard.status < 500, heard
    assert_clean(heard)


def assert_guarded(target: Target, scope: Connection, *pieces: bytes) -> list[Heard]:
    """Sent twice it runs at most once, and what the first one got the second one gets."""
    before = target.app.runs
    first, second = (target.ask(scope, *pieces) for _ in range(2))
    assert target.app.runs - before <= 1, "it ran unprotected"
    for heard in (first, second):
        assert_safe(heard)
    if first.status == 201:
        assert second.replayed
        assert second.body == first.body
    else:
        assert second.status == first.status
    return [first, second]


keys = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text("abc \\\"',;=\t", max_size=40).map(str.encode),
    st.binary(max_size=60).map(lambda inner: b'"' + inner + b'"'),
    st.uuids().map(lambda found: str(found).encode()),
)


@hostile
@given(st.lists(keys, min_size=1, max_size=3))
@example([b""])
@example([b'"', b'"'])
@example([b'"k"; a=' + b"9" * 5000])
@example([b'"k";' + b"a;" * 500])
@example([b"k" * 100_000])
@example([b"\r\nX-Injected: yes"])
def test_any_bytes_as_a_key(target: Target, given_keys: list[bytes]) -> None:
    """F39, S10: any bytes in the key header, once or several times, are a key or a 400, and never ignored."""
    fields = [(b"idempotency-key", key) for key in given_keys]
    heard = assert_guarded(target, connection(fields=fields), b"{}")
    if len(given_keys) > 1:
        assert {answer.code for answer in heard} == {"key-invalid"}


names = st.sampled_from(
    [
        b"host",
        b"x-request-id",
        b"x-correlation-id",
        b"content-type",
        b"content-length",
        b"x-tenant",
        b"accept-encoding",
        b"transfer-encoding",
        b"idempotent-replayed",
        b"retrysafe",
    ]
)
values = st.one_of(
    st.binary(max_size=80),
    st.integers().map(lambda number: str(number).encode()),
    st.sampled_from([b"", b"\r\nX-Injected: yes", b"\0", b"multipart/form-data; boundary=", b"\xff" * 400]),
)


@hostile
@given(st.lists(st.tuples(names, values), max_size=6))
@example([(b"content-length", b"1" * 5000)])
@example([(b"content-length", "٣".encode())])
@example([(b"host", b"evil.test\r\nX-Injected: yes")])
@example([(b"x-request-id", b"\r\nX-Injected: yes")])
@example([(b"x-tenant", b"\0")])
def test_any_bytes_in_other_headers(target: Target, fields: list[tuple[bytes, bytes]]) -> None:
    """S10: no header of a request, whatever its bytes, breaks the layer or comes back out of it."""
    assert_guarded(target, connection(key=fresh(), fields=fields), b'{"amount": 1}')


def deep(opening: bytes, closing_: bytes, depth: int) -> bytes:
    return opening * depth + closing_ * depth


parts = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from(
            [b"--b", b"\r\n", b"--b--", b"\r\n--b\r\n", b"\n", b'Content-Disposition: form-data; name="a"']
        ),
    ),
    max_size=12,
).map(b"".join)
bodies = st.one_of(
    st.binary(max_size=200),
    parts,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=12,
    ).map(lambda value: repr(value).replace("'", '"').encode("utf-8", "surrogatepass")),
)
types = st.sampled_from(
    [
        b"application/json",
        b"multipart/form-data; boundary=b",
        b'multipart/mixed; boundary="b"',
        b"text/plain",
        b"\xff",
    ]
)


@hostile
@given(st.lists(bodies, max_size=4), types)
@example([deep(b"[", b"]", 100_000)], b"application/json")
@example([deep(b'{"a":', b"}", 50_000)], b"application/json")
@example([b"[" * 500_000], b"application/json")
@example([b"1" * 5000], b"application/json")
@example([b"1e" + b"9" * 5000], b"application/json")
@example([b'"\\ud800"'], b"application/json")
@example([b'{"customer": "' + b"\\ud83d" * 1000 + b'"}'], b"application/json")
@example([b"--b\r\n" * 20_000 + b"--b--"], b"multipart/form-data; boundary=b")
def test_any_body(target: Target, pieces: list[bytes], media_type: bytes) -> None:
    """S13: garbage, malformed multipart and deep JSON are compared as they are, and nothing breaks."""
    assert_guarded(target, connection(key=fresh(), fields=[(b"content-type", media_type)]), *pieces)


@hostile
@given(st.text(max_size=60), st.binary(max_size=60), st.sampled_from(COVERED))
@example("\ud800", b"\xff\xfe", "POST")
@example("/a\r\nb\0c", b"\r\n\0", "POST")
@example("/%0d%0a/../..//", b"?&=&;" * 50, "DELETE")
@example("/" + "a" * 70_000, b"q" * 70_000, "PUT")
def test_any_path_and_query(target: Target, path: str, query: bytes, method: str) -> None:
    """Strange paths and queries are guarded like any other, and come out of nothing unescaped."""
    assert_guarded(target, connection(path, key=fresh(), query=query, method=method))


CANARY = b"QZ-canary-QZ"


@hostile
@given(keys, keys, st.integers(0, 3))
@example(b"", b"", 0)
@example(b'"', b'"', 0)
@example(b"", b"\r\n\x1b[31m", 1)
def test_keys_stay_secret(
    target: Target, caplog: pytest.LogCaptureFixture, before: bytes, after: bytes, trouble: int
) -> None:
    """I19: a key is in no log line and in no answer, whatever is wrong with it or with its request."""
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    key = before + CANARY + after
    extra = [(b"idempotency-key", b"another")] if trouble == 1 else []
    tenant = [(b"x-tenant", b"")] if trouble == 2 else []
    for body in (b"one", b"two"):
        heard = target.ask(connection("/secrets", key=key, fields=[*extra, *tenant]), body)
        assert_safe(heard)
        assert CANARY not in heard.body
        assert not any(CANARY in value for _, value in heard.headers)
    assert CANARY.decode() not in caplog.text


# --- over a real socket


@pytest.fixture(scope="module", params=["asgi", "fastapi"])
def served(start_trapped: StartTrapped, request: pytest.FixtureRequest) -> Trapped:
    framework = {} if request.param == "asgi" else {"framework": request.param}  # the first is shared
    return start_trapped(workers=3, lease=1.2, abandoned="hold", max_response=512, **framework)


def raw(port: int, request: bytes) -> bytes:
    """All that comes back, until the server closes the connection."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection_:
        try:
            connection_.sendall(request)
            connection_.shutdown(socket.SHUT_WR)
            while piece := connection_.recv(65536):
                heard += piece
        except ConnectionError:
            pass
    return heard


@settings(hostile, max_examples=SOCKET_EXAMPLES)
@given(
    st.one_of(keys, st.binary(max_size=40)),
    st.sampled_from([b"Host", b"X-Request-Id", b"Content-Type", b"Trailer", b"Expect", b"X"]),
    st.one_of(st.binary(max_size=40), st.sampled_from([b"100-continue", b"a\r\n b", b"\x80\xff"])),
    st.sampled_from([b"POST", b"post", b"PUT", b"Post"]),
)
@example(b"0123456789abcdef", b"Content-Length", b"1" * 5000, b"POST")
@example(b"0123456789abcdef", b"Transfer-Encoding", b"chunked", b"POST")
@example(b"0123456789abcdef", b"Idempotency-Key", b"0123456789abcdef", b"POST")
@example(b"a\r\nIdempotency-Key: b", b"X", b"", b"POST")
def test_raw_bytes(served: Trapped, key: bytes, name: bytes, value: bytes, method: bytes) -> None:
    """S10, F39: any bytes on the socket of a real server; refused, or guarded, and never a 5xx."""
    label = fresh("label")
    target = b"/charges" if method.upper() == b"POST" else b"/charges/1"
    head = b"%b %b?label=%b HTTP/1.1\r\nConnection: close\r\nAuthorization: Bearer eve\r\n" % (
        method,
        target,
        label.encode(),
    )
    request = head + b"Idempotency-Key: %b\r\n%b: %b\r\n\r\n" % (key, name, value)
    for _ in range(2):
        answer = raw(served.port, request).partition(b"\r\n\r\n")[0]
        assert not re.match(rb"HTTP/1.1 5", answer), answer
        assert b"\nX-Injected" not in answer
    assert served.effects(label) <= 1
