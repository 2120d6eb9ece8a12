"""What does not concern the layer passes through it untouched: not buffered, not delayed, not wrapped (F36).

The proof is identity: the application gets the very objects that the server gave.
"""

import asyncio
import time
import tracemalloc

import pytest

from retrysafe import Event, Guard, scopes
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import App, Connection, Message, Receive, Send
from retrysafe.stores.memory import MemoryStore
from tests.faults.wire import Wire, connection, fresh, respond

Given = tuple[Connection, Receive, Send]


class Inner:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[Given] = []

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        self.given.append((scope, receive, send))


class Untouchable(MemoryStore):
    """A store that nobody may ask."""

    def __getattribute__(self, name: str) -> object:
        harmless = ("aio", "close", "forked", "open_keeper", "subscribe")
        assert name.startswith("_") or name in harmless, f"the store was asked: {name}"
        return super().__getattribute__(name)


async def _receive() -> Message:
    raise AssertionError("the layer read the request")


async def _send(message: Message) -> None:
    raise AssertionError("the layer answered the request")


def websocket() -> Connection:
    return {**connection("/chat", key=fresh(), method="GET"), "type": "websocket"}


PASSING = {
    "no key": connection(),
    "an empty list of headers": {**connection(), "headers": []},
    "GET with a key": connection(key=fresh(), method="GET"),
    "HEAD with a key": connection(key=fresh(), method="HEAD"),
    "OPTIONS with a key": connection(key=fresh(), method="OPTIONS"),
    "a method nobody knows": connection(key=fresh(), method="BREW"),
    "a path that is not covered": connection("/public/charges", key=fresh()),
    "a path that almost is": connection("/apis/charges", key=fresh()),
    "an event stream": connection("/api/events", method="GET", fields=[(b"accept", b"text/event-stream")]),
    "a websocket": websocket(),
    "something of the future": {"type": "webtransport", "headers": [(b"idempotency-key", b"k")]},
}


@pytest.mark.parametrize("scope", PASSING.values(), ids=PASSING.keys())
def test_the_very_same_objects(scope: Connection) -> None:
    """F36: scope, receive and send are those of the server, the scope is unchanged, and no store is asked."""
    inner = Inner()
    guard = Guard(Untouchable(), scope=scopes.header("X-Tenant"))
    before = {**scope}
    asyncio.run(Middleware(inner, guard, paths=["/charges", "/api/*"])(scope, _receive, _send))
    [(given_scope, receive, send)] = inner.given
    assert given_scope is scope
    assert receive is _receive
    assert send is _send
    assert scope == before
    assert not guard.runtime.running


def test_a_layer_inside_a_layer() -> None:
    """Two middlewares in one stack guard a request once: the inner one hands on what the outer one gave."""
    given: list[Given] = []

    async def handler(scope: Connection, receive: Receive, send: Send) -> None:
        given.append((scope, receive, send))
        await respond(send, 201, b"done")

    guard = Guard(MemoryStore(), scope=scopes.header("X-Tenant"))
    between: list[Given] = []
    innermost = Middleware(handler, guard)

    async def spy(scope: Connection, receive: Receive, send: Send) -> None:
        between.append((scope, receive, send))
        await innermost(scope, receive, send)

    wire = Wire(b"{}")
    asyncio.run(Middleware(spy, guard)(connection(key=fresh()), wire.receive, wire.send))
    assert wire.heard.status == 201
    [[outer_scope, outer_receive, outer_send]], [[scope, receive, send]] = between, given
    assert scope is outer_scope
    assert receive == outer_receive
    assert send == outer_send
    guard.close()


def test_a_key_that_is_missing_is_noticed_and_let_through() -> None:
    """`required="warn"`: counted and logged, and otherwise untouched."""
    inner, events = Inner(), list[Event]()
    guard = Guard(Untouchable(), scope=scopes.header("X-Tenant"), required="warn", on_event=events.append)
    scope = connection()
    asyncio.run(Middleware(inner, guard)(scope, _receive, _send))
    assert inner.given[0][0] is scope
    assert inner.given[0][1:] == (_receive, _send)
    assert [event.verdict for event in events] == ["keyless"]


def test_the_lifespan() -> None:
    """Its messages pass as they are, both ways; only the shutdown waits, for handlers and for the store."""
    messages: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    answers: list[Message] = [
        {"type": "lifespan.startup.complete"},
        {"type": "lifespan.shutdown.complete"},
    ]
    scope: Connection = {"type": "lifespan", "state": {}}
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    got: list[Message] = []
    seen: list[Connection] = []
    heard: list[Message] = []

    async def send(message: Message) -> None:
        heard.append(message)

    async def application(scope: Connection, receive: Receive, send: Send) -> None:
        seen.append(scope)
        for answer in answers:
            got.append(await receive())
            await send(answer)

    guard = Guard("memory:", scope=scopes.header("X-Tenant"))
    asyncio.run(Middleware(application, guard)(scope, receive, send))
    assert seen[0] is scope
    assert [found is sent for found, sent in zip(got, messages, strict=True)] == [True, True]
    assert [found is sent for found, sent in zip(heard, answers, strict=True)] == [True, True]


def test_an_event_stream_is_not_delayed() -> None:
    """F36: each event is with the server before the application makes the next one."""
    wire = Wire()
    after_each: list[int] = []

    async def events(scope: Connection, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            after_each.append(len(wire.sent))
        await send({"type": "http.response.body", "body": b""})

    guard = Guard(Untouchable(), scope=scopes.header("X-Tenant"))
    asyncio.run(Middleware(events, guard)(connection("/events", method="GET"), wire.receive, wire.send))
    assert after_each == [2, 3, 4]


def test_a_large_upload_without_a_key_costs_no_memory() -> None:
    """64 MiB go through in pieces of 64 KiB: at no time is there much more than one piece."""
    pieces = 1024

    async def upload(scope: Connection, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass

    async def receive() -> Message:
        nonlocal pieces
        pieces -= 1
        return {"type": "http.request", "body": bytes(65536), "more_body": pieces > 0}

    app = Middleware(upload, Guard(Untouchable(), scope=scopes.header("X-Tenant")))
    tracemalloc.start()
    try:
        asyncio.run(app(connection(), receive, _send))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024


def test_it_costs_next_to_no_time() -> None:
    """A request without a key is slower by microseconds.  The best of many rounds: no noise."""
    inner = Inner()
    app = Middleware(inner, Guard(Untouchable(), scope=scopes.header("X-Tenant")))
    scope = connection(fields=[(b"x-%d" % number, b"value") for number in range(20)])

    async def rounds(target: App) -> float:
        best = 1.0
        for _ in range(200):
            began = time.perf_counter()
            for _ in range(50):
                await target(scope, _receive, _send)
            best = min(best, (time.perf_counter() - began) / 50)
            inner.given.clear()
        return best

    plain = asyncio.run(rounds(inner))
    guarded = asyncio.run(rounds(app))
    assert guarded - plain < 20e-6
