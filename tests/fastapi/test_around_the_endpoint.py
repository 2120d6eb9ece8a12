"""What runs beside an endpoint: dependencies with an end, background tasks, middlewares."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import PlainTextResponse, StreamingResponse

from retrysafe import current
from tests.fastapi.shop import KEY, Shop, SignedIn, order, replayed, send


def test_a_dependency_that_fails_in_its_end() -> None:
    """The commit of a `yield` dependency comes after the body: its failure is the outcome, and not a 200."""
    shop = Shop()

    def session() -> Iterator[None]:
        yield
        raise ValueError("the commit failed")

    def write(user: SignedIn, db: Annotated[None, Depends(session)]) -> str:
        shop.runs.append(1)
        return "written"

    shop.post("/write", write)
    with shop.client as client:
        first, second = send(client, "/write"), send(client, "/write")
    assert (first.status_code, second.status_code, replayed(second)) == (500, 500, True)
    assert shop.runs == [1]


def note_state(shop: Shop) -> None:
    shop.runs += [record.state for record in shop.store.open_admin().export()]


def add_task(shop: Shop, user: SignedIn, tasks: BackgroundTasks) -> str:
    tasks.add_task(note_state, shop)
    return "ok"


def in_response(shop: Shop, user: SignedIn, tasks: BackgroundTasks) -> Response:
    return PlainTextResponse("ok", background=BackgroundTask(note_state, shop))


@pytest.mark.parametrize("make", [add_task, in_response])
@pytest.mark.parametrize(("background", "state"), [("after", "completed"), ("before", "in_progress")])
def test_background_tasks(make: Any, background: Any, state: str) -> None:
    """They run once; by default when the outcome is stored, otherwise before."""
    shop = Shop()

    def endpoint(user: SignedIn, tasks: BackgroundTasks) -> Any:
        return make(shop, user, tasks)

    shop.post("/task", endpoint, background=background)
    with shop.client as client:
        first, second = send(client, "/task"), send(client, "/task")
    assert (first.status_code, replayed(second)) == (200, True)
    assert shop.runs == [state]


def test_tasks_of_dependencies() -> None:
    """Those too run for the first request alone."""
    shop = Shop()

    def note(tasks: BackgroundTasks) -> None:
        tasks.add_task(shop.runs.append, "by the dependency")

    def endpoint(user: SignedIn, noted: Annotated[None, Depends(note)]) -> str:
        return "ok"

    shop.post("/task", endpoint)
    with shop.client as client:
        assert [replayed(send(client, "/task")) for _ in range(2)] == [False, True]
    assert shop.runs == ["by the dependency"]


def test_a_task_that_fails() -> None:
    """The response was stored and sent; the failure goes to the server's log."""
    shop = Shop()

    def fail() -> None:
        raise ValueError("no")

    def endpoint(user: SignedIn, tasks: BackgroundTasks) -> str:
        tasks.add_task(fail)
        return "ok"

    shop.post("/task", endpoint)
    with shop.client as client:
        assert [send(client, "/task").status_code for _ in range(2)] == [200, 200]


def test_headers_of_middlewares_are_not_doubled() -> None:
    """A replay goes through the same middlewares: what they add is fresh, and there once."""
    shop = Shop()
    served: list[int] = []

    async def number(request: Request, call_next: Any) -> Response:
        response: Response = await call_next(request)
        served.append(1)
        response.headers.append("X-Served", str(len(served)))
        return response

    shop.app.add_middleware(BaseHTTPMiddleware, dispatch=number)
    with shop.client as client:
        first, second = order(client), order(client)
    assert replayed(second)
    assert [each.headers.get_list("x-served") for each in (first, second)] == [["1"], ["2"]]


def test_sessions() -> None:
    """A replay carries no stored cookie, and a fresh one where the session sends it."""
    shop = Shop()
    shop.app.add_middleware(SessionMiddleware, secret_key="s" * 32)

    def remember(user: SignedIn, request: Request) -> str:
        request.session["seen"] = "yes"
        return "ok"

    shop.post("/remember", remember)
    with shop.client as client:
        assert "session=" in send(client, "/remember").headers["set-cookie"]
    with shop.client as other:
        again = send(other, "/remember")
    assert replayed(again)
    assert "set-cookie" not in again.headers


@pytest.mark.parametrize("before", [True, False])
def test_compression(before: bool) -> None:
    """A compressor stands inside, in whichever order it was added: stored bytes are never compressed."""
    shop = Shop()
    if before:
        shop.app.add_middleware(GZipMiddleware, minimum_size=1)

    def long(user: SignedIn) -> str:
        return "x" * 4000

    shop.post("/long", long)
    if not before:
        shop.app.add_middleware(GZipMiddleware, minimum_size=1)
    with shop.client as client:
        first = send(client, "/long", headers={"Accept-Encoding": "gzip"})
        plain = send(client, "/long", headers={"Accept-Encoding": "identity"})
    assert first.content == plain.content == b'"' + b"x" * 4000 + b'"'
    assert "content-encoding" not in plain.headers


def test_cross_origin() -> None:
    """The origin that asks now is the one that is named, on replays too."""
    shop = Shop()
    shop.app.add_middleware(
        CORSMiddleware,
        allow_origins=["https://a.example", "https://b.example"],
        allow_headers=["Idempotency-Key"],
        expose_headers=["Idempotent-Replayed"],
    )
    with shop.client as client:
        asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        preflight = client.options("/orders", headers=asked)
        assert "idempotency-key" in preflight.headers["access-control-allow-headers"].lower()
        for origin in ("https://a.example", "https://b.example"):
            found = send(client, "/orders", json={"amount": 1}, headers={"Origin": origin})
            assert found.headers.get_list("access-control-allow-origin") == [origin]
            assert found.headers["access-control-expose-headers"] == "Idempotent-Replayed"
            assert replayed(found) == (origin == "https://b.example")


def test_what_an_endpoint_sees() -> None:
    """`current()` is there in plain functions, which run in a thread, and in coroutines."""
    shop = Shop()

    def plain(user: SignedIn) -> str:
        return current().derive("charge")

    async def awaited(user: SignedIn) -> str:
        return current().derive("charge")

    shop.post("/plain", plain)
    shop.post("/awaited", awaited)
    with shop.client as client:
        plainly = send(client, "/plain", key=KEY)
        assert len(plainly.json()) == 64
        assert len(send(client, "/awaited", key=f"{KEY}2").json()) == 64


@pytest.mark.parametrize("in_a_task", [False, True])
def test_what_a_background_task_sees(in_a_task: bool) -> None:
    """The same call, also where a middleware runs the endpoint in a task of its own."""
    shop = Shop()

    async def pass_on(request: Request, call_next: Any) -> Response:
        response: Response = await call_next(request)
        return response

    def note() -> None:
        shop.runs.append(current().derive("mail"))

    def endpoint(user: SignedIn, tasks: BackgroundTasks) -> str:
        tasks.add_task(note)
        return current().derive("mail")

    if in_a_task:
        shop.app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    shop.post("/noted", endpoint)
    with shop.client as client:
        assert [send(client, "/noted").json()] == shop.runs


def test_a_stream_beyond_the_limit() -> None:
    """It flows, and its retry gets a tombstone; one below the limit is stored whole."""
    shop = Shop()

    async def stream(user: SignedIn, pieces: int) -> StreamingResponse:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(pieces):
                yield b"x" * 100

        shop.runs.append(pieces)
        return StreamingResponse(chunks())

    shop.post("/stream", stream, max_response=1000)
    with shop.client as client:
        small, again = (send(client, "/stream?pieces=5") for _ in range(2))
        assert (small.content, again.content, replayed(again)) == (b"x" * 500, b"x" * 500, True)
        large, omitted = (send(client, "/stream?pieces=50", key=f"{KEY}2") for _ in range(2))
    assert (len(large.content), omitted.content, replayed(omitted)) == (5000, b"", True)
    assert omitted.headers["idempotency-body"] == "omitted"
    assert shop.runs == [5, 50]
