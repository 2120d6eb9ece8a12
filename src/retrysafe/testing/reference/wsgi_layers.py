"""What surrounds the idempotency layer in a real application, as plain WSGI; `asgi_layers.py` says why."""

import gzip
import json
from collections.abc import Callable, Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe.testing.reference.cors import ALLOWED, EXPOSED, METHODS
from retrysafe.testing.reference.principals import admit

Fields = list[tuple[str, str]]

# Below it a compressed body is rarely smaller.
WORTH_COMPRESSING = 500


class CrossOrigin:
    """CORS for every origin: each response names the one that asked."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        origin = environ.get("HTTP_ORIGIN")
        if origin is None:
            return self._app(environ, start_response)
        ours = [
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", EXPOSED),
            ("vary", "Origin"),
        ]
        if environ["REQUEST_METHOD"] == "OPTIONS" and environ.get("HTTP_ACCESS_CONTROL_REQUEST_METHOD"):
            allowed = [
                ("access-control-allow-methods", METHODS),
                ("access-control-allow-headers", ALLOWED),
            ]
            start_response("204 No Content", ours + allowed)
            return []

        def start_with_origin(
            status: str, headers: Fields, exc_info: object = None, /
        ) -> Callable[[bytes], object]:
            return _start(start_response, status, headers + ours, exc_info)

        return self._app(environ, start_with_origin)


class Authentication:
    """401 and 403, before anything behind it has looked at the key."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        given = environ.get("HTTP_AUTHORIZATION")
        # Two credentials are two people; a server joins them with a comma.
        denied = admit(b"" if "," in given else given.encode("latin-1")) if given is not None else None
        if denied is None:
            return self._app(environ, start_response)
        body = json.dumps({"error": denied.reason}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        if denied.status == 401:
            headers.append(("www-authenticate", 'Bearer realm="reference"'))
        start_response("401 Unauthorized" if denied.status == 401 else "403 Forbidden", headers)
        return [body]


class Compression:
    """gzip for clients that accept it, of responses in one piece."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if "gzip" not in environ.get("HTTP_ACCEPT_ENCODING", ""):
            return self._app(environ, start_response)
        started: list[tuple[str, Fields, object]] = []

        def hold_back(status: str, headers: Fields, exc_info: object = None, /) -> Callable[[bytes], object]:
            started[:] = [(status, headers, exc_info)]
            return _no_write

        body = self._app(environ, hold_back)
        if not isinstance(body, list):  # a stream: what it starts with is not known yet
            return _relay(body, started, start_response)
        whole = b"".join(body)
        status, headers, exc_info = started[0]
        if len(whole) >= WORTH_COMPRESSING:
            whole = gzip.compress(whole, mtime=0)
            headers = [pair for pair in headers if pair[0] != "content-length"]
            headers += [
                ("content-encoding", "gzip"),
                ("content-length", str(len(whole))),
                ("vary", "Accept-Encoding"),
            ]
        _start(start_response, status, headers, exc_info)
        return [whole] if whole else []


def _relay(
    body: Iterable[bytes], started: list[tuple[str, Fields, object]], start_response: StartResponse
) -> Iterable[bytes]:
    try:
        for piece in body:
            if started:
                _start(start_response, *started.pop())
            yield piece
        if started:
            _start(start_response, *started.pop())
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _start(
    start_response: StartResponse, status: str, headers: Fields, exc_info: object
) -> Callable[[bytes], object]:
    if exc_info is None:
        return start_response(status, headers)
    return start_response(status, headers, exc_info)  # type: ignore[arg-type]  # handed on as it came


def _no_write(_data: bytes) -> object:
    raise RuntimeError("write() is not supported here")
