"""Bytes that a client may send to a WSGI server, and what reaches the application of them.

Whatever it is: no 5xx of ours, nothing runs unprotected that has a key, and nothing runs twice.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrysafe.testing.adapters.client import PATIENCE, until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import LONG, fresh


@pytest.fixture(scope="module", params=["gthread", "waitress"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("wire")
    server = Server("wsgi", f"sqlite:///{folder / 'keys.db'}", folder / "effects", server=request.param)
    yield server
    server.kill()


def exchange(api: Server, data: bytes) -> bytes:
    """Send bytes and say that there are no more; everything that comes back."""
    received = b""
    with socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        try:
            while piece := connection.recv(65536):
                received += piece
        except ConnectionResetError:
            pass  # it was told all that it will be told
    return received


def request(
    label: str, fields: bytes, body: bytes = b"", target: bytes = b"/charges", method: bytes = b"POST"
) -> bytes:
    head = b"%b %b?label=%b HTTP/1.1\r\nHost: shop.test\r\n" % (method, target, label.encode())
    return head + b"Authorization: Bearer alice\r\nConnection: close\r\n" + fields + b"\r\n" + body


def status(answer: bytes) -> int:
    """Zero where the server has nothing to say to half a request."""
    return int(answer[9:12]) if answer else 0


NO_BODY = b"Content-Length: 0\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    "two keys": (b"Idempotency-Key: KEY\r\nIdempotency-Key: other\r\n" + NO_BODY, b""),
    "two equal keys": (b'Idempotency-Key: "KEY"\r\nIdempotency-Key: "KEY"\r\n' + NO_BODY, b""),
    "a folded key": (b"Idempotency-Key: KEY\r\n more\r\n" + NO_BODY, b""),
    "NUL": (b"Idempotency-Key: \0KEY\r\n" + NO_BODY, b""),
    "a control character": (b"Idempotency-Key: \x01KEY\r\n" + NO_BODY, b""),
    "a bare CR": (b"Idempotency-Key: a\rKEY\r\n" + NO_BODY, b""),
    "latin-1": (b"Idempotency-Key: \xe9KEY\r\n" + NO_BODY, b""),
    "white space before the colon": (b"Idempotency-Key : KEY\r\n" + NO_BODY, b""),
    "empty": (b"Idempotency-Key:\r\n" + NO_BODY, b""),
    "far too long": (b"Idempotency-Key: " + b"a" * 70_000 + b"\r\n" + NO_BODY, b""),
    "a negative length": (b"Idempotency-Key: KEY\r\nContent-Length: -1\r\n", b""),
    "a length with a sign": (b"Idempotency-Key: KEY\r\nContent-Length: +3\r\n", b"abc"),
    "two lengths": (b"Idempotency-Key: KEY\r\nContent-Length: 3\r\nContent-Length: 4\r\n", b"abcd"),
    "no chunk": (b"Idempotency-Key: KEY\r\n" + CHUNKED, b"zz\r\nabc\r\n0\r\n\r\n"),
    "a negative chunk": (b"Idempotency-Key: KEY\r\n" + CHUNKED, b"-3\r\nabc\r\n0\r\n\r\n"),
    "a chunk without its end": (b"Idempotency-Key: KEY\r\n" + CHUNKED, b"3\r\nabcXX0\r\n\r\n"),
    "half a chunk": (b"Idempotency-Key: KEY\r\n" + CHUNKED, b"5\r\nab"),
    "no last chunk": (b"Idempotency-Key: KEY\r\n" + CHUNKED, b"5\r\nabcde\r\n"),
    "half a body": (b"Idempotency-Key: KEY\r\nContent-Length: 10\r\n", b"abc"),
    "two credentials": (b"Idempotency-Key: KEY\r\nAuthorization: Bearer bob\r\n" + NO_BODY, b""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_runs_nothing_and_leaves_nothing(api: Server, name: str) -> None:
    """By the server or by us; and the key is free for a proper request."""
    key, label = fresh("key"), fresh("label")
    fields, body = REFUSED[name]
    for _ in range(2):
        answer = exchange(api, request(label, fields.replace(b"KEY", key.encode()), body))
        assert status(answer) in (0, 400, 401, 431), answer
    assert api.effects(label) == 0
    assert api.post("/charges", key=key, label=label).status == 201


ACCEPTED = {
    "white space around it": (b"Idempotency-Key:\t KEY \t\r\n" + NO_BODY, b""),
    "no length": (b"Idempotency-Key: KEY\r\n", b""),
    "chunks": (b"Idempotency-Key: KEY\r\n" + CHUNKED, b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
    "chunks with extensions": (b"Idempotency-Key: KEY\r\n" + CHUNKED, b"3;a=b\r\nabc\r\n0\r\n\r\n"),
    "a key in a trailer": (
        b"Idempotency-Key: KEY\r\n" + CHUNKED,
        b"3\r\nabc\r\n0\r\nIdempotency-Key: z\r\n\r\n",
    ),
    "an underscore beside it": (b"Idempotency_Key: z\r\nIdempotency-Key: KEY\r\n" + NO_BODY, b""),
    "an underscore after it": (b"Idempotency-Key: KEY\r\nIDEMPOTENCY_KEY: z\r\n" + NO_BODY, b""),
    "another length with an underscore": (b"Idempotency-Key: KEY\r\nContent_Length: 9\r\n" + NO_BODY, b""),
    "an unusable request id": (b'Idempotency-Key: KEY\r\nX-Request-Id: a b"\x80\r\n' + NO_BODY, b""),
    "an upgrade": (b"Idempotency-Key: KEY\r\nUpgrade: websocket\r\n" + NO_BODY, b""),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_runs_once(api: Server, name: str) -> None:
    """However oddly it is put."""
    key, label = fresh("key").encode(), fresh("label")
    fields, body = ACCEPTED[name]
    data = request(label, fields.replace(b"KEY", key), body)
    first, second = exchange(api, data), exchange(api, data)
    assert (status(first), status(second)) == (201, 201)
    assert b"idempotent-replayed" not in first.lower()
    assert b"idempotent-replayed: true" in second.lower()
    assert api.effects(label) == 1


def test_an_underscore_is_no_hyphen(api: Server) -> None:
    """Both servers drop such a field: it is another header, and the request has no key."""
    label = fresh("label")
    for _ in range(2):
        assert status(exchange(api, request(label, b"Idempotency_Key: abc\r\n" + NO_BODY))) == 201
    assert api.effects(label) == 2


@pytest.mark.parametrize(
    "target", [b"/charges/%FF", b"/charges/%00", b"/charges/%0d%0aX:y", b"/charges/%C3%A9"]
)
def test_paths_that_are_no_text(api: Server, target: bytes) -> None:
    """Stored and replayed, and no header is made of them."""
    key, label = fresh("key").encode(), fresh("label")
    data = request(label, b"Idempotency-Key: " + key + b"\r\n" + NO_BODY, target=target, method=b"PUT")
    first, second = exchange(api, data), exchange(api, data)
    assert (status(first), status(second)) == (200, 200)
    assert b"\r\nX:y" not in first + second
    other = data.replace(target, b"/charges/%FE")
    assert status(exchange(api, other)) == 422
    assert api.effects(label) == 1


def test_one_connection_many_times_the_same(api: Server) -> None:
    """Pipelined: answered in order, and run once."""
    key, label = fresh("key").encode(), fresh("label")
    once = request(label, b"Idempotency-Key: " + key + b"\r\n" + NO_BODY)
    kept_alive = once.replace(b"Connection: close\r\n", b"")
    answers = exchange(api, kept_alive * 4 + once)
    assert answers.count(b"HTTP/1.1 201") == 5
    assert answers.lower().count(b"idempotent-replayed: true") == 4
    assert api.effects(label) == 1


def test_a_body_that_nobody_read_is_no_request(api: Server) -> None:
    """A request that is refused before its body is read: what is left of it must not run as the next one."""
    label = fresh("label")
    hidden = request(label, b"Idempotency-Key: " + fresh("key").encode() + b"\r\n" + NO_BODY)
    fields = b'Idempotency-Key: "\r\nContent-Length: %d\r\n' % len(hidden)
    outer = request(label, fields, hidden).replace(b"Connection: close\r\n", b"", 1)
    answers = exchange(api, outer)
    assert answers.startswith(b"HTTP/1.1 400")
    assert answers.count(b"HTTP/1.1 ") == 1
    assert api.effects(label) == 0


def test_a_failure_is_told_in_full_and_logged(api: Server) -> None:
    """The problem arrives whole, and the server's log has the exception, once: the replay is no failure."""
    key, label = fresh("key"), fresh("label")
    before = _failures(api)
    first = api.post("/raise", key=key, label=label)
    assert first.code == "handler-failed"
    # A server logs an exception when it has sent the response.
    until(lambda: _failures(api) == before + 1)
    assert api.post("/raise", key=key, label=label).essence == first.essence
    assert api.effects(label) == 1
    # The next failure is logged in its turn, and what the replay had to say would come before it.
    api.post("/raise", key=fresh("key"), label=label)
    until(lambda: _failures(api) > before + 1)
    assert _failures(api) == before + 2


def _failures(api: Server) -> int:
    return api.log.count("Broken: the handler failed")


@settings(
    max_examples=500 if LONG else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(value=st.binary(min_size=1, max_size=60), twist=st.sampled_from([b"%b", b'"%b"', b"a%b", b"%b;p=1"]))
def test_any_bytes_as_a_key(api: Server, value: bytes, twist: bytes) -> None:
    """Refused or guarded: sent twice it runs at most once, and never ends in a 5xx."""
    label = fresh("label")
    # A line break ends the field: what follows is then a field of its own, or nothing that is HTTP.
    value = value.replace(b"\n", b"").replace(b"\r", b"")
    data = request(label, b"Idempotency-Key: " + twist % value + b"\r\n" + NO_BODY)
    data = data.replace(
        b"Bearer alice", b"Bearer " + fresh("user").encode()
    )  # nobody has used the key before
    first, second = exchange(api, data), exchange(api, data)
    assert status(first) in (201, 400), first
    assert status(second) == status(first)
    assert (b"idempotent-replayed: true" in second.lower()) == (status(first) == 201)
    assert api.effects(label) == (1 if status(first) == 201 else 0)
