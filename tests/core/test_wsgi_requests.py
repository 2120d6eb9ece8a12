"""The WSGI adapter, request by request: bodies, paths and headers as an environ has them."""

import io
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from retrysafe import Guard, stores
from retrysafe._http.body import IN_MEMORY
from retrysafe.events import Event
from retrysafe.stores.admin import Query
from retrysafe.wsgi import Middleware
from tests.core.wsgi_calls import TEXT, Site, a_guard, an_environ, created

__all__ = ["a_guard"]

MakeGuard = Callable[..., Guard]


def reading(read: Callable[[Any], object]) -> tuple[Any, list[Any]]:
    """An application that reads its body in some way, and what it got."""
    got: list[Any] = []

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        got.append(read(environ["wsgi.input"]))
        got.append(environ.get("CONTENT_LENGTH"))
        start_response("201 Created", list(TEXT))
        return [b"made"]

    return respond, got


LINES = b"first line\nsecond\n\nlast"


@pytest.mark.parametrize("padding", [0, 2 * IN_MEMORY])
@pytest.mark.parametrize(
    "read",
    [
        lambda stream: stream.read(10_000_000),
        lambda stream: b"".join(iter(lambda: stream.read(1000), b"")),
        lambda stream: b"".join(iter(stream.readline, b"")),
        lambda stream: b"".join(stream),
        lambda stream: b"".join(stream.readlines()),
    ],
)
def test_the_application_reads_what_was_sent(a_guard: MakeGuard, read: Any, padding: int) -> None:
    """By piece, by line or as a whole; from memory, and from the disk where it is large."""
    body = LINES + b"." * padding
    respond, got = reading(read)
    site = Site(respond, a_guard(), validated=False)
    assert site(body).status == 201
    assert got == [body, str(len(body))]
    assert site(body).replayed
    assert site(body + b"!").status == 422


class Untouchable(io.RawIOBase):
    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the body was read")


@pytest.mark.parametrize("length", [None, "", "0", "-1", "abc", "1,1", "²"])
def test_without_a_length_there_is_no_body(a_guard: MakeGuard, length: str | None) -> None:
    """Who reads on would wait for ever: what is no length counts as none, for us and the application."""
    respond, got = reading(lambda stream: stream.read(10))
    site = Site(respond, a_guard(), validated=False)
    assert site(CONTENT_LENGTH=length, wsgi__input=Untouchable()).status == 201
    assert got[0] == b""
    assert got[1] in (None, "", "0")


@pytest.mark.parametrize("length", [None, "", "abc"])
def test_a_body_that_the_server_terminates(a_guard: MakeGuard, length: str | None) -> None:
    """Chunked, says `wsgi.input_terminated`: read to its end, and the application is told its length."""
    respond, got = reading(lambda stream: stream.read())
    site = Site(respond, a_guard(), validated=False)

    def send(body: bytes) -> Any:
        chunked = {"CONTENT_LENGTH": length, "HTTP_TRANSFER_ENCODING": "chunked"}
        return site(body, wsgi__input_terminated=True, **chunked)

    assert send(b"chunks").status == 201
    assert got == [b"chunks", "6"]
    assert "HTTP_TRANSFER_ENCODING" not in site.environs[0]
    assert send(b"chunks").replayed
    assert send(b"others").status == 422
    assert site(b"chunks").replayed  # however it was sent, it is the same request


def test_a_coding_that_the_server_left_is_told(a_guard: MakeGuard) -> None:
    """Only chunks are undone by a server: that the body is compressed, the application still has to know."""
    site = Site(created, a_guard(), validated=False)
    site(b"zipped", HTTP_TRANSFER_ENCODING="gzip, chunked", CONTENT_LENGTH=None, wsgi__input_terminated=True)
    assert site.environs[0]["HTTP_TRANSFER_ENCODING"] == "gzip, chunked"


class Broken(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if not found:
            raise ConnectionResetError("the client went away")
        return found


@pytest.mark.parametrize("stream", [io.BytesIO(b"ha"), Broken(b"ha"), Broken(b"")])
def test_half_a_request_claims_nothing(a_guard: MakeGuard, stream: io.BytesIO) -> None:
    """Whether the server says so by an error or by an early end; and the key is free for a whole one."""
    seen: list[Event] = []
    site = Site(created, a_guard(on_event=seen.append))
    half = site(CONTENT_LENGTH="4", wsgi__input=stream)
    assert (half.status, half.body, half.error, site.runs) == (400, b"", None, 0)
    assert [event.verdict for event in seen] == ["gone"]
    assert site(b"whole").status == 201


def test_an_error_of_the_server_is_the_servers(a_guard: MakeGuard) -> None:
    """What is no `OSError` (a malformed chunk, say) goes back to whoever raised it; nothing was claimed."""

    class Malformed(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ValueError("no chunk")

    site = Site(created, a_guard())
    broken = site(CONTENT_LENGTH=None, wsgi__input=Malformed(), wsgi__input_terminated=True)
    assert (str(broken.error), site.runs) == ("no chunk", 0)
    assert site().status == 201


def test_what_is_refused_is_not_read(a_guard: MakeGuard) -> None:
    """A bad key, a missing principal, a body announced as too large: nobody waits for what is not wanted."""
    site = Site(created, a_guard(max_request=10), validated=False)
    unread: dict[str, Any] = {"wsgi__input": Untouchable(), "CONTENT_LENGTH": "10"}
    assert site(key='"', **unread).status == 400
    assert site(HTTP_X_TENANT=None, **unread).status == 400
    assert site(wsgi__input=Untouchable(), CONTENT_LENGTH="11").status == 413
    assert site(wsgi__input=Untouchable(), CONTENT_LENGTH="9" * 5000).status == 413
    assert site.runs == 0


def test_no_more_is_read_than_shows_that_it_is_too_much(a_guard: MakeGuard) -> None:
    """Without a length it is counted; a `read` for more would wait for a client that waits for us."""
    stream = io.BytesIO(b"." * 1000)
    site = Site(created, a_guard(max_request=100), validated=False)
    refused = site(CONTENT_LENGTH=None, wsgi__input=stream, wsgi__input_terminated=True)
    assert (refused.status, stream.tell(), site.runs) == (413, 101, 0)


@pytest.mark.parametrize("joined", ["a,b", '"a","b"', '"a", "b"', "a, a", '"a",', ",a", '"a" "a"'])
def test_two_keys_joined_by_the_server_are_refused(a_guard: MakeGuard, joined: str) -> None:
    """Servers make one variable of two fields: never one of both, nor a key that contains both."""
    site = Site(created, a_guard())
    assert (site(key=joined).status, site.runs) == (400, 0)


def test_a_path_is_what_its_client_meant(a_guard: MakeGuard) -> None:
    """An environ has the bytes as latin-1: `/café` is `/café`, and does not slip past its route."""
    path = "/café".encode().decode("latin-1")
    site = Site(created, a_guard(), paths=["/café"], validated=False)
    assert [site(PATH_INFO=path).replayed for _ in range(2)] == [False, True]
    assert site.environs[0]["PATH_INFO"] == path


def test_paths_that_are_no_text_stay_apart(a_guard: MakeGuard, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 crash nothing, can be stored, and no two of them become one path."""
    url = f"sqlite:///{tmp_path / 'keys.db'}"
    site = Site(created, a_guard(url), validated=False)
    for path in ("/\xff", "/\xfe", "/\udcff", "/\u2028", "/\x00"):
        first = site(PATH_INFO=path, key=path.encode("utf-8", "surrogatepass").hex())
        assert (first.status, first.replayed) == (201, False)
    assert site(PATH_INFO="/\xff", key="same").status == 201
    assert site(PATH_INFO="/\xfe", key="same").status == 422
    assert site(PATH_INFO="/\xff", key="same").replayed


@pytest.mark.parametrize(
    ("path", "root"), [("/pay", ""), ("/pay/", ""), ("/pay", "/api"), ("/pay/", "/api"), ("/pay", "/api/v1")]
)
def test_paths_are_the_applications_own(a_guard: MakeGuard, path: str, root: str) -> None:
    """Where it is mounted, and whether a slash ends the path, does not lead a request past the guard."""
    site = Site(created, a_guard(), paths=["/pay"])
    assert [site(PATH_INFO=path, SCRIPT_NAME=root).replayed for _ in range(2)] == [False, True]


def test_two_mounts_are_two_places(a_guard: MakeGuard) -> None:
    """The whole path counts: one key at two mounts of one application is a mismatch, never a replay."""
    site = Site(created, a_guard())
    assert site(SCRIPT_NAME="/one").status == 201
    assert site(SCRIPT_NAME="/two").status == 422


def test_the_specification_is_where_problems_point(a_guard: MakeGuard) -> None:
    """Also behind a mount; GET has a body and HEAD only its length."""
    site = Site(created, a_guard(), routes={"/strict": {"required": True}})
    refused = site(key='"', SCRIPT_NAME="/api")
    assert b"http://shop.test/api/idempotency#key-invalid" in refused.body
    page = site(key=None, REQUEST_METHOD="GET", PATH_INFO="/idempotency", SCRIPT_NAME="/api")
    head = site(key=None, REQUEST_METHOD="HEAD", PATH_INFO="/idempotency", SCRIPT_NAME="/api")
    assert page.status == head.status == 200
    assert b'id="key-invalid"' in page.body
    assert b"/strict" in page.body
    assert (head.body, head.header("content-length")) == (b"", page.header("content-length"))
    assert site.runs == 0


def test_the_query_is_part_of_the_request(a_guard: MakeGuard) -> None:
    """As its bytes were, whatever they are."""
    site = Site(created, a_guard(), validated=False)
    assert site(QUERY_STRING="a=\xff").status == 201
    assert site(QUERY_STRING="a=\xff").replayed
    assert site(QUERY_STRING="a=\xfe").status == 422
    assert site(QUERY_STRING=None).status == 422


def test_what_the_application_is_given(a_guard: MakeGuard) -> None:
    """No way around us, and our request id; what is outside keeps what it had."""
    inner: list[WSGIEnvironment] = []

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        inner.append(dict(environ))
        environ["shop.session"] = "found by the application"
        del environ["HTTP_HOST"]
        return created(environ, start_response)

    environ = an_environ(HTTP_ACCEPT_ENCODING="gzip", gunicorn__socket=object(), HTTP_X_REQUEST_ID="bad id")
    before = dict(environ)
    list(Middleware(app, a_guard())(environ, lambda *_: lambda _: None))
    assert not inner[0].keys() & {"HTTP_ACCEPT_ENCODING", "gunicorn.socket"}
    assert len(inner[0]["HTTP_X_REQUEST_ID"]) == 32
    assert environ.pop("shop.session") == "found by the application"
    assert environ == before


def test_a_request_id_is_passed_in_and_stored(a_guard: MakeGuard) -> None:
    """The application's log, ours and the client's speak of the same request."""
    site = Site(created, a_guard())
    assert site(HTTP_X_REQUEST_ID="r-1").header("x-request-id") == "r-1"
    assert site.environs[0]["HTTP_X_REQUEST_ID"] == "r-1"
    assert site(HTTP_X_REQUEST_ID="r-2").header("original-request-id") == "r-1"


def test_two_guards_around_one_application(a_guard: MakeGuard) -> None:
    """The outer one has it: the inner one would find a key that it takes for a duplicate."""
    guard = a_guard()
    site = Site(Middleware(created, guard), guard)
    assert (site().status, site().replayed, site.runs) == (201, True, 1)


def test_a_record_says_what_was_asked(a_guard: MakeGuard, tmp_path: Path) -> None:
    """Method and whole path, as an operator looks for them."""
    url = f"sqlite:///{tmp_path / 'keys.db'}"

    def end(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        raise SystemExit

    site = Site(end, a_guard(url), validated=False)
    site(PATH_INFO="/pay/7", SCRIPT_NAME="/api", HTTP_X_CORRELATION_ID="c-1")
    with closing(stores.open(url)) as store, closing(store.open_admin()) as admin:
        record = admin.list(Query())[0].record
    assert (record.action, record.target, record.key) == ("POST", "/api/pay/7", "k")
    assert (record.scope, record.correlation_id) == ((("x-tenant", "acme"),), "c-1")
