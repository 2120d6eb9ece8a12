"""The application under test: it takes orders.

In transactional mode an order is two rows and a response, and either all three are there or none; in the
other modes it is an effect outside, which nothing takes back.  Handlers run in threads or in the event loop.
"""

import asyncio
import os
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from retrysafe import Guard, NotDone
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import App
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker
from tools.crash.audit import TABLES
from tools.crash.clients import marks
from tools.crash.journal import Journal
from tools.crash.modes import EFFECTS, MAX_RESPONSE, Mode
from tools.crash.targets import Target
from tools.crash.traps import Trapped, reach, serial

_ROW = "INSERT INTO {} (key, id) VALUES (:key, :id)"

LASTS = 0.005
"""Seconds, at most, that a handler takes whose effects are outside: time to be interrupted in."""

FLOWS = (0.1, 0.3)
"""Seconds between the first bytes of a large response and its last, at least and at most: time for the
database to be taken away in."""


class Deliberate(Exception):
    """Raised by a handler on purpose."""


def build(
    target: type[Target], url: str, way: str, mode: Mode, lease: float, journal: Journal
) -> tuple[App, Guard]:
    guard = Guard(
        target.open(url, way),
        scope=lambda _: "crash",
        effects=EFFECTS[mode],
        lease=lease,
        max_response=MAX_RESPONSE,
        # Every other worker lets duplicates wait, so that a wait also ends with the death of the first one.
        in_flight="wait" if os.getpid() % 2 else "reject",
        wait_for=2 * lease,
    )
    handlers: Handlers
    if mode == "tx":
        handlers = target.handlers(guard, url, way)
    elif way.endswith("async"):
        handlers = OutsideAsync(journal)
    else:
        handlers = Outside(journal)

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncGenerator[None]:
        async with handlers.lifespan():
            yield

    app = Starlette(routes=[Route("/orders", handlers.endpoint(), methods=["POST"])], lifespan=lifespan)
    return Trapped(Middleware(app, guard), journal), guard


class Handlers(Protocol):
    def lifespan(self) -> AbstractAsyncContextManager[object]:
        """Around the life of a worker: where pools are opened."""
        ...

    def endpoint(self) -> Callable[[Request], Awaitable[Response] | Response]: ...


class WithoutLifespan:
    """Most of them have nothing to open."""

    def lifespan(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()


def key_of(request: Request) -> str:
    return request.headers["Idempotency-Key"].strip('"')


def insert(table: str, mark: str) -> str:
    return f"INSERT INTO {table} (key, id) VALUES ({mark}, {mark})"


def respond(request: Request, id: str) -> Response:
    """The response of a handler: it depends on the ending that a request asks for, by a header that is not
    part of its fingerprint."""
    match request.headers.get("Ending", ""):
        case "return 500":
            return JSONResponse({"sorry": id}, 500)
        case "return 429":
            return JSONResponse({"sorry": id}, 429)
        case "raise":
            raise Deliberate
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


class Blocking(WithoutLifespan):
    """Joined connections, in threads."""

    def __init__(self, connection: Callable[[], AbstractContextManager[Any]], mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def endpoint(self) -> Callable[[Request], Response]:
        def place(request: Request) -> Response:
            id, key = uuid.uuid4().hex, key_of(request)
            for table in TABLES:
                with self._connection() as connection:
                    connection.execute(insert(table, self._mark), (key, id))
                reach("after", f"Write {table}")
            return respond(request, id)

        return place


class Sessions(WithoutLifespan):
    """In threads, with a session of SQLAlchemy's that is committed after each write."""

    def __init__(self, guard: Guard) -> None:
        self._sessions = sessionmaker(guard)

    def endpoint(self) -> Callable[[Request], Response]:
        def place(request: Request) -> Response:
            id, key = uuid.uuid4().hex, key_of(request)
            with self._sessions() as session:
                for table in TABLES:
                    session.execute(text(_ROW.format(table)), {"key": key, "id": id})
                    session.commit()
                    reach("after", f"Write {table}")
            return respond(request, id)

        return place


class SessionsAsync(WithoutLifespan):
    """The same in the event loop."""

    def __init__(self, guard: Guard) -> None:
        self._sessions = async_sessionmaker(guard)

    def endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        async def place(request: Request) -> Response:
            id, key = uuid.uuid4().hex, key_of(request)
            async with self._sessions() as session:
                for table in TABLES:
                    await session.execute(text(_ROW.format(table)), {"key": key, "id": id})
                    await session.commit()
                    reach("after", f"Write {table}")
            return respond(request, id)

        return place


def _execute(request: Request, journal: Journal) -> str:
    id = uuid.uuid4().hex
    reach("before", "Effect")
    journal.write("executed", serial(), key_of(request), id, request.headers.get("Ending", ""))
    reach("after", "Effect")
    return id


class Outside(WithoutLifespan):
    """Effects that no transaction takes back: a line in the journal, whatever becomes of the request."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def endpoint(self) -> Callable[[Request], Response]:
        def place(request: Request) -> Response:
            id = _execute(request, self._journal)
            time.sleep(random.uniform(0, LASTS))
            return respond(request, id)

        return place


class OutsideAsync(WithoutLifespan):
    """The same in the event loop."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        async def place(request: Request) -> Response:
            id = _execute(request, self._journal)
            await asyncio.sleep(random.uniform(0, LASTS))
            return respond(request, id)

        return place
