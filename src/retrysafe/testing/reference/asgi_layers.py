"""What surrounds the idempotency layer in a real application, as plain ASGI.

Authentication and CORS stand outside: a request that is not authenticated must not get a replay either, and
the headers of a cross-origin response belong to the origin that asks now.  The compressor stands inside,
where it would have its output stored if the layer let it.
"""

import gzip
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from retrysafe.testing.reference.cors import ALLOWED, EXPOSED, METHODS
from retrysafe.testing.reference.principals import admit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Below it a compressed body is rarely smaller.
WORTH_COMPRESSING = 500


def header(scope: Scope, name: bytes) -> bytes | None:
    """The only value of a header; several are as good as none."""
    values = [value for given, value in scope["headers"] if given == name]
    return values[0] if len(values) == 1 else None


class CrossOrigin:
    """CORS for every origin: each response names the one that asked."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = header(scope, b"origin") if scope["type"] == "http" else None
        if origin is None:
            await self._app(scope, receive, send)
            return
        ours = [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", EXPOSED.encode()),
            (b"vary", b"Origin"),
        ]
        if scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method"):
            allowed = [
                (b"access-control-allow-methods", METHODS.encode()),
                (b"access-control-allow-headers", ALLOWED.encode()),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": ours + allowed})
            await send({"type": "http.response.body", "body": b""})
            return

        async def send_with_origin(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *ours]}
            await send(message)

        await self._app(scope, receive, send_with_origin)


class Authentication:
    """401 and 403, before anything behind it has looked at the key."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        # Two credentials are two people.
        denied = admit(given[0] if len(given) == 1 else b"") if given else None
        if denied is None:
            await self._app(scope, receive, send)
            return
        body = json.dumps({"error": denied.reason}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if denied.status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="reference"'))
        await send({"type": "http.response.start", "status": denied.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Compression:
    """gzip for clients that accept it, of responses in one piece."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = header(scope, b"accept-encoding") or b"" if scope["type"] == "http" else b""
        if b"gzip" not in accepted:
            await self._app(scope, receive, send)
            return
        held: list[Message] = []

        async def send_compressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                held.append(message)
                return
            if held:
                await send(_compress(held.pop(), message))
            await send(message)

        await self._app(scope, receive, send_compressed)


def _compress(start: Message, body: Message) -> Message:
    """Compress the body in place, if it is worth it; the start message that goes with it."""
    data = body.get("body", b"")
    if body.get("more_body") or len(data) < WORTH_COMPRESSING:
        return start
    body["body"] = gzip.compress(data, mtime=0)
    kept = [pair for pair in start["headers"] if pair[0] != b"content-length"]
    ours = [
        (b"content-encoding", b"gzip"),
        (b"content-length", b"%d" % len(body["body"])),
        (b"vary", b"Accept-Encoding"),
    ]
    return {**start, "headers": kept + ours}
