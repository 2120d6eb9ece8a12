"""The service as a plain ASGI application, without a framework, and what stands around it.

From the outside in: CORS, authentication, the idempotency layer, a compressor, the routes.
"""

import asyncio
from collections.abc import Iterable
from urllib.parse import parse_qsl

from retrysafe import Guard
from retrysafe.asgi import Middleware
from retrysafe.testing.reference.asgi_layers import (
    App,
    Authentication,
    Compression,
    CrossOrigin,
    Receive,
    Scope,
    Send,
)
from retrysafe.testing.reference.principals import signed_in
from retrysafe.testing.reference.routes import find
from retrysafe.testing.reference.service import Broken, Call, Reply, Service, Stream


def build(service: Service, guard: Guard) -> App:
    inner = Compression(Application(service))
    guarded = Middleware(inner, guard, routes={"/private": {"scope": signed_in}})
    return CrossOrigin(Authentication(guarded))


class Application:
    """The routes, and nothing that knows of idempotency."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(self._service, receive, send)
            return
        routes, item = find(scope["path"])
        route = routes.get(scope["method"])
        if route is None:
            await _refuse(scope, routes, send)
            return
        body = await _read(receive)
        if body is None:
            return
        call = Call(
            dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
            _header(scope, b"content-type"),
            body,
            item,
        )
        if route.method != "GET":
            self._service.journal.begin(call.label)
        if route.waits:
            await asyncio.sleep(call.pause)
        # In a thread, because an effect waits for the disk or the database; the context goes along.
        match await asyncio.to_thread(route.do, self._service, call):
            case Reply() as reply:
                await _send_head(send, reply.status, reply.headers, len(reply.body))
                await send({"type": "http.response.body", "body": reply.body})
                if reply.afterwards:
                    await asyncio.sleep(call.pause)
                    await asyncio.to_thread(reply.afterwards)
            case Stream() as stream:
                await _send_stream(stream, send)


async def _send_stream(stream: Stream, send: Send) -> None:
    await _send_head(send, 200, stream.headers)
    for number, chunk in enumerate(stream.chunks):
        if number:
            await asyncio.sleep(stream.pause)
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    if stream.breaks:
        raise Broken("the stream failed half-way")
    await send({"type": "http.response.body", "body": b""})


async def _send_head(
    send: Send, status: int, headers: Iterable[tuple[str, str]], length: int | None = None
) -> None:
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    # RFC 9110 section 8.6: no Content-Length in a 204.
    if length is not None and status not in (204, 304):
        fields.append((b"content-length", b"%d" % length))
    await send({"type": "http.response.start", "status": status, "headers": fields})


async def _refuse(scope: Scope, allowed: Iterable[str], send: Send) -> None:
    """No such route; or not with this method; or the question which methods there are."""
    methods = ", ".join(sorted({*allowed, "OPTIONS"}))
    status = (204 if scope["method"] == "OPTIONS" else 405) if allowed else 404
    await _send_head(send, status, [("allow", methods)] if allowed else [], 0)
    await send({"type": "http.response.body", "body": b""})


async def _read(receive: Receive) -> bytes | None:
    """The whole body; nothing if the client went away before it was complete."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


def _header(scope: Scope, name: bytes) -> str:
    found = (value for given, value in scope["headers"] if given == name)
    return next(found, b"").decode("latin-1")


async def lifespan(service: Service, receive: Receive, send: Send) -> None:
    """What a server says when it starts and stops."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            service.journal.open()
        else:
            await asyncio.to_thread(service.journal.close)
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
