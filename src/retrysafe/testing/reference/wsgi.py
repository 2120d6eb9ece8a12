"""The service as a plain WSGI application, without a framework, and what stands around it.

From the outside in: CORS, authentication, the idempotency layer, a compressor, the routes.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from urllib.parse import parse_qsl
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe import Guard
from retrysafe.testing.reference.principals import signed_in
from retrysafe.testing.reference.routes import find
from retrysafe.testing.reference.service import Broken, Call, Reply, Service, Stream
from retrysafe.testing.reference.wsgi_layers import Authentication, Compression, CrossOrigin
from retrysafe.wsgi import Middleware


def build(service: Service, guard: Guard) -> WSGIApplication:
    inner = Compression(Application(service))
    guarded = Middleware(inner, guard, routes={"/private": {"scope": signed_in}})
    return CrossOrigin(Authentication(guarded))


class Application:
    """The routes, and nothing that knows of idempotency."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        routes, item = find(path)
        route = routes.get(environ["REQUEST_METHOD"])
        if route is None:
            return _refuse(environ, routes, start_response)
        body = _read(environ)
        if body is None:
            return _send(start_response, Reply(400))
        call = Call(
            dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)),
            environ.get("CONTENT_TYPE", ""),
            body,
            item,
        )
        if route.method != "GET":
            self._service.journal.begin(call.label)
        if route.waits:
            time.sleep(call.pause)
        match route.do(self._service, call):
            case Reply(afterwards=None) as reply:
                return _send(start_response, reply, head=environ["REQUEST_METHOD"] == "HEAD")
            case Reply() as reply:
                return Afterwards(_send(start_response, reply), call.pause, reply.afterwards)
            case Stream() as stream:
                return _stream(start_response, stream)


class Afterwards:
    """What WSGI has for background tasks: work in `close()`, when the response has been sent."""

    def __init__(self, body: list[bytes], pause: float, work: Callable[[], object] | None) -> None:
        self._body = body
        self._pause = pause
        self._work = work

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        time.sleep(self._pause)
        if self._work is not None:
            self._work()


def _stream(start_response: StartResponse, stream: Stream) -> Iterator[bytes]:
    """Started with its first piece, as PEP 3333 allows."""
    start_response("200 OK", list(stream.headers))
    for number, chunk in enumerate(stream.chunks):
        if number:
            time.sleep(stream.pause)
        yield chunk
    if stream.breaks:
        raise Broken("the stream failed half-way")


def _send(start_response: StartResponse, reply: Reply, *, head: bool = False) -> list[bytes]:
    fields = list(reply.headers)
    # RFC 9110 section 8.6: no Content-Length in a 204.
    if reply.status not in (204, 304):
        fields.append(("content-length", str(len(reply.body))))
    start_response(_line(reply.status), fields)
    return [reply.body] if reply.body and not head else []


def _line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Whatever"


def _refuse(
    environ: WSGIEnvironment, allowed: Iterable[str], start_response: StartResponse
) -> Iterable[bytes]:
    """No such route; or not with this method; or the question which methods there are."""
    methods = ", ".join(sorted({*allowed, "OPTIONS"}))
    status = (204 if environ["REQUEST_METHOD"] == "OPTIONS" else 405) if allowed else 404
    return _send(start_response, Reply(status, (("allow", methods),) if allowed else ()))


def _read(environ: WSGIEnvironment) -> bytes | None:
    """The whole body; nothing if the client went away before it was complete."""
    announced: str = environ.get("CONTENT_LENGTH", "")
    if announced.isdigit():
        body: bytes = environ["wsgi.input"].read(int(announced))
        return body if len(body) == int(announced) else None
    whole: bytes = environ["wsgi.input"].read() if environ.get("wsgi.input_terminated") else b""
    return whole
