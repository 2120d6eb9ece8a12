"""What is cancelled: a guarded shop, the scenes played in it, and what must hold about it after every cut."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from starlette.responses import StreamingResponse

from retrysafe import Guard, NotDone
from retrysafe._core.model import Request
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import Connection, Receive, Send
from retrysafe.policy import Options
from retrysafe.stores.contract import Store
from retrysafe.testing import ManualClock
from tests.faults.wire import PATIENCE, Deliberate, Heard, Wire, call, connection, fresh, respond, until

LEASE = 30.0
"""By the store's clock, which the tests hold: no real second passes."""


class Shop:
    """Handlers that count how far they came, per key."""

    def __init__(self) -> None:
        self.begun = Counter[str]()
        self.returned = Counter[str]()
        self.effects = Counter[str]()
        self.doors = dict[str, asyncio.Event]()
        """Handlers of `/slow` wait at theirs."""

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        key = dict(scope["headers"])[b"idempotency-key"].decode()
        self.begun[key] += 1
        try:
            while (await receive()).get("more_body"):
                pass
            await self.handle(key, scope, receive, send)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self.returned[key] += 1
            raise
        self.returned[key] += 1

    async def handle(self, key: str, scope: Connection, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/slow":
            await self.doors[key].wait()
        if path == "/notdone" and self.begun[key] == 1:
            await asyncio.sleep(0)
            raise NotDone
        await asyncio.sleep(0)
        self.effects[key] += 1
        await asyncio.sleep(0)
        if path == "/fail":
            raise Deliberate
        if path == "/stream":
            await _send_stream(send)
            return
        if path == "/starlette":
            await StreamingResponse(_chunks(), 201)(scope, receive, send)
            return
        await respond(send, 201, fresh("answer").encode())
        if path == "/background":
            await asyncio.sleep(0)


async def _send_stream(send: Send) -> None:
    await send({"type": "http.response.start", "status": 201, "headers": []})
    for _ in range(4):
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"." * 50, "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


async def _chunks() -> AsyncIterator[bytes]:
    for _ in range(4):
        await asyncio.sleep(0)
        yield b"." * 50


NO_OPTIONS: Options = {}


class Scene(NamedTuple):
    """A request, and the rules it meets."""

    path: str = "/charges"
    options: Options = NO_OPTIONS
    pieces: tuple[bytes, ...] = (b"{", b"}")
    before: Literal["nothing", "answered", "running", "draining", "drain after the claim"] = "nothing"
    status: int = 201


async def _tenant(request: Request) -> str:
    await asyncio.sleep(0)
    return (request.header(b"x-tenant") or b"").decode()


async def _still_allowed(request: Request) -> bool:
    await asyncio.sleep(0)
    return True


SCENES = {
    "a plain request": Scene(),
    "a body on disk": Scene("/upload", pieces=(b"." * 700_000,) * 3),
    "a flowing answer": Scene("/stream", {"max_response": 64}),
    "a Starlette stream": Scene("/starlette"),
    "a handler that fails": Scene("/fail", status=500),
    "a release": Scene("/notdone"),
    "work afterwards": Scene("/background", {"background": "after"}),
    "a replay": Scene(options={"reauthorise": _still_allowed}, before="answered"),
    "waiting for the first": Scene("/slow", {"in_flight": "wait", "wait_for": 60.0}, before="running"),
    "draining": Scene(before="draining"),
    "draining after the claim": Scene(before="drain after the claim"),
}


class Stage:
    """A guarded shop, and what is checked about it after every cut."""

    def __init__(self, store: Store, clock: ManualClock, scene: Scene) -> None:
        self.scene = scene
        self.clock = clock
        options: Options = {"scope": _tenant, "lease": LEASE, "abandoned": "retry", **scene.options}
        self.guard = Guard(store, **options)
        self.shop = Shop()
        self.app = Middleware(self.shop, self.guard)

    def scope(self, key: str) -> Connection:
        return connection(self.scene.path, key=key)

    async def play(self, key: str, wire: Wire) -> None:
        """The scene itself: what is cut."""
        with suppress(Deliberate):
            await self.app(self.scope(key), wire.receive, wire.send)

    async def retry(self, key: str) -> Heard:
        return await call(self.app, self.scope(key), *self.scene.pieces)

    async def quiet(self, spared: set[asyncio.Task[Any]]) -> None:
        """Wait until nothing runs any more."""
        await until(lambda: not (asyncio.all_tasks() - spared or self.guard.runtime.running))

    def assert_nothing_is_held(self) -> None:
        runtime = self.guard.runtime
        assert not runtime.running
        assert not runtime.leases._held, "the keeper would renew for ever"
        assert not runtime.wait_limit._waiting, "somebody waits who is not there"

    async def assert_recovers(self, key: str, *, interrupted: bool) -> Heard:
        """A retry gets the stored answer or runs; at the latest when the lease of a dead handler ends."""
        if interrupted:
            self.clock.elapse(LEASE + 1)
        answer = await self.retry(key)
        # A claim that was cancelled is forgotten by the keeper's thread, and that is soon.
        async with asyncio.timeout(PATIENCE):
            while answer.code in ("in-flight", "not-done"):
                await asyncio.sleep(0.005)
                answer = await self.retry(key)
        return answer
