"""The WSGI adapter, answer by answer: what PEP 3333 lets applications do, and what becomes of it."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from retrysafe import Guard
from retrysafe._core.model import Claim, Final
from retrysafe._http.exchange import IncompleteResponse
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.memory import MemoryStore
from retrysafe.wsgi import Middleware
from tests.core.wsgi_calls import TEXT, Served, Site, a_guard, an_environ, created, start

__all__ = ["a_guard"]

MakeGuard = Callable[..., Guard]


def test_a_retry_gets_the_same_bytes(a_guard: MakeGuard) -> None:
    """The whole way, and both sides of it keep to PEP 3333."""
    site = Site(created, a_guard())
    first, second = site(b"body"), site(b"body")
    assert (first.status, first.body, first.replayed) == (201, b"made", False)
    assert (second.status, second.body, second.replayed) == (201, b"made", True)
    assert second.header("original-request-id") == first.header("x-request-id")
    assert site.runs == 1


def _lazily(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    start_response("200 OK", list(TEXT))
    yield b"one "
    yield b""
    yield b"two"


def _late(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    start_response("200 OK", list(TEXT))
    yield b""
    yield b""
    yield b"one two"


def _written(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    write = start_response("200 OK", list(TEXT))
    write(b"one ")
    write(b"two")
    return []


def _both(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    write = start_response("200 OK", list(TEXT))
    write(b"one ")
    return [b"two"]


@pytest.mark.parametrize("respond", [_lazily, _late, _written, _both])
@pytest.mark.parametrize("limit", [1000, 3])
def test_however_it_answers(a_guard: MakeGuard, respond: Any, limit: int) -> None:
    """Generators that begin late, `write()`, and both together: held, or flowing where it is too large."""
    site = Site(respond, a_guard(max_response=limit))
    first, second = site(), site()
    assert (first.status, first.body, first.error) == (200, b"one two", None)
    assert (second.status, second.replayed, site.runs) == (200, True, 1)
    assert second.body == (b"one two" if limit == 1000 else b"")
    assert (second.header("idempotency-body") == "omitted") == (limit == 3)


def test_nothing_is_sent_before_it_is_stored(a_guard: MakeGuard) -> None:
    """An answer that can be held is held to its end, and then goes out in one piece."""
    seen: list[int] = []

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", list(TEXT))
        for word in (b"one", b"two"):
            yield word
            seen.append(len(served))

    served: list[bytes] = []

    class Watching(Served):
        def send(self, piece: bytes) -> None:
            served.append(piece)

    Watching(Site(respond, a_guard()).app, an_environ())
    assert (seen, served) == ([0, 0], [b"onetwo"])


@pytest.mark.parametrize("media_type", ["text/event-stream", "text/plain"])
def test_what_cannot_be_held_flows(a_guard: MakeGuard, media_type: str) -> None:
    """Each piece leaves before the next one is made."""
    seen: list[int] = []
    served: list[bytes] = []

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", media_type)])
        for number in range(4):
            yield b"piece %d" % number
            seen.append(len(served))

    class Watching(Served):
        def send(self, piece: bytes) -> None:
            served.append(piece)

    limit = 1000 if media_type == "text/event-stream" else 1
    site = Site(respond, a_guard(max_response=limit))
    Watching(site.app, an_environ())
    assert seen == [1, 2, 3, 4]
    retry = site()
    assert (retry.status, retry.body, retry.header("idempotency-body")) == (200, b"", "omitted")
    assert site.runs == 1


def test_an_error_page_replaces_what_was_begun(a_guard: MakeGuard) -> None:
    """`exc_info` before the first byte: the second head counts, lengths and all, and is what is kept."""

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [*TEXT, ("Content-Length", "1000")])
        try:
            raise ValueError("too late for a page")
        except ValueError:
            start_response("500 Sorry", list(TEXT), sys.exc_info())
        return [b"sorry"]

    site = Site(respond, a_guard())
    first, second = site(), site()
    assert (first.line, first.body, first.error) == ("500 Sorry", b"sorry", None)
    assert (second.line, second.body, site.runs) == ("500 Internal Server Error", b"sorry", 1)


def test_an_error_after_the_first_byte_is_raised(a_guard: MakeGuard) -> None:
    """`exc_info` when the head is gone: the application gets its own exception back, as PEP 3333 says."""

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", list(TEXT))
        yield b"half"
        try:
            raise ValueError("in the middle")
        except ValueError:
            start_response("500 Sorry", list(TEXT), sys.exc_info())

    site = Site(respond, a_guard())
    first, second = site(), site()
    assert first.status == 500
    assert b"handler-failed" in first.body
    assert str(first.error) == "in the middle"
    assert (second.status, second.body, second.error, site.runs) == (500, first.body, None, 1)


def _twice(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response)
    start(start_response)
    return [b"never"]


def _never(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    return []


def _headless(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    return [b"a body"]


def _text(environ: WSGIEnvironment, start_response: Any) -> Any:
    start(start_response)
    return ["no bytes"]


def _nonsense(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response, "fine")
    return []


def _interim(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response, "103 Early Hints")
    return []


def _beyond_latin_1(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response, fields=[("X-Price", "5 €")])
    return []


def _split(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response, fields=[("X-Name", "a\r\nSet-Cookie: b")])
    return []


def _no_name(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response, fields=[("X Name", "a")])
    return []


def _two_lines(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response, "200 OK\r\nX: y")
    return []


def _nothing(environ: WSGIEnvironment, start_response: Any) -> Any:
    start(start_response)
    return [None]


def _short(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response, fields=[("Content-Length", "9")])
    return [b"short"]


def _long(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    start(start_response, fields=[("Content-Length", "1")])
    return [b"long"]


def _raises(environ: WSGIEnvironment, start_response: Any) -> Iterable[bytes]:
    raise LookupError("before it began")


@pytest.mark.parametrize(
    "respond",
    [
        _twice,
        _never,
        _headless,
        _text,
        _nothing,
        _nonsense,
        _interim,
        _beyond_latin_1,
        _split,
        _no_name,
        _two_lines,
        _short,
        _long,
        _raises,
    ],
)
def test_what_is_no_answer_is_a_failure(a_guard: MakeGuard, respond: Any) -> None:
    """Stored as one, told to the client, raised again for the log, and never run again."""
    site = Site(respond, a_guard(), validated=False)
    first, second = site(), site()
    assert first.status == 500
    assert b"handler-failed" in first.body
    assert isinstance(first.error, Exception)
    assert (second.status, second.body, second.replayed) == (500, first.body, True)
    assert site.runs == 1


def test_the_servers_file_wrapper_is_not_used(a_guard: MakeGuard) -> None:
    """It would have the server send the file past us: ours reads it, its bytes are kept, and it is closed."""

    class Bypass:
        def __init__(self, *arguments: object) -> None:
            raise AssertionError("the server would have sent the file itself")

    files: list[io.BytesIO] = []

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(TEXT))
        files.append(io.BytesIO(b"x" * 20_000))
        wrapped: Iterable[bytes] = environ["wsgi.file_wrapper"](files[-1], 4096)
        return wrapped

    site = Site(respond, a_guard(), validated=False)
    first, second = (site(wsgi__file_wrapper=Bypass) for _ in range(2))
    assert first.body == second.body == b"x" * 20_000
    assert second.replayed
    assert [file.closed for file in files] == [True]


def test_no_file_wrapper_is_invented(a_guard: MakeGuard) -> None:
    """Where the server has none, the application sees none, as it would without us."""
    site = Site(created, a_guard())
    site()
    assert "wsgi.file_wrapper" not in site.environs[0]


def test_its_own_words(a_guard: MakeGuard) -> None:
    """The reason phrase is the application's the first time; a replay has HTTP's, if it has one."""

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response(environ["HTTP_X_LINE"], list(TEXT))
        return [b"made"]

    site = Site(respond, a_guard())
    sent = ["201 Made It", "201 Made It", "299 Odd", "299 Odd"]
    lines = [site(key=line[:3], HTTP_X_LINE=line).line for line in sent]
    assert lines == ["201 Made It", "201 Created", "299 Odd", "299 Unknown"]


def test_what_is_said_about_the_connection_is_the_servers(a_guard: MakeGuard) -> None:
    """PEP 3333 forbids it, many do it, gunicorn ignores it and waitress does not take it: it is left out."""

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [*TEXT, ("Connection", "close, X-Hop"), ("Keep-Alive", "9"), ("X-Hop", "1")])
        return [b"done"]

    site = Site(respond, a_guard(), validated=False)
    first, second = site(), site()
    assert (first.header("connection"), first.header("keep-alive")) == (None, None)
    assert (first.header("x-hop"), second.header("x-hop")) == ("1", None)
    assert second.replayed


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_responses_without_a_body(a_guard: MakeGuard, status: str) -> None:
    """Nothing is sent, not even an empty piece, and no length is made up (RFC 9110 section 8.6)."""

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, [("ETag", '"1"')])
        return []

    site = Site(respond, a_guard())
    for answer in (site(), site()):
        assert (answer.line, answer.pieces, answer.header("etag")) == (status, [], '"1"')
        assert answer.header("content-length") is None


def test_what_does_not_concern_us_is_not_touched(a_guard: MakeGuard) -> None:
    """The very objects: environ, `start_response`, and what the application returned."""
    given: list[object] = []
    returned = [b"as it is"]

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        given.extend((environ, start_response))
        return returned

    def start_response(*_: object) -> Any:
        raise AssertionError("nobody started anything")

    guarded = Middleware(app, a_guard(), paths=["/pay"])
    for environ in (
        an_environ(key=None),
        an_environ(REQUEST_METHOD="GET"),
        an_environ(PATH_INFO="/elsewhere"),
    ):
        before = dict(environ)
        assert guarded(environ, start_response) is returned
        assert given.pop() is start_response
        assert given.pop() is environ
        assert environ == before


class Deaf(MemoryStore):
    """Cannot be reached once a handler has ended."""

    def finish(self, claim: Claim, final: Final) -> bool:
        raise StoreUnavailable("the store is away")


def test_a_flowing_response_that_cannot_be_stored_is_broken_off(a_guard: MakeGuard) -> None:
    """The store is away until the lease ends: what completes the response is not sent, and the server is
    told to break the connection off."""

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
        return iter([b"one", b"two"])

    site = Site(respond, a_guard(Deaf(), max_response=1, lease=0.2), validated=False)
    served = site()
    assert isinstance(served.error, IncompleteResponse)
    assert served.body == b"one"
    assert served.header("idempotency-stored") is None
