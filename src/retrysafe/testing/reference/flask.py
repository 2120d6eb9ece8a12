"""The service as a Flask application: its views claim, after the `before_request` that authenticates.

From the outside in: the holder of `Retrysafe`, CORS and a compressor in `after_request`, authentication in
`before_request`, and the views.
"""

import gzip
import time
from collections.abc import Callable, Iterator

from flask import Flask, Response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import ClientDisconnected

from retrysafe import Guard
from retrysafe.flask import Retrysafe, idempotent
from retrysafe.policy import Options
from retrysafe.testing.reference.cors import ALLOWED, EXPOSED, METHODS
from retrysafe.testing.reference.principals import admit, signed_in
from retrysafe.testing.reference.routes import ROUTES, Route
from retrysafe.testing.reference.service import Broken, Call, Reply, Service, Stream
from retrysafe.testing.reference.wsgi_layers import WORTH_COMPRESSING


def build(service: Service, guard: Guard) -> Flask:
    app = Flask("reference")
    Retrysafe(guard).init_app(app)
    app.before_request(_authenticate)
    app.after_request(_compress)
    app.after_request(_allow_other_origins)
    for route in ROUTES:
        view = _view(service, route)
        if route.method != "GET":
            options: Options = {"scope": signed_in} if route.path == "/private" else {}
            view = idempotent(guard, **options)(view)
        path = route.path.replace("{", "<").replace("}", ">")
        app.add_url_rule(path, f"{route.method} {route.path}", view, methods=[route.method])
    return app


def _authenticate() -> ResponseReturnValue | None:
    given = request.headers.get("Authorization")
    # Two credentials are two people; a server joins them with a comma.
    denied = admit(b"" if "," in given else given.encode("latin-1")) if given is not None else None
    if denied is None:
        return None
    headers = {"WWW-Authenticate": 'Bearer realm="reference"'} if denied.status == 401 else {}
    return {"error": denied.reason}, denied.status, headers


def _allow_other_origins(response: Response) -> Response:
    origin = request.headers.get("Origin")
    if origin is not None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = EXPOSED
        response.vary.add("Origin")
        if request.method == "OPTIONS":
            response.headers["Access-Control-Allow-Methods"] = METHODS
            response.headers["Access-Control-Allow-Headers"] = ALLOWED
    return response


def _compress(response: Response) -> Response:
    if "gzip" not in request.headers.get("Accept-Encoding", "") or response.is_streamed:
        return response
    if len(response.get_data()) >= WORTH_COMPRESSING:
        response.set_data(gzip.compress(response.get_data(), mtime=0))
        response.content_encoding = "gzip"
        response.vary.add("Accept-Encoding")
    return response


def _view(service: Service, route: Route) -> Callable[..., Response]:
    def view(**variables: str) -> Response:
        call = Call(
            request.args.to_dict(),
            request.headers.get("Content-Type", ""),
            _read(),
            next(iter(variables.values()), ""),
        )
        if route.method != "GET":
            service.journal.begin(call.label)
        if route.waits:
            time.sleep(call.pause)
        match route.do(service, call):
            case Reply() as reply:
                return _respond(reply, call)
            case Stream() as stream:
                response = Response(_chunks(stream))
                _set_headers(response, stream.headers)
                return response

    return view


def _read() -> bytes:
    """The whole body.  Where the server ends it, Flask does not notice one that is not complete."""
    body = request.get_data()
    if request.content_length is not None and len(body) < request.content_length:
        raise ClientDisconnected
    return body


def _respond(reply: Reply, call: Call) -> Response:
    response = Response(reply.body, reply.status)
    _set_headers(response, reply.headers)
    afterwards = reply.afterwards
    if afterwards is not None:
        response.call_on_close(lambda: time.sleep(call.pause))
        response.call_on_close(afterwards)
    return response


def _set_headers(response: Response, headers: tuple[tuple[str, str], ...]) -> None:
    response.headers.clear()
    for name, value in headers:
        response.headers.add(name, value)


def _chunks(stream: Stream) -> Iterator[bytes]:
    for number, chunk in enumerate(stream.chunks):
        if number:
            time.sleep(stream.pause)
        yield chunk
    if stream.breaks:
        raise Broken("the stream failed half-way")
