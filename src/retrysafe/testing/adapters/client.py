"""A client that sends exactly what a test says: two field lines, half a body, bytes that are not text.

Every request has a connection of its own, so that several workers get their share.
"""

import json
import select
import socket
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlencode

# Nothing that a test waits for takes so long; a server that hangs should fail one test, not all.
PATIENCE = 20.0

Field = tuple[str | bytes, str | bytes]


class Reply(NamedTuple):
    """A response with every header field, in order."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The only value of a header; having two of one that may be there once is an error."""
        found = self.headers(name)
        assert len(found) < 2, f"{name} is there {len(found)} times"
        return found[0] if found else None

    def headers(self, name: str) -> list[str]:
        return [value for given, value in self.fields if given.lower() == name.lower()]

    @property
    def replayed(self) -> bool:
        return self.header("Idempotent-Replayed") == "true"

    @property
    def date(self) -> datetime:
        return parsedate_to_datetime(self.header("Date") or "")

    @property
    def document(self) -> Any:  # noqa: ANN401 - JSON is whatever it is, and tests know what
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """Which problem it is; none if it is the handler's own response."""
        if self.header("Content-Type") != "application/problem+json":
            return None
        return str(self.document["code"])

    @property
    def essence(self) -> tuple[int, bytes]:
        """What a replay must have in common with the first response."""
        return self.status, self.body


class Connection:
    """One request on one connection, in as many steps as a test likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        # A half-written request must leave when it is written, not when the next half comes.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._method = "GET"
        self._responses: list[HTTPResponse] = []

    def head(self, method: str, target: str, fields: Iterable[Field]) -> None:
        """Send the request line and these fields as they are, and `Host`."""
        self._method = method
        lines = [f"{method} {target} HTTP/1.1".encode(), b"Host: reference.test"]
        lines += [_bytes(name) + b": " + _bytes(value) for name, value in fields]
        self.socket.sendall(b"\r\n".join([*lines, b"", b""]))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def chunk(self, data: bytes) -> None:
        """Send a piece of a chunked body; an empty one is its end."""
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def response(self) -> HTTPResponse:
        """Wait for status and headers; the body is still to be read."""
        response = HTTPResponse(self.socket, method=self._method)
        self._responses.append(response)
        response.begin()
        return response

    def reply(self) -> Reply:
        response = self.response()
        return Reply(response.status, tuple(response.getheaders()), response.read())

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing arrives for so long."""
        readable, _, _ = select.select([self.socket], [], [], seconds)
        return not readable

    def close(self) -> None:
        # A response that broke off keeps its file open, and the file keeps the socket.
        for response in self._responses:
            response.close()
        self.socket.close()


class Client:
    """Requests to one server."""

    def __init__(self, port: int) -> None:
        self.port = port

    @contextmanager
    def connect(self) -> Generator[Connection]:
        connection = Connection(self.port)
        try:
            yield connection
        finally:
            connection.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        user: str | None = "alice",
        json_body: object = None,
        body: bytes = b"",
        fields: Iterable[Field] = (),
        **query: object,
    ) -> Reply:
        """Send a request and read the whole response.

        `key` is sent as an RFC 9651 String; for anything else about the key, say it in `fields`.
        """
        with self.connect() as connection:
            if json_body is not None:
                body = json.dumps(json_body).encode()
                fields = [("Content-Type", "application/json"), *fields]
            head = common(key, user, fields)
            if body or method in ("POST", "PUT", "PATCH"):
                head.append(("Content-Length", str(len(body))))
            target = path + ("?" + urlencode(query) if query else "")
            connection.head(method, target, [*head, ("Connection", "close")])
            connection.send(body)
            return connection.reply()

    def post(self, path: str, **rest: Any) -> Reply:
        return self.request("POST", path, **rest)

    def effects(self, label: str) -> int:
        """How often an effect with this label really happened."""
        count = self.request("GET", "/effects", user=None, label=label).document["count"]
        assert isinstance(count, int)
        return count

    def begun(self, label: str) -> int:
        """How often a handler with this label began its work."""
        return self._at_work(label)["count"]

    def written(self, label: str) -> int:
        """How often an effect with this label was written, committed or not."""
        return self._at_work(label)["written"]

    def _at_work(self, label: str) -> dict[str, int]:
        found: dict[str, int] = self.request("GET", "/begun", user=None, label=label).document
        return found

    def pending(self, *, seconds: float = 0.8, **rest: Any) -> Reply:
        """A request that takes so long, whose effect comes last."""
        return self.post("/slow", ms=int(seconds * 1000), **rest)

    def lasting(self, *, seconds: float = 0.8, **rest: Any) -> Reply:
        """A request whose effect comes first, and whose response takes so long."""
        return self.post("/stream", chunks=9, ms=int(seconds * 125), **rest)

    def at_work(self, call: Callable[[], Reply], label: str) -> "Future[Reply]":
        """Send a pending request, and wait until its handler is at work."""
        future = self.started(call)
        until(lambda: self.begun(label) > 0)
        return future

    def running(self, call: Callable[[], Reply], label: str) -> "Future[Reply]":
        """Send a lasting request, and wait until its effect is written."""
        future = self.started(call)
        until(lambda: self.written(label) > 0)
        return future

    def started(self, call: Callable[[], Reply]) -> "Future[Reply]":
        """Send a request from a thread; its response is there when it is there."""
        pool = ThreadPoolExecutor(1)
        future = pool.submit(call)
        pool.shutdown(wait=False)
        return future


def common(key: str | None, user: str | None, fields: Iterable[Field]) -> list[Field]:
    """The fields that nearly every request has, and then the special ones."""
    head: list[Field] = []
    if user is not None:
        head.append(("Authorization", f"Bearer {user}"))
    if key is not None:
        escaped = key.replace("\\", "\\\\").replace('"', '\\"')
        head.append(("Idempotency-Key", f'"{escaped}"'))
    return [*head, *fields]


def until(wanted: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not wanted():
        assert time.monotonic() < deadline, f"timed out after {PATIENCE:g} s"
        time.sleep(0.02)


def eventually(call: Callable[[], Reply], wanted: Callable[[Reply], bool]) -> Reply:
    """Ask again until the response is the wanted one."""
    replies: list[Reply] = []

    def ask() -> bool:
        replies[:] = [call()]
        return wanted(replies[0])

    until(ask)
    return replies[0]


def settled(call: Callable[[], Reply]) -> Reply:
    """Send again until no other request runs, as the refusals advise."""
    return eventually(call, lambda reply: reply.code != "in-flight")


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")
