"""Requests that are cancelled, clients that disconnect, and bodies that arrive in pieces: by raw ASGI."""

import asyncio
import contextlib
from collections.abc import Callable, MutableMapping
from typing import Annotated, Any

import pytest
from fastapi import Body, FastAPI
from fastapi.testclient import TestClient

from retrysafe import Guard, current, scopes
from retrysafe.fastapi import idempotent, protect
from tests.fastapi.shop import KEY, Shop, SignedIn, replayed, send

Message = MutableMapping[str, Any]


class Raw:
    """One request to an application, as a server would bring it."""

    def __init__(
        self, shop: Shop, path: str, *pieces: bytes, key: str = KEY, length: int | None = None
    ) -> None:
        headers = [(b"authorization", b"Bearer alice.1"), (b"idempotency-key", key.encode())]
        headers.append((b"content-type", b"application/json"))
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        self.scope: Message = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self.app = shop.app
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self._pieces = list(pieces) or [b""]

    async def receive(self) -> Message:
        if self._pieces:
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def serve(self) -> int | None:
        await self.app(self.scope, self.receive, self.send)
        return self.status

    @property
    def status(self) -> int | None:
        status: int | None = self.sent[0]["status"] if self.sent else None
        return status

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


class Paused(Shop):
    """An application whose endpoint waits until it is told to go on."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

        async def slow(user: SignedIn) -> str:
            self.begun.set()
            await self.go_on.wait()
            self.runs.append(1)
            return "done"

        self.post("/slow", slow, **options)


async def until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not wanted():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def test_a_server_that_cancels_after_the_claim() -> None:
    """The waiting ends, and not the endpoint: its outcome is stored, and the retry gets it."""

    async def scenario() -> None:
        shop = Paused()
        request = Raw(shop, "/slow")
        task = asyncio.ensure_future(request.serve())
        await shop.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert shop.guard.runtime.unfinished() == 1
        shop.go_on.set()
        await until(lambda: not shop.guard.runtime.unfinished())
        assert (shop.runs, request.sent) == ([1], [])
        retry = Raw(shop, "/slow")
        assert (await retry.serve(), retry.body, shop.runs) == (200, b'"done"', [1])

    asyncio.run(scenario())


def test_a_server_that_cancels_before_the_claim() -> None:
    """What authenticates is cancelled as it was without us, and no record is left."""
    from typing import Annotated

    from fastapi import Depends

    async def scenario() -> None:
        shop = Shop()
        asked, cancelled = asyncio.Event(), list[int]()

        async def slow() -> None:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(1)
                raise

        def endpoint(user: SignedIn, waited: Annotated[None, Depends(slow)]) -> None:
            shop.runs.append(1)

        shop.post("/asked", endpoint)
        task = asyncio.ensure_future(Raw(shop, "/asked").serve())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (cancelled, shop.runs, shop.records(), shop.guard.runtime.unfinished()) == ([1], [], 0, 0)

    asyncio.run(scenario())


def test_an_event_loop_that_ends() -> None:
    """Every task is cancelled: how far the endpoint came is not known, and so the record is left to lapse."""
    shop: list[Paused] = []

    async def scenario() -> None:
        shop.append(Paused(lease=0.2))
        task = asyncio.ensure_future(Raw(shop[0], "/slow").serve())
        await shop[0].begun.wait()
        assert not task.done()

    asyncio.run(scenario())
    assert shop[0].guard.runtime.unfinished() == 0
    [record] = shop[0].store.open_admin().export()
    assert record.state == "in_progress"


def test_an_endpoint_that_is_cancelled_from_inside() -> None:
    """By a time limit of its own, say: what it did is not known, and its failure is the outcome."""

    async def scenario() -> None:
        shop = Shop()

        async def limited(user: SignedIn) -> str:
            shop.runs.append(1)
            raise asyncio.CancelledError

        shop.post("/limited", limited)
        first = Raw(shop, "/limited")
        with pytest.raises(RuntimeError, match="cancelled from inside"):
            await first.serve()
        assert first.status == 500
        assert await Raw(shop, "/limited").serve() == 500
        assert shop.runs == [1]

    asyncio.run(scenario())


def test_a_client_that_disconnects() -> None:
    """It is not told to an endpoint whose response is held: the retry gets its response."""

    async def scenario() -> None:
        shop = Paused()
        request = Raw(shop, "/slow")
        task = asyncio.ensure_future(request.serve())
        await shop.begun.wait()
        request.gone.set()
        shop.go_on.set()
        assert await task == 200
        assert await Raw(shop, "/slow").serve() == 200
        assert shop.runs == [1]

    asyncio.run(scenario())


def test_a_client_that_disconnects_in_its_body() -> None:
    """Nothing is claimed for half a request."""

    async def scenario() -> None:
        from starlette.requests import ClientDisconnect

        shop = Shop()
        request = Raw(shop, "/orders")
        messages: list[Message] = [
            {"type": "http.request", "body": b'{"amount":', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Message:
            return messages.pop(0)

        with contextlib.suppress(ClientDisconnect):
            await shop.app(request.scope, receive, request.send)
        assert (shop.runs, shop.records()) == ([], 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_beyond_the_limit(announced: bool) -> None:
    """413 before any claim, whether its length was announced or not."""

    async def scenario() -> None:
        shop = Shop(max_request=1000)
        shop.guard.largest_request = 1000  # no route of this guard takes more
        body = b'{"amount": 1, "padding": "' + b"x" * 2000 + b'"}'
        pieces = [body[at : at + 300] for at in range(0, len(body), 300)]
        request = Raw(shop, "/orders", *pieces, length=len(body) if announced else None)
        assert await request.serve() == 413
        assert b"body-too-large" in request.body
        assert (shop.runs, shop.records()) == ([], 0)

    asyncio.run(scenario())


def test_a_route_that_takes_more_than_the_guard() -> None:
    """All of its body is compared, though it is read before it is known which route it is."""
    guard = Guard("memory:", scope=scopes.header("X-Tenant"), max_request=10)
    app = FastAPI()
    protect(app, guard)

    @app.post("/notes")
    @idempotent(guard, max_request=1000)
    def note(text: Annotated[str, Body()]) -> int:
        return len(text)

    headers = {"Idempotency-Key": KEY, "X-Tenant": "7"}
    with TestClient(app) as client:
        first, same, other = (client.post("/notes", json=text * 100, headers=headers) for text in "aab")
    assert (first.json(), same.json(), other.json()["code"]) == (100, 100, "key-reused")


def test_a_body_that_the_endpoint_reads_itself() -> None:
    """It is read for the claim, in pieces and to its end, and then given to the endpoint."""
    from fastapi import Request

    async def scenario() -> None:
        shop = Shop()

        async def raw(user: SignedIn, request: Request) -> int:
            read = [piece async for piece in request.stream()]
            shop.runs.append(b"".join(read))
            return len(shop.runs)

        shop.post("/raw", raw)
        pieces = [b"a" * 700_000, b"b" * 700_000, b"c" * 700_000]  # on disk, above 1 MiB
        assert await Raw(shop, "/raw", *pieces).serve() == 200
        assert shop.runs == [b"".join(pieces)]
        assert await Raw(shop, "/raw", b"".join(pieces)).serve() == 200
        assert len(shop.runs) == 1
        assert await Raw(shop, "/raw", b"other").serve() == 422

    asyncio.run(scenario())


def test_a_duplicate_meanwhile() -> None:
    """409 with a hint while the first one runs; afterwards the replay."""

    async def scenario() -> None:
        shop = Paused()
        first = asyncio.ensure_future(Raw(shop, "/slow").serve())
        await shop.begun.wait()
        second = Raw(shop, "/slow")
        assert await second.serve() == 409
        assert b"in-flight" in second.body
        shop.go_on.set()
        assert await first == 200
        assert await Raw(shop, "/slow").serve() == 200
        assert shop.runs == [1]

    asyncio.run(scenario())


def test_several_at_once() -> None:
    """One runs, and those that wait for it get its response."""

    async def scenario() -> None:
        shop = Paused(in_flight="wait")
        requests = [Raw(shop, "/slow") for _ in range(10)]
        tasks = [asyncio.ensure_future(request.serve()) for request in requests]
        await shop.begun.wait()
        shop.go_on.set()
        assert {await task for task in tasks} == {200}
        assert shop.runs == [1]

    asyncio.run(scenario())


def test_a_drain() -> None:
    """New keys are refused, a running endpoint is waited for, replays go on."""

    async def scenario() -> None:
        shop = Paused()
        first = asyncio.ensure_future(Raw(shop, "/slow").serve())
        await shop.begun.wait()
        draining = asyncio.ensure_future(shop.guard.drain_async(10))
        await until(lambda: shop.guard.runtime.draining)
        refused = Raw(shop, "/slow", key=f"{KEY}2")
        assert await refused.serve() == 503
        assert b"draining" in refused.body
        shop.go_on.set()
        assert (await first, await draining) == (200, 0)
        assert await Raw(shop, "/slow").serve() == 200

    asyncio.run(scenario())


def test_a_drain_does_not_wait_for_what_is_not_protected() -> None:
    """A request with a key to another route, which may stream for hours, is not the guard's."""

    async def scenario() -> None:
        shop = Shop()
        begun, go_on = asyncio.Event(), asyncio.Event()

        @shop.app.post("/free")
        async def free() -> str:
            begun.set()
            await go_on.wait()
            return "done"

        request = asyncio.ensure_future(Raw(shop, "/free").serve())
        await begun.wait()
        assert await shop.guard.drain_async(5) == 0
        go_on.set()
        assert await request == 200

    asyncio.run(scenario())


def test_the_life_of_the_application() -> None:
    """The guard is closed with the application, and goes on when it is started again."""
    shop = Shop()

    def echo(user: SignedIn) -> str:
        return current().request_id

    shop.post("/echo", echo)
    with shop.client as client:
        assert not replayed(send(client, "/echo"))
    assert not shop.guard.runtime.draining
    with shop.client as client:
        assert replayed(send(client, "/echo"))
