"""What the routes do, in no framework's terms.

Every method takes a `Call` and returns a `Reply` or a `Stream`.  They block (an effect goes to the
disk or to a database), so asynchronous frameworks call them in a thread; they never sleep: how one
waits is the framework's own affair, and `Call.pause` and `Stream.pause` say for how long.

Responses contain a random id wherever they may, so that a second run can never be taken for a replay.
"""

import hashlib
import json
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from retrysafe import NotDone, current
from retrysafe._core.attempt import Attempt
from retrysafe.errors import NotGuarded
from retrysafe.testing.reference.journal import Journal
from retrysafe.testing.reference.multipart import parts_of

JSON = ("content-type", "application/json")
TEXT = ("content-type", "text/plain; charset=utf-8")
BYTES = ("content-type", "application/octet-stream")
EVENTS = ("content-type", "text/event-stream")

# RFC 9110 section 6.4.1: these have no content.
BODILESS = frozenset({204, 205, 304})


class Call(NamedTuple):
    """A request, as far as the routes care."""

    query: Mapping[str, str]
    content_type: str = ""
    body: bytes = b""
    item: str = ""
    """What stood in the path for `{…}`."""

    def number(self, name: str, default: int = 0) -> int:
        """A number from the query; what is not one counts as not given."""
        found = self.query.get(name, "")
        return int(found) if found.isascii() and found.isdigit() else default

    @property
    def pause(self) -> float:
        """`ms`, in seconds."""
        return self.number("ms") / 1000

    @property
    def document(self) -> Mapping[str, object]:
        """The body, if it is a JSON object."""
        try:
            found: object = json.loads(self.body)
        except ValueError:
            return {}
        return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}

    @property
    def label(self) -> str:
        """By which name an effect of this call is counted."""
        return self.query.get("label") or str(self.document.get("label", "-"))


class Reply(NamedTuple):
    """A response in one piece."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    afterwards: Callable[[], object] | None = None
    """What is done when the response has been sent: a background task."""


class Stream(NamedTuple):
    """A response piece by piece."""

    headers: tuple[tuple[str, str], ...]
    chunks: tuple[bytes, ...]
    pause: float = 0.0
    breaks: bool = False
    """Whether it fails after the last of these chunks instead of ending."""


class Broken(Exception):
    """A failure that the application does not handle."""


class Service:
    """The application behind the routes."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def charge(self, call: Call) -> Reply:
        """One effect, and a response with every header that a replay has to keep."""
        self.journal.effect(call.label)
        id = _random_id()
        return _json(
            201,
            {"id": id, "label": call.label, "amount": call.document.get("amount")},
            ("location", f"/charges/{id}"),
            ("etag", f'"{id}"'),
            ("link", f'</charges/{id}>; rel="self"'),
            ("link", '</charges>; rel="collection"'),
        )

    def change(self, call: Call) -> Reply:
        self.journal.effect(call.label)
        return _json(200, {"id": call.item, "label": call.label, "version": _random_id()})

    def delete(self, call: Call) -> Reply:
        """204 the first time; afterwards it is gone, and nothing happens any more."""
        if not self.journal.delete(call.item):
            return _json(404, {"error": "gone", "id": call.item})
        self.journal.effect(call.label)
        return Reply(204)

    def created(self, call: Call) -> Reply:
        """One effect, 201."""
        self.journal.effect(call.label)
        return _json(201, {"id": _random_id(), "label": call.label})

    def status(self, call: Call) -> Reply:
        """One effect, and whatever status was asked for."""
        status = int(call.item) if call.item.isascii() and call.item.isdigit() else 0
        if not 200 <= status <= 599:
            return _json(404, {"error": "no such status", "status": call.item})
        self.journal.effect(call.label)
        headers: list[tuple[str, str]] = []
        if "retry_after" in call.query:
            headers.append(("retry-after", call.query["retry_after"]))
        if 300 <= status <= 399:
            headers.append(("location", f"/charges/{_random_id()}"))
        if status in BODILESS:
            return Reply(status, tuple(headers))
        return _json(status, {"id": _random_id(), "status": status}, *headers)

    def fail(self, call: Call) -> Reply:
        self.journal.effect(call.label)
        raise Broken("the handler failed after its effect")

    def crash(self, call: Call) -> Reply:
        self.journal.effect(call.label)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL did not end this process")

    def flaky(self, call: Call) -> Reply:
        """Attempts are counted apart from effects: a rolled back attempt was one too."""
        attempt = self.journal.attempt(call.label)
        self.journal.effect(call.label)
        status = 500 if attempt <= call.number("fail") else 201
        return _json(status, {"id": _random_id(), "attempt": attempt})

    def validated(self, call: Call) -> Reply:
        amount = call.document.get("amount")
        if not isinstance(amount, int) or isinstance(amount, bool) or amount <= 0:
            if attempt := _guarded():
                attempt.not_started()
            return _json(422, {"error": "amount must be a positive integer"})
        return self.charge(call)

    def stream(self, call: Call) -> Stream:
        """With `as=events` the same chunks go by the name of an event stream."""
        self.journal.effect(call.label)
        kind = EVENTS if call.query.get("as") == "events" else TEXT
        return Stream((kind,), _chunks(call.number("chunks", 4)), call.pause)

    def broken_stream(self, call: Call) -> Stream:
        """Half of the chunks, and then a failure."""
        self.journal.effect(call.label)
        chunks = _chunks(call.number("chunks", 4))
        return Stream((TEXT,), chunks[: len(chunks) // 2], call.pause, breaks=True)

    def big(self, call: Call) -> Reply:
        """As many bytes as asked for, beginning with a random id."""
        self.journal.effect(call.label)
        size = call.number("bytes")
        body = (_random_id().encode() + b"." * size)[:size]
        return Reply(200, (BYTES, ("etag", f'"{_random_id()}"')), body)

    def binary(self, call: Call) -> Reply:
        self.journal.effect(call.label)
        return Reply(200, (BYTES,), bytes(range(256)))

    def cookie(self, call: Call) -> Reply:
        self.journal.effect(call.label)
        return _json(
            201,
            {"id": _random_id()},
            ("set-cookie", f"session={_random_id()}; HttpOnly"),
            ("set-cookie", "theme=dark"),
        )

    def background(self, call: Call) -> Reply:
        reply = _json(201, {"id": _random_id()})
        return reply._replace(afterwards=lambda: self.journal.effect(call.label))

    def upload(self, call: Call) -> Reply:
        parts = parts_of(call.content_type, call.body)
        self.journal.effect(call.query.get("label", "-"))
        found = [
            {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in parts
        ]
        return _json(201, {"id": _random_id(), "parts": found})

    def zipped(self, call: Call) -> Reply:
        """Compressible, and large enough that a compressor takes the trouble."""
        self.journal.effect(call.label)
        return _json(201, {"id": _random_id(), "padding": "retrysafe " * 400})

    def not_done(self, call: Call) -> Reply:
        if self.journal.attempt(call.label) <= call.number("times"):
            raise NotDone("the other side is not there", retry_after=1)
        return self.created(call)

    def downstream(self, call: Call) -> Reply:
        """The keys that this request would pass on to the services that it calls itself."""
        attempt = _guarded()
        keys = {name: attempt.derive(name) if attempt else None for name in ("charge", "mail")}
        number = self.journal.attempt(call.label)
        self.journal.effect(call.label)
        return _json(500 if number <= call.number("fail") else 201, keys)

    def events(self, call: Call) -> Stream:
        chunks = tuple(b"data: %d\n\n" % number for number in range(call.number("n", 3)))
        return Stream((EVENTS, ("cache-control", "no-store")), chunks, pause=0.05)

    def effects(self, call: Call) -> Reply:
        count = self.journal.effects(call.label)
        return _json(200, {"count": count}, ("etag", f'"{count}"'))

    def begun(self, call: Call) -> Reply:
        """How many handlers have begun, whatever their outcome."""
        begun, written = self.journal.begun(call.label), self.journal.written(call.label)
        return _json(200, {"count": begun, "written": written})


def _guarded() -> Attempt | None:
    """The running attempt; none if the client sent no key."""
    try:
        return current()
    except NotGuarded:
        return None


def _random_id() -> str:
    return secrets.token_hex(8)


def _chunks(number: int) -> tuple[bytes, ...]:
    run = _random_id()
    return tuple(f"{run} {index}\n".encode() for index in range(number))


def _json(status: int, document: object, *headers: tuple[str, str]) -> Reply:
    return Reply(status, (JSON, *headers), json.dumps(document).encode())
