"""The service as a FastAPI application: its endpoints claim, after the dependency that authenticates.

From the outside in: the holder of `protect`, CORS, a compressor, authentication as a dependency, validation,
and the endpoints.  All of this stands before a claim.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.background import BackgroundTasks
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from retrysafe import Guard
from retrysafe.fastapi import idempotent, protect
from retrysafe.policy import Options
from retrysafe.testing.reference.cors import ALLOWED, EXPOSED, METHODS
from retrysafe.testing.reference.principals import admit, signed_in
from retrysafe.testing.reference.routes import ROUTES, Route
from retrysafe.testing.reference.service import Broken, Call, Reply, Service, Stream

Endpoint = Callable[[Request], Awaitable[Response]]


def build(service: Service, guard: Guard) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        service.journal.open()
        yield
        await asyncio.to_thread(service.journal.close)

    app = FastAPI(lifespan=lifespan, dependencies=[Depends(_authenticate)])
    protect(app, guard)
    app.add_middleware(GZipMiddleware)
    app.add_middleware(
        CORSMiddleware,
        allow_origin_regex=".*",
        allow_methods=METHODS.split(", "),
        allow_headers=ALLOWED.split(", "),
        expose_headers=EXPOSED.split(", "),
    )
    for route in ROUTES:
        endpoint = _validated(service, route) if route.path == "/validated" else _endpoint(service, route)
        methods = ["GET", "HEAD"] if route.method == "GET" else [route.method]
        if route.method != "GET":
            options: Options = {"scope": signed_in} if route.path == "/private" else {}
            endpoint = idempotent(guard, **options)(endpoint)
        app.add_api_route(route.path, endpoint, methods=methods, response_model=None)
    for path in {route.path for route in ROUTES}:
        app.add_api_route(path, _allowed(path), methods=["OPTIONS"], include_in_schema=False)
    return app


def _allowed(path: str) -> Callable[[], Response]:
    methods = sorted({route.method for route in ROUTES if route.path == path})
    return lambda: Response(status_code=204, headers={"allow": ", ".join([*methods, "OPTIONS"])})


def _authenticate(request: Request) -> None:
    given = request.headers.getlist("authorization")
    # Two credentials are two people.
    denied = admit(given[0].encode("latin-1") if len(given) == 1 else b"") if given else None
    if denied is not None:
        headers = {"www-authenticate": 'Bearer realm="reference"'} if denied.status == 401 else None
        raise HTTPException(denied.status, denied.reason, headers)


def _endpoint(service: Service, route: Route) -> Callable[..., Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await _serve(service, route, request)

    return endpoint


class Amount(BaseModel):
    amount: Annotated[int, Field(gt=0, strict=True)]
    label: str = "-"


def _validated(service: Service, route: Route) -> Callable[..., Awaitable[Response]]:
    async def validated(request: Request, amount: Amount) -> Response:
        assert amount.amount > 0, "FastAPI has seen to it"
        return await _serve(service, route, request)

    return validated


async def _serve(service: Service, route: Route, request: Request) -> Response:
    call = Call(
        dict(request.query_params),
        request.headers.get("content-type", ""),
        await request.body(),
        next(iter(request.path_params.values()), ""),
    )
    if route.method != "GET":
        service.journal.begin(call.label)
    if route.waits:
        await asyncio.sleep(call.pause)
    # In a thread, because an effect waits for the disk or the database; the context goes along.
    match await asyncio.to_thread(route.do, service, call):
        case Reply() as reply:
            return _respond(reply, call)
        case Stream() as stream:
            response = StreamingResponse(_chunks(stream))
            response.raw_headers = _encoded(stream.headers)
            return response


def _respond(reply: Reply, call: Call) -> Response:
    response = Response(reply.body, reply.status)
    length = [pair for pair in response.raw_headers if pair[0] == b"content-length"]
    response.raw_headers = [*_encoded(reply.headers), *length]
    afterwards = reply.afterwards
    if afterwards is not None:
        tasks = BackgroundTasks()
        tasks.add_task(asyncio.sleep, call.pause)
        tasks.add_task(afterwards)
        response.background = tasks
    return response


async def _chunks(stream: Stream) -> AsyncIterator[bytes]:
    for number, chunk in enumerate(stream.chunks):
        if number:
            await asyncio.sleep(stream.pause)
        yield chunk
    if stream.breaks:
        raise Broken("the stream failed half-way")


def _encoded(headers: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
