"""What breaks while an event is handled: the store, the client, the server, the response, what follows it."""

import asyncio
from collections.abc import Iterator
from functools import wraps
from threading import Event
from typing import Annotated, Any

import fastapi
import flask
import pytest
from fastapi import BackgroundTasks
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from retrysafe import Guard, scopes
from retrysafe._core.model import Claim, Final, Reservation
from retrysafe.callbacks import receipts
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.memory import MemoryStore
from retrysafe.testing import ManualClock
from tests.callbacks.http.receiving import JobFinished, Service, finished


class Flaky(MemoryStore):
    """A store that is down where a test says so."""

    claims_fail = False
    ends_fail = False

    def reserve(self, claim: Claim) -> Reservation:
        if self.claims_fail:
            raise StoreUnavailable("the store is down")
        return super().reserve(claim)

    def finish(self, claim: Claim, final: Final) -> bool:
        if self.ends_fail:
            raise StoreUnavailable("the store is down")
        return super().finish(claim, final)


def test_the_store_is_down_at_the_claim(kind: str) -> None:
    """503, and it is not handled: nothing would know."""
    store = Flaky()
    service = Service(kind, store=store)
    store.claims_fail = True
    refused = service.post(finished())
    assert (refused.status, refused.code, service.handled) == (503, "store-unavailable", [])
    assert int(refused.headers["retry-after"]) >= 1
    store.claims_fail = False
    assert service.post(finished()).status == 200


def test_it_is_handled_without_a_store_if_that_is_wanted(framework: str) -> None:
    """Marked, so that it can be seen."""
    store = Flaky()
    service = Service(framework, store=store, store_down="run")
    store.claims_fail = True
    reply = service.post(finished())
    assert (reply.status, reply.headers["idempotency-stored"]) == (200, "false")


def test_the_store_is_down_at_the_end(kind: str) -> None:
    """Handled, and 503 all the same: no record says so, and the next delivery handles it again."""
    clock = ManualClock()
    store = Flaky(clock=clock)
    service = Service(kind, store=store, lease=0.2)
    store.ends_fail = True
    refused = service.post(finished())
    assert (refused.status, refused.code) == (503, "store-unavailable")
    assert len(service.handled) == 1
    store.ends_fail = False
    assert service.post(finished()).code == "in-flight"  # until its lease ends
    clock.elapse(1)
    assert service.post(finished()).json()["idempotent_replayed"] is False
    assert service.post(finished()).is_duplicate
    assert len(service.handled) == 2


def test_a_large_response(kind: str) -> None:
    """It is sent whole, and not before it is known that the event was handled."""
    service = Service(kind)
    text = "x" * 3_000_000
    service.does = lambda _: service.response(200, text)
    assert service.post(finished()).body == text.encode()
    assert service.post(finished()).is_duplicate


def fail(service: Service) -> None:
    """Deliver something whose response cannot be brought to its end: a 500, after which a server logs why."""
    if service.framework == "flask":
        with pytest.raises(RuntimeError):
            service.post(finished())
    else:
        assert service.post(finished()).status == 500
    receipt = service.receipt()
    assert receipt is not None
    assert receipt.state == "failed"


def test_streams_of_events_are_refused(framework: str) -> None:
    """They would leave before; the message says what to do."""
    service = Service(framework)
    if framework == "flask":
        service.does = lambda _: flask.Response(iter(["data: 1\n\n"]), mimetype="text/event-stream")
    else:
        service.does = lambda _: StreamingResponse(iter(["data: 1\n\n"]), media_type="text/event-stream")
    with pytest.raises(ValueError, match="known to have been handled: respond with something"):
        service.post(finished(), raises=True)
    receipt = service.receipt()
    assert receipt is not None
    assert receipt.state == "failed"


def test_a_stream_that_breaks(framework: str) -> None:
    """Nothing of it has left: a 500, and the event is handled again."""
    service = Service(framework)

    def pieces() -> Iterator[str]:
        yield "begun"
        raise RuntimeError("half way")

    service.does = lambda _: (flask.Response if framework == "flask" else StreamingResponse)(pieces())
    fail(service)
    service.does = lambda _: None
    assert service.post(finished()).status == 200
    assert len(service.handled) == 2


# --- after the response


@pytest.mark.parametrize("background", ["before", "after"])
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "flask"])
def test_background_tasks(framework: str, background: str) -> None:
    """They belong to the event, whatever the guard says of requests: one that fails fails the attempt."""
    service = Service(framework, guard={"background": background})
    ran: list[str] = []

    def task() -> None:
        receipt = service.receipt()
        assert receipt is not None
        ran.append(receipt.state)
        if len(ran) == 1:
            raise RuntimeError("the task fails")

    def respond(_: object) -> Any:
        if framework == "flask":
            response = flask.make_response("done")
            response.call_on_close(task)
            return response
        return PlainTextResponse("done", background=BackgroundTask(task))

    service.does = respond
    fail(service)
    assert service.post(finished()).body == b"done"
    assert service.post(finished()).is_duplicate
    assert ran == ["in_progress", "in_progress"]


def test_tasks_that_fastapi_injects() -> None:
    service, ran = Service("fastapi"), list[str]()

    def note() -> None:
        receipt = service.receipt()
        ran.append(receipt.state if receipt else "none")

    def handle(event: JobFinished, tasks: BackgroundTasks) -> None:
        tasks.add_task(note)

    service.add("/tasks", service.decorate(service.receipts, handle))
    assert service.post(finished(), path="/tasks").status == 200
    assert ran == ["in_progress"]


def test_a_dependency_that_fails_after_the_response() -> None:
    """As one that commits there: then the event was not handled."""
    service, state = Service("fastapi"), {"fails": True}

    def database() -> Iterator[str]:
        yield "session"
        receipt = service.receipt()
        assert receipt is not None
        assert receipt.state == "in_progress"
        if state["fails"]:
            raise RuntimeError("the commit fails")

    def handle(event: JobFinished, db: Annotated[str, fastapi.Depends(database)]) -> None: ...

    service.add("/yield", service.decorate(service.receipts, handle))
    assert service.post(finished(), path="/yield").status == 500
    receipt = service.receipt()
    assert receipt is not None
    assert (receipt.state, "the commit fails" in receipt.details["error"]) == ("failed", True)
    state["fails"] = False
    assert service.post(finished(), path="/yield").json()["idempotent_replayed"] is False


# --- clients and servers, by raw ASGI


class Raw:
    """One delivery as a server brings it, which can go or be cancelled in the middle."""

    def __init__(self, app: Any, body: bytes) -> None:
        self.app, self.sent, self.gone = app, list[Any](), asyncio.Event()
        self._body: bytes | None = body

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def serve(self) -> int | None:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": "/callbacks", "raw_path": b"/callbacks", "query_string": b"",
            "root_path": "", "headers": [(b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await self.app(scope, self.receive, self.send)
        return self.sent[0]["status"] if self.sent else None


class Waiting:
    """An application whose handler waits."""

    def __init__(self, framework: str) -> None:
        self.guard = Guard(MemoryStore(), scope=scopes.public())
        self.jobs = receipts(self.guard, source="jobs")
        self.begun, self.go_on, self.runs = asyncio.Event(), asyncio.Event(), 0
        service = Service(framework)
        self.app = service.new_app()
        service.protect(self.app, self.guard)

        async def handle(event: JobFinished) -> None:
            self.runs += 1
            self.begun.set()
            await self.go_on.wait()

        service.add("/callbacks", service.decorate(self.jobs, handle), app=self.app)

    def raw(self) -> Raw:
        return Raw(self.app, b'{"callback_id": "c-1"}')


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
@pytest.mark.parametrize("how", ["disconnects", "is cancelled"])
def test_its_client_is_gone(framework: str, how: str) -> None:
    """The handler goes on, its outcome is stored, and the next delivery is a duplicate."""

    async def scene() -> None:
        waiting = Waiting(framework)
        first = waiting.raw()
        task = asyncio.ensure_future(first.serve())
        await waiting.begun.wait()
        if how == "disconnects":
            first.gone.set()
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await waiting.raw().serve() == 503
        waiting.go_on.set()
        await asyncio.wait({task})
        assert await waiting.guard.drain_async() == 0
        waiting.guard.resume()
        again = waiting.raw()
        assert await again.serve() == 200
        assert b'"idempotent_replayed": true' in again.sent[1]["body"]
        assert waiting.runs == 1

    asyncio.run(scene())


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_cancelled_before_the_claim(framework: str) -> None:
    """While the body arrives: nothing is left."""

    async def scene() -> None:
        waiting = Waiting(framework)
        raw = waiting.raw()

        async def never() -> dict[str, Any]:
            waiting.begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        raw.receive = never  # type: ignore[method-assign]
        task = asyncio.ensure_future(raw.serve())
        await waiting.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.jobs.find("c-1") is None
        assert waiting.guard.runtime.unfinished() == 0

    asyncio.run(scene())


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_a_check_does_not_block_the_loop(framework: str) -> None:
    """A plain one may ask a database: other requests go on meanwhile."""

    async def scene() -> None:
        asked, go_on = Event(), Event()

        def check(_: object) -> bool:
            asked.set()
            return go_on.wait(30)

        service = Service(framework, check=check)
        raw = Raw(service.app, b'{"callback_id": "c-1"}')
        task = asyncio.ensure_future(raw.serve())
        await asyncio.to_thread(asked.wait)
        go_on.set()
        assert await task == 200

    asyncio.run(scene())


# --- decorators and middlewares in between


def test_asynchronous_decorators_of_flask() -> None:
    """Above ours, on the loop of their request: they await what is decorated."""
    service = Service("flask async")
    decorated = service.decorate(service.receipts, service.function(JobFinished))

    @wraps(decorated)
    async def awaited(**named: object) -> Any:
        return await decorated(**named)

    service.add("/awaited", awaited)
    for duplicate in (False, True):
        assert service.post(finished(), path="/awaited").json()["idempotent_replayed"] is duplicate
    assert len(service.handled) == 1


def test_a_middleware_that_reads_the_body() -> None:
    """Of Starlette's own kind, which runs the endpoint in a task of its own."""
    service = Service("fastapi")
    app: fastapi.FastAPI = service.app

    @app.middleware("http")
    async def look(request: fastapi.Request, call_next: Any) -> Response:
        assert await request.body()
        response: Response = await call_next(request)
        response.headers["x-looked"] = "1"
        return response

    for duplicate in (False, True):
        reply = service.post(finished())
        assert (reply.json()["idempotent_replayed"], reply.headers["x-looked"]) == (duplicate, "1")
