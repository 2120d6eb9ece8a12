"""The ASGI adapter, message by message: what applications and servers do and sockets hardly show."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from retrysafe._core.model import Claim, Final, Reservation, Response
from retrysafe._http.exchange import IncompleteResponse
from retrysafe.asgi import Middleware
from retrysafe.errors import ConfigurationError, StoreUnavailable
from retrysafe.events import Counted, Event
from retrysafe.stores.memory import AsyncMemoryStore, MemoryStore
from tests.core.asgi_calls import CREATED, Client, Message, a_guard, counting, guards
from tests.core.values import eventually, keepers


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    while guards:
        guards.pop().close()


def test_a_route_that_says_outside_never_runs_twice() -> None:
    """What a route says of its effects counts with all that it implies, whatever the guard chose."""
    guard = a_guard(effects="repeatable", failed="retry", abandoned="retry")
    policy = guard.compile({"effects": "outside"}).policy
    assert (policy.failed, policy.abandoned) == ("replay", "hold")
    assert guard.compile({}).policy.failed == "retry"
    assert guard.compile({"effects": "outside", "failed": "conflict"}).policy.failed == "conflict"


@pytest.mark.parametrize(
    ("path", "root"), [("/pay", ""), ("/pay/", ""), ("/api/pay", "/api"), ("/api/pay/", "/api")]
)
def test_paths_are_the_applications_own(path: str, root: str) -> None:
    """Where it is mounted, and whether a slash ends the path, does not lead a request past the guard."""
    app, runs = counting()
    guarded = Middleware(app, a_guard(), paths=["/pay"])

    async def twice() -> list[Client]:
        return [await Client(guarded, path, root_path=root)() for _ in range(2)]

    first, second = asyncio.run(twice())
    assert (first.replayed, second.replayed, len(runs)) == (False, True, 1)


def test_the_specification_is_where_problems_point() -> None:
    """Also behind a prefix; and routes that differ are in it."""
    app, _ = counting()
    guarded = Middleware(app, a_guard(), routes={"/strict": {"required": True, "no_store": True}})

    async def ask() -> tuple[Client, Client]:
        refused = Client(guarded, "/api/pay", key=b'"', root_path="/api")
        page = Client(guarded, "/api/idempotency", method="GET", root_path="/api")
        return await refused(), await page()

    refused, page = asyncio.run(ask())
    assert b"http://shop.test/api/idempotency#key-invalid" in refused.body
    assert page.status == 200
    assert b'id="key-invalid"' in page.body
    assert b"/strict" in page.body


def test_route_patterns_of_a_framework_are_refused() -> None:
    """They would never match, and the route would be unprotected."""
    app, _ = counting()
    for pattern in ("/orders/{id}", "/orders/<id>", "/orders/:id"):
        with pytest.raises(ConfigurationError):
            Middleware(app, a_guard(), routes={pattern: {"required": True}})


def test_several_tasks_may_send_while_an_answer_begins_to_flow() -> None:
    """Whatever is sent while the checkpoint is being made is held back, and not lost."""

    class Slow(AsyncMemoryStore):
        async def checkpoint(self, claim: Claim, head: Any) -> bool:
            await asyncio.sleep(0.05)
            return await super().checkpoint(claim, head)

    async def app(scope: Message, receive: Any, send: Any) -> None:
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        pieces = [
            {"type": "http.response.body", "body": word, "more_body": True} for word in (b"one ", b"two ")
        ]
        await asyncio.gather(*(send(piece) for piece in pieces))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(1)
        await send({"type": "http.response.body", "body": b"end"})

    store = MemoryStore()
    store.aio = Slow(store)
    client = asyncio.run(Client(Middleware(app, a_guard(store)))())
    assert (client.status, client.body) == (200, b"one two end")


def test_a_sender_that_gives_up_loses_nothing() -> None:
    """The application's own timeout around a send: the answer's head still goes out, before its end."""

    class Slow(AsyncMemoryStore):
        async def checkpoint(self, claim: Claim, head: Any) -> bool:
            await asyncio.sleep(0.1)
            return await super().checkpoint(claim, head)

    async def app(scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await send({"type": "http.response.body", "body": b"12345", "more_body": True})
        await send({"type": "http.response.body", "body": b"67"})

    store = MemoryStore()
    store.aio = Slow(store)
    client = asyncio.run(Client(Middleware(app, a_guard(store, max_response=1)))())
    assert (client.status, client.body) == (200, b"1234567")


def test_nothing_is_sent_for_a_request_that_was_given_up() -> None:
    """A timeout outside of us has answered already; the handler goes on, and its outcome is kept."""
    finished: list[bool] = []

    async def app(scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.1)
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})
        await send({"type": "http.response.body", "body": b"6"})
        finished.append(True)

    async def run() -> tuple[Client, Client]:
        guarded = Middleware(app, a_guard(max_response=1))
        client = Client(guarded)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await client()
        await guarded.guard.drain_async(grace=5)
        guarded.guard.resume()
        return client, await Client(guarded)()

    given_up, retry = asyncio.run(run())
    assert given_up.got == []
    assert (retry.status, retry.replayed, len(finished)) == (200, True, 1)


def test_an_unprotected_answer_may_flow() -> None:
    """The store was down at the claim and is back at the checkpoint: the client still gets its answer."""

    class Down(AsyncMemoryStore):
        async def reserve(self, claim: Claim) -> Reservation:
            raise StoreUnavailable("down")

    async def app(scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"12", "more_body": True})
        await send({"type": "http.response.body", "body": b"3"})

    store = MemoryStore()
    store.aio = Down(store)
    guard = a_guard(store, store_down="run", max_response=1)
    client = asyncio.run(Client(Middleware(app, guard))())
    guard.close()
    assert (client.status, client.body) == (200, b"123")
    assert (b"idempotency-stored", b"false") in client.got[0]["headers"]


def test_an_error_page_of_the_application_is_its_own() -> None:
    """Frameworks send a complete 500 and raise then: the page is kept and replayed, and the error raised."""

    async def app(scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"our own page"})
        raise ValueError("for the log")

    async def run() -> tuple[Client, Client]:
        guarded = Middleware(app, a_guard())
        first = Client(guarded)
        with pytest.raises(ValueError, match="for the log"):
            await first()
        return first, await Client(guarded)()

    first, second = asyncio.run(run())
    assert (first.body, second.body, second.replayed) == (b"our own page", b"our own page", True)


def test_work_after_the_answer_belongs_to_the_request_all_the_same() -> None:
    """`background="after"`: answered at once, but the server waits for the work, and so does a drain."""
    done: list[float] = []

    async def app(scope: Message, receive: Any, send: Any) -> None:
        for message in CREATED:
            await send(message)
        await asyncio.sleep(0.1)
        done.append(1)

    async def run() -> tuple[int, int, int]:
        guard = a_guard(background="after")
        client = Client(Middleware(app, guard))
        request = asyncio.ensure_future(client())
        await client.answered.wait()
        early = len(done)
        unfinished = await guard.drain_async(grace=5)
        after_drain = len(done)
        await request
        return early, unfinished, after_drain

    assert asyncio.run(run()) == (0, 0, 1)


def test_an_application_may_be_started_again() -> None:
    """Draining ends with the life that it ended; its store is closed, and opens again for the next one."""
    app, runs = counting()

    async def living(scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await receive()
            return
        await app(scope, receive, send)

    async def run() -> list[int]:
        guarded = Middleware(living, a_guard())
        statuses: list[int] = []
        for number in range(2):
            messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

            async def receive(messages: Any = messages) -> Message:
                return next(messages)

            await guarded({"type": "lifespan"}, receive, lambda message: asyncio.sleep(0))
            statuses.append((await Client(guarded, key=b"k%d" % number)()).status)
        return statuses

    assert asyncio.run(run()) == [201, 201]
    assert len(runs) == 2


def test_nested_guards_count_a_request_once() -> None:
    """The outer one protects it; the inner one lets it pass, and observers hear of it once."""
    app, runs = counting()
    events: list[Event] = []
    inner = Middleware(app, a_guard(on_event=events.append))
    outer = Middleware(inner, a_guard(on_event=events.append))

    async def twice() -> None:
        for _ in range(2):
            await Client(outer)()

    asyncio.run(twice())
    assert len(runs) == 1
    assert [event.verdict for event in events] == ["completed", "replayed"]


def test_a_guard_that_is_dropped_leaves_no_thread() -> None:
    """The keeper goes home when it has nothing to do, and so does not keep its store alive."""
    app, _ = counting()
    others = set(threading.enumerate())
    guard = a_guard(lease=0.3)
    asyncio.run(Client(Middleware(app, guard))())
    assert set(keepers()) - others
    kept = weakref.ref(guard.store)
    guards.clear()
    del guard
    eventually(lambda: not set(threading.enumerate()) - others)
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"required": 1},
        {"no_store": 0},
        {"on_event": asyncio.sleep},
        {"grace": -1},
        {"secret": 1234567890123456},
    ],
)
def test_what_would_be_ignored_is_refused(wrong: dict[str, Any]) -> None:
    """No option is accepted and then means something else, or nothing."""
    with pytest.raises(ConfigurationError):
        a_guard(**wrong)


class Deaf(MemoryStore):
    """Cannot be reached once a handler has ended."""

    def finish(self, claim: Claim, final: Final) -> bool:
        raise StoreUnavailable("the store is away")


def test_a_flowing_response_that_cannot_be_stored_is_broken_off() -> None:
    """The store is away until the lease ends: no last message, so that no client takes it for settled."""
    pieces: list[Message] = [
        {"type": "http.response.start", "status": 200, "headers": []},
        {"type": "http.response.body", "body": b"one", "more_body": True},
        {"type": "http.response.body", "body": b"two", "more_body": False},
    ]
    app, _ = counting(pieces)
    client = Client(Middleware(app, a_guard(Deaf(), max_response=1, lease=0.2)))
    with pytest.raises(IncompleteResponse, match="could not be stored"):
        asyncio.run(client())
    assert client.got[0]["type"] == "http.response.start"
    assert [message.get("more_body") for message in client.got[1:]] == [True]
    assert not any(name == b"idempotency-stored" for name, _ in client.got[0]["headers"])


def test_a_flowing_response_that_was_marked_is_ended() -> None:
    """A client that was told from the start that nothing is stored gets all of it."""

    class Unmarked(Deaf):
        def checkpoint(self, claim: Claim, head: Response) -> bool:
            raise StoreUnavailable("the store is away")

    pieces: list[Message] = [
        {"type": "http.response.start", "status": 200, "headers": []},
        {"type": "http.response.body", "body": b"one", "more_body": True},
        {"type": "http.response.body", "body": b"two", "more_body": False},
    ]
    app, _ = counting(pieces)
    client = asyncio.run(Client(Middleware(app, a_guard(Unmarked(), max_response=1, lease=0.2)))())
    assert (b"idempotency-stored", b"false") in client.got[0]["headers"]
    assert (client.body, client.got[-1]["more_body"]) == (b"onetwo", False)


def test_no_extension_leads_the_response_past_the_guard() -> None:
    """What would send bytes other than as body messages is not offered to the application; the rest is."""
    offered: list[object] = []

    async def app(scope: Message, receive: Any, send: Any) -> None:
        offered.append(scope["extensions"])
        for message in CREATED:
            await send(message)

    extensions = {
        "http.response.pathsend": {},
        "http.response.zerocopysend": {},
        "http.response.trailers": {},
        "http.response.push": {},
        "tls": {"server_cert": None},
    }
    client = Client(Middleware(app, a_guard()), extensions=extensions)
    asyncio.run(client())
    assert offered == [{"tls": {"server_cert": None}}]
    assert set(extensions) == set(client.scope["extensions"]), "the server's own scope is left alone"


@pytest.mark.parametrize(
    ("left", "route"),
    [
        ({"endpoint": print, "path_params": {"id": 42}}, "/orders/{id}"),
        ({"endpoint": print, "path_params": {}}, "/orders/42"),
        ({"route": SimpleNamespace(path="/orders/{number}"), "endpoint": print}, "/orders/{number}"),
        ({}, "/orders/*"),
    ],
)
def test_the_route_of_an_event(left: dict[str, Any], route: str) -> None:
    """The template, as far as the framework leaves it in the scope; else the guard's own route."""
    events: list[Event] = []

    async def app(scope: Message, receive: Any, send: Any) -> None:
        scope.update(left)
        for message in CREATED:
            await send(message)

    guard = a_guard(on_event=events.append)
    asyncio.run(Client(Middleware(app, guard, routes={"/orders/*": {}}), "/orders/42")())
    assert [event.route for event in events] == [route]
    assert guard.counts() == {Counted("completed", "request", route, ""): 1}


def test_no_secret_in_a_repr() -> None:
    """A traceback with its variables shows no key, no credentials, no body and no secret (S24)."""
    from retrysafe._core.model import Request, Response
    from retrysafe._core.steps import Call
    from tests.core.values import a_claim

    claim = a_claim()._replace(key="canary")
    request = Request("POST", "/", b"", [(b"authorization", b"canary")])
    guard = a_guard()
    call = Call(claim, guard.rules.policy, guard.rules.outcome, lambda _: Response(500), secret=b"canary")
    store = MemoryStore()
    store.reserve(claim)
    found = store.look(claim.id)
    shown = repr([claim, request, call, found, Response(200, ((b"x", b"canary"),), b"canary")])
    assert "canary" not in shown
