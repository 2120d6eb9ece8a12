"""A WSGI server that keeps what it is given, for the tests of the WSGI adapter."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from wsgiref.validate import validator

import pytest

from retrysafe import Guard, scopes
from retrysafe.stores.contract import Store
from retrysafe.wsgi import Middleware

Fields = list[tuple[str, str]]
Respond = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]

TEXT: Fields = [("Content-Type", "text/plain")]


def an_environ(body: bytes = b"", *, key: str | None = "k", **more: Any) -> WSGIEnvironment:
    """A POST of acme's; variables with a dot in their name are written with two underscores."""
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/pay",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "shop.test",
        "HTTP_X_TENANT": "acme",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    if key is not None:
        environ["HTTP_IDEMPOTENCY_KEY"] = key
    for name, value in more.items():
        environ[name.replace("__", ".")] = value
    return {name: value for name, value in environ.items() if value is not None}


class Served:
    """One request, served as PEP 3333 says."""

    def __init__(self, app: WSGIApplication, environ: WSGIEnvironment) -> None:
        self.line = ""
        self.fields: Fields = []
        self.pieces: list[bytes] = []
        """As they were sent, whether written or iterated."""
        self.error: BaseException | None = None
        try:
            self._serve(app, environ)
        except BaseException as error:  # noqa: BLE001 - a server survives whatever an application raises
            self.error = error

    def _serve(self, app: WSGIApplication, environ: WSGIEnvironment) -> None:
        answer = app(environ, self._start)
        try:
            for piece in answer:
                self.send(piece)
        finally:
            close = getattr(answer, "close", None)
            if close is not None:
                close()

    def _start(self, status: str, fields: Fields, exc_info: object = None, /) -> Callable[[bytes], object]:
        assert not self.line, "started twice"
        self.line, self.fields = status, fields
        return self.send

    def send(self, piece: bytes) -> None:
        assert self.line, "a body before its head"
        self.pieces.append(piece)

    @property
    def status(self) -> int:
        return int(self.line[:3])

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def header(self, name: str) -> str | None:
        return dict(self.fields).get(name)

    @property
    def replayed(self) -> bool:
        return self.header("idempotent-replayed") == "true"


class Site:
    """An application behind the middleware, both sides of which are watched by the validator."""

    def __init__(self, respond: Respond, guard: Guard, *, validated: bool = True, **how: Any) -> None:
        self.runs = 0
        self.environs: list[WSGIEnvironment] = []
        self.guard = guard

        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            self.runs += 1
            self.environs.append(environ)
            return respond(environ, start_response)

        inner = validator(app) if validated else app
        middleware = Middleware(inner, guard, **how)
        self.app: WSGIApplication = validator(middleware) if validated else middleware

    def __call__(self, body: bytes = b"", **environ: Any) -> Served:
        return Served(self.app, an_environ(body, **environ))


@pytest.fixture
def a_guard() -> Iterator[Callable[..., Guard]]:
    made: list[Guard] = []

    def make(store: Store | str = "memory:", **options: Any) -> Guard:
        options = {"scope": scopes.header("X-Tenant"), **options}
        made.append(Guard(store, **options))
        return made[-1]

    yield make
    for guard in made:
        guard.close()


def created(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("201 Created", list(TEXT))
    return [b"made"]


class Closing:
    """An iterable that knows when it was closed."""

    def __init__(self, pieces: Iterable[bytes], log: list[str], failure: BaseException | None = None) -> None:
        self._pieces = pieces
        self._log = log
        self._failure = failure

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        self._log.append("read")

    def close(self) -> None:
        self._log.append("closed")
        if self._failure is not None:
            raise self._failure


def start(start_response: Any, status: str = "200 OK", fields: Fields | None = None, **more: Any) -> Any:
    """`start_response` for tests that break its rules."""
    return start_response(status, TEXT if fields is None else fields, *more.values())
