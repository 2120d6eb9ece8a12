"""Cancelled at any await, once and again: endpoints that claim themselves lose, leak and run twice as little.

The scenes and the cuts are those of `tests/faults/test_cancellation.py`.  Here they are played in an
application of FastAPI's, with a dependency before the endpoint and after it, and a middleware around it that
runs it in a task of its own.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import product
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect

from retrysafe import NotDone
from retrysafe.asgi.types import App, Connection, Receive, Send
from retrysafe.fastapi import idempotent, protect
from retrysafe.policy import Options
from retrysafe.stores.contract import Store
from retrysafe.stores.memory import MemoryStore
from retrysafe.testing import ManualClock
from tests.faults.scalpel import Moment
from tests.faults.stage import SCENES, Scene, Shop, Stage
from tests.faults.test_cancellation import (
    KNIVES,
    Knife,
    assert_no_surprise,
    cut_everywhere,
    nothing_left_behind,
)
from tests.faults.wire import Deliberate, Wire, fresh

LONG = "RETRYSAFE_LONG" in os.environ


def _key(request: Request) -> str:
    return request.headers["idempotency-key"]


class Returns:
    """Counts as returned what the whole application has returned from, and not what was cancelled."""

    def __init__(self, app: App, shop: Shop) -> None:
        self._app = app
        self._shop = shop

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._count(scope)
            raise
        self._count(scope)

    def _count(self, scope: Connection) -> None:
        if scope["type"] == "http":
            key = dict(scope["headers"])[b"idempotency-key"].decode()
            self._shop.returned[key] = self._shop.begun[key]


async def _ask(request: Request) -> AsyncIterator[None]:
    """Authentication that waits, reads a large body itself, and has something to do at the end."""
    await asyncio.sleep(0)
    if request.url.path == "/upload":
        await request.body()
    yield
    await asyncio.sleep(0)


class HeldStage(Stage):
    """The same shop with endpoints that claim."""

    def __init__(self, store: Store, clock: ManualClock, scene: Scene, *, in_a_task: bool) -> None:
        super().__init__(store, clock, scene)
        self.api = FastAPI()
        protect(self.api, self.guard)
        if in_a_task:
            self.api.add_middleware(BaseHTTPMiddleware, dispatch=_pass_on)
        self.api.add_middleware(Returns, shop=self.shop)  # around it
        options: Options = {"background": "after"} if scene.path == "/background" else {}
        endpoint = idempotent(self.guard, **options)(self._endpoint)
        self.api.post(scene.path, response_model=None)(endpoint)
        self.app = self.api  # type: ignore[assignment]  # both are applications

    async def play(self, key: str, wire: Wire) -> None:
        with suppress(ClientDisconnect):
            await super().play(key, wire)

    async def _endpoint(
        self, request: Request, tasks: BackgroundTasks, asked: Annotated[None, Depends(_ask)]
    ) -> Response:
        shop, key, path = self.shop, _key(request), request.url.path
        shop.begun[key] += 1
        if path == "/slow":
            await shop.doors[key].wait()
        await asyncio.sleep(0)
        if path == "/notdone" and shop.begun[key] == 1:
            raise NotDone
        shop.effects[key] += 1
        await asyncio.sleep(0)
        if path == "/fail":
            raise Deliberate
        if path in ("/stream", "/starlette"):
            return StreamingResponse(_chunks(), 201)
        tasks.add_task(asyncio.sleep, 0)
        return PlainTextResponse(fresh("answer"), 201)


async def _pass_on(request: Request, call_next: Any) -> Response:
    response: Response = await call_next(request)
    return response


async def _chunks() -> AsyncIterator[bytes]:
    for _ in range(4):
        await asyncio.sleep(0)
        yield b"." * 50


Cut = tuple[Knife, Moment, bool]
"""What is cut with, when, and whether the endpoint runs in a task of its own."""

SAMPLE: list[Cut] = [
    ("request twice", "pending", False),
    ("disconnect", "pending", False),
    ("everything", "done", False),
    ("request", "done", True),
]
MOMENTS: tuple[Moment, ...] = ("pending", "done")
CUTS = list(product(KNIVES, MOMENTS, (False, True))) if LONG else SAMPLE


# What Starlette's middleware starts in its task may be cancelled, with the loop, before it has begun.
@pytest.mark.filterwarnings("ignore:coroutine 'BaseHTTPMiddleware")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <coroutine object BaseHTTPMiddleware")
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: f"{cut[0]}, {cut[1]}{', in a task' if cut[2] else ''}")
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_cut_at_every_await(caplog: pytest.LogCaptureFixture, scene: Scene, cut: Cut) -> None:
    """F27, F28, F29: wherever a request is cut off, a retry gets what was stored, or runs."""
    clock = ManualClock()
    knife, moment, in_a_task = cut
    with nothing_left_behind():
        asyncio.run(
            cut_everywhere(
                lambda: HeldStage(MemoryStore(clock), clock, scene, in_a_task=in_a_task), knife, moment
            )
        )
    assert_no_surprise(caplog)
