"""Where orders are written: how a handler reaches the database in transactional mode, and what it does in the
others, in threads or in the event loop."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from retrysafe import Guard, NotDone
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import App
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker
from tools.crash.audit import TABLES
from tools.crash.clients import marks
from tools.crash.journal import Journal
from tools.crash.modes import EFFECTS, Mode
from tools.crash.targets import Target
from tools.crash.traps import Trapped, reach, serial

_ROW = "INSERT INTO {} (key, id) VALUES (:key, :id)"

LASTS = 0.005
"""Seconds, at most, that a handler takes whose effects are outside: something to be interrupted in."""


class Deliberate(Exception):
    """Raised by a handler on purpose."""


class Desk(Protocol):
    def living(self) -> AbstractAsyncContextManager[object]:
        """Around the life of a worker: where pools are opened."""
        ...

    def endpoint(self) -> Callable[[Request], Awaitable[Response] | Response]: ...


class Homeless:
    """Most of them have nothing to open."""

    def living(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()


def key_of(request: Request) -> str:
    return request.headers["Idempotency-Key"].strip('"')


def insert(table: str, mark: str) -> str:
    return f"INSERT INTO {table} (key, id) VALUES ({mark}, {mark})"


def answer(request: Request, id: str) -> Response:
    """What a handler says: that depends on the mood that a request asks for, which is no part of its
    fingerprint."""
    match request.headers.get("Mood", ""):
        case "answer 500":
            return JSONResponse({"sorry": id}, 500)
        case "answer 429":
            return JSONResponse({"sorry": id}, 429)
        case "raise":
            raise Deliberate
        case "not done":
            raise NotDone
        case _:
            response = JSONResponse({"id": id}, 201)
            for name, value in marks(id):
                response.headers.append(name, value)
            return response


class Blocking(Homeless):
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
            return answer(request, id)

        return place


class Sessions(Homeless):
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
            return answer(request, id)

        return place


class AwaitedSessions(Homeless):
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
            return answer(request, id)

        return place


def _do(request: Request, journal: Journal) -> str:
    id = uuid.uuid4().hex
    reach("before", "Effect")
    journal.write("executed", serial(), key_of(request), id, request.headers.get("Mood", ""))
    reach("after", "Effect")
    return id


class Outside(Homeless):
    """Effects that no transaction takes back: a line in the journal, whatever becomes of the request."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def endpoint(self) -> Callable[[Request], Response]:
        def place(request: Request) -> Response:
            id = _do(request, self._journal)
            time.sleep(random.uniform(0, LASTS))
            return answer(request, id)

        return place


class AwaitedOutside(Homeless):
    """The same in the event loop."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        async def place(request: Request) -> Response:
            id = _do(request, self._journal)
            await asyncio.sleep(random.uniform(0, LASTS))
            return answer(request, id)

        return place


def build(
    target: type[Target], url: str, way: str, mode: Mode, lease: float, journal: Journal
) -> tuple[App, Guard]:
    guard = Guard(target.open(url, way), scope=lambda _: "crash", effects=EFFECTS[mode], lease=lease)
    desk: Desk
    if mode == "tx":
        desk = target.desk(guard, url, way)
    elif way.endswith("async"):
        desk = AwaitedOutside(journal)
    else:
        desk = Outside(journal)

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncGenerator[None]:
        async with desk.living():
            yield

    shop = Starlette(routes=[Route("/orders", desk.endpoint(), methods=["POST"])], lifespan=lifespan)
    return Trapped(Middleware(shop, guard), journal), guard
