"""An ASGI server's end of one request, in process: what it sends in, and what it hears.

Every `receive` and `send` suspends at least once, as it does in a real server, so that there is a moment to
be cancelled at.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from retrysafe.asgi.types import App, Connection, Message

PATIENCE = 10.0
"""Nothing that a test waits for takes so long, and a machine may be busy."""

Fields = Sequence[tuple[bytes, bytes]]


class Heard(NamedTuple):
    """What came back; status 0: nothing did."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        return next((value for found, value in self.headers if found == name), None)

    @property
    def replayed(self) -> bool:
        return self.header(b"idempotent-replayed") == b"true"

    @property
    def code(self) -> str | None:
        """Which problem it is; none if it is an answer of the application."""
        if self.header(b"content-type") != b"application/problem+json" or not self.body:
            return None
        return str(json.loads(self.body)["code"])


class Wire:
    """`receive` and `send` of one request."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces) or [b""]
        self.gone = asyncio.Event()
        """The client has hung up."""
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        await asyncio.sleep(0)
        if self._pieces and not self.gone.is_set():
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await asyncio.sleep(0)
        self.sent.append(message)

    @property
    def heard(self) -> Heard:
        starts = [message for message in self.sent if message["type"] == "http.response.start"]
        assert len(starts) <= 1, "a response begins once"
        assert self.sent[:1] == starts, "a response begins with its start"
        body = b"".join(message.get("body", b"") for message in self.sent[1:])
        if not starts:
            return Heard(0, (), b"")
        return Heard(starts[0]["status"], tuple(starts[0]["headers"]), body)

    @property
    def complete(self) -> bool:
        return bool(self.sent) and not self.sent[-1].get("more_body", self.sent[-1]["type"] != BODY)


BODY = "http.response.body"


def connection(
    path: str = "/charges",
    *,
    key: str | bytes | None = None,
    method: str = "POST",
    query: bytes = b"",
    fields: Fields = (),
) -> Connection:
    """The scope of a request."""
    raw = key.encode("latin-1") if isinstance(key, str) else key
    given = [] if raw is None else [(b"idempotency-key", raw)]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", b"shop.test"), (b"x-tenant", b"7"), *given, *fields],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 80),
    }


async def call(app: App, scope: Connection, *pieces: bytes) -> Heard:
    """One request to its end.  What the application raises is the server's to log, and is left out here."""
    wire = Wire(*pieces)
    with contextlib.suppress(Deliberate):
        await app(scope, wire.receive, wire.send)
    return wire.heard


class Deliberate(Exception):
    """Raised by handlers on purpose."""


async def until(wanted: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not wanted():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)


def fresh(what: str = "key") -> str:
    return f"{what}-{uuid.uuid4().hex}"


async def respond(send: Any, status: int, body: bytes, *fields: tuple[bytes, bytes]) -> None:
    """Send a whole answer, as an application does."""
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body)), *fields]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
