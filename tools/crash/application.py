"""The application under test: it takes orders.

In transactional mode an order is two rows and a response, and either all three are there or none; in the
other modes it is an effect outside, which nothing takes back.  An order is a request that a middleware
guards; or it reaches a server without one, which calls an operation with its key (`operations.py`); or it is
an event that is delivered (`deliveries.py`), and in some modes a worker handles it (`payloads.py`).
"""

import asyncio
import os
import random
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from retrysafe import Guard, NotDone, scopes
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import App
from retrysafe.starlette import protect
from tools.crash import deliveries, operations, payloads
from tools.crash.clients import marks
from tools.crash.handlers import AsyncHandlers, Handlers, Order, Outside, OutsideAsync
from tools.crash.journal import Journal
from tools.crash.modes import EFFECTS, MAX_RESPONSE, TRANSACTIONAL, WITH_WORKERS, Door, Mode
from tools.crash.senders import EVENT
from tools.crash.targets import Target
from tools.crash.traps import Trapped

FLOWS = (0.1, 0.3)
"""Seconds between the first bytes of a large response and its last, at least and at most: time for the
database to be taken away in."""


Endpoint = Callable[[Request], Response] | Callable[[Request], Awaitable[Response]]


def build(
    target: type[Target],
    url: str,
    way: str,
    mode: Mode,
    door: Door,
    lease: float,
    journal: Journal,
    folder: Path,
) -> tuple[App, Guard]:
    """`folder` is for what the processes of a round have in common."""
    guard = Guard(
        target.open(url, way),
        scope=(lambda _: "crash") if door == "request" else scopes.service("crash"),
        effects=EFFECTS[mode],
        lease=lease,
        max_response=MAX_RESPONSE,
        # Every other worker lets duplicates wait, so that a wait also ends with the death of the first one.
        in_flight="wait" if os.getpid() % 2 else "reject",
        wait_for=2 * lease,
    )
    handlers: Handlers
    if mode in TRANSACTIONAL:
        handlers = target.handlers(guard, url, way)
    elif way.endswith("async"):
        handlers = OutsideAsync(journal)
    else:
        handlers = Outside(journal)

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncGenerator[None]:
        async with handlers.lifespan():
            yield

    if door == "callback":
        receipts, endpoint = deliveries.receiving(guard, handlers, mode)
        events = Starlette(routes=[Route("/events", endpoint, methods=["POST"])], lifespan=lifespan)
        protect(events, guard)
        if mode in WITH_WORKERS:
            payloads.have_some_work(receipts, handlers, journal, folder)
        return Trapped(events, journal, EVENT.lower().encode()), guard
    endpoint = _handling(handlers) if door == "request" else operations.calling(guard, handlers, mode)
    app: App = Starlette(routes=[Route("/orders", endpoint, methods=["POST"])], lifespan=lifespan)
    return Trapped(Middleware(app, guard) if door == "request" else app, journal), guard


def _handling(handlers: Handlers) -> Endpoint:
    """Take an order by a request that a middleware guards."""
    if isinstance(handlers, AsyncHandlers):

        async def place_async(request: Request) -> Response:
            order = _order(request)
            await handlers.write(order)
            return respond(request, order.id)

        return place_async

    def place(request: Request) -> Response:
        order = _order(request)
        handlers.write(order)
        return respond(request, order.id)

    return place


def _order(request: Request) -> Order:
    return Order(operations.key_of(request), uuid.uuid4().hex, request.headers.get("Ending", ""))


def respond(request: Request, id: str) -> Response:
    """The response of a handler: it depends on the ending that a request asks for, by a header that is not
    part of its fingerprint."""
    match request.headers.get("Ending", ""):
        case "return 500":
            return JSONResponse({"sorry": id}, 500)
        case "return 429":
            return JSONResponse({"sorry": id}, 429)
        case "raise":
            raise operations.Deliberate
        case "not done":
            raise NotDone
        case "large":
            return _marked(StreamingResponse(_pieces(id), 201, media_type="application/json"), id)
        case _:
            return _marked(JSONResponse({"id": id}, 201), id)


def _marked(response: Response, id: str) -> Response:
    for name, value in marks(id):
        response.headers.append(name, value)
    return response


async def _pieces(id: str) -> AsyncIterator[str]:
    yield f'{{"id": "{id}", "padding": "{"x" * MAX_RESPONSE}'
    await asyncio.sleep(random.uniform(*FLOWS))
    yield '"}'
