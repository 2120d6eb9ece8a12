"""One receiver in each framework, and what its tests deliver to it.

What is handled, and how, is up to a test (`does`): the same function of an event in all frameworks, plain or
in a coroutine function.
"""

import asyncio
import json
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event as Flag
from typing import Any, NamedTuple

import fastapi
import flask
import starlette.exceptions
import starlette.responses
import starlette.routing
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.testclient import TestClient

from retrysafe import Guard, scopes
from retrysafe.callbacks import Receipt, Receipts, receipts
from retrysafe.fastapi import protect as protect_fastapi
from retrysafe.flask import Retrysafe
from retrysafe.starlette import protect as protect_starlette
from retrysafe.stores.memory import MemoryStore
from retrysafe.testing import ManualClock

FRAMEWORKS = ("fastapi", "starlette", "flask")
KINDS = (*FRAMEWORKS, *(f"{framework} async" for framework in FRAMEWORKS))


class JobFinished(BaseModel):
    callback_id: Any = None
    run_id: str = "run-7"
    status: str = "success"
    result_uri: str = "s3://results/7"


def finished(id: object = "c-1", **fields: object) -> dict[str, object]:
    return {"callback_id": id, "run_id": "run-7", "status": "success", **fields}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """Of a problem."""
        assert self.headers["content-type"] == "application/problem+json"
        return self.json()["code"]

    @property
    def is_duplicate(self) -> bool:
        return self.status == 200 and self.json()["idempotent_replayed"] is True


class Service:
    """An application with one endpoint for deliveries, and whatever a test adds to it.

    `options` are those of its receipts.
    """

    def __init__(
        self,
        kind: str,
        *,
        store: Any = None,
        guard: Mapping[str, Any] | None = None,
        event: Any = JobFinished,
        path: str = "/callbacks",
        **options: Any,
    ) -> None:
        self.framework, _, asynchronous = kind.partition(" ")
        self.is_async = bool(asynchronous)
        self.clock = ManualClock(1_700_000_000.0)
        self.store = MemoryStore(clock=self.clock) if store is None else store
        self.events: list[Any] = []
        said: dict[str, Any] = {"scope": scopes.public(), **(guard or {})}
        self.guard = Guard(self.store, on_event=self.events.append, **said)
        self.handled: list[Any] = []
        self.does: Callable[[Any], Any] = lambda _: None
        self.app = self.new_app()
        self.protect(self.app, self.guard)
        if "webhook" not in options:
            options.setdefault("source", "jobs")
        self.receipts: Receipts[Any] = receipts(self.guard, **options)
        self.endpoint = self.take(path, self.receipts, event)

    # --- its application

    def new_app(self) -> Any:
        match self.framework:
            case "fastapi":
                return fastapi.FastAPI()
            case "starlette":
                return Starlette()
            case _:
                return flask.Flask("receiver")

    def protect(self, app: Any, guard: Guard) -> None:
        match self.framework:
            case "fastapi":
                protect_fastapi(app, guard)
            case "starlette":
                protect_starlette(app, guard)
            case _:
                Retrysafe(guard).init_app(app)

    def take(self, path: str, found: Receipts[Any], event: Any = JobFinished, app: Any = None) -> Any:
        """One more endpoint for deliveries."""
        decorated = self.decorate(found, self.function(event))
        self.add(path, decorated, app=app)
        return decorated

    def decorate(self, found: Receipts[Any], function: Callable[..., Any]) -> Callable[..., Any]:
        decorated: Callable[..., Any] = getattr(found, self.framework)(function)
        return decorated

    def function(self, kind: Any) -> Callable[..., Any]:
        def handle(event: Any) -> Any:
            self.handled.append(event)
            return self.does(event)

        async def handle_async(event: Any) -> Any:
            self.handled.append(event)
            return await asyncio.to_thread(self.does, event)

        function: Callable[..., Any] = handle_async if self.is_async else handle
        # As most have it: no type of a response, from which FastAPI would make a schema.
        function.__annotations__ = {"event": kind}
        return function

    def add(
        self, path: str, function: Callable[..., Any], *methods: str, app: Any = None, name: str | None = None
    ) -> None:
        app = self.app if app is None else app
        methods = methods or ("POST",)
        match self.framework:
            case "fastapi":
                app.add_api_route(path, function, methods=list(methods))
            case "starlette":
                app.router.routes.append(starlette.routing.Route(path, function, methods=list(methods)))
            case _:
                app.add_url_rule(
                    path, name or f"{'-'.join(methods)} {path}".replace(".", ""), function, methods=methods
                )

    # --- what a handler does in the words of its framework

    def response(self, status: int, text: str = "") -> Any:
        """One that it returns."""
        match self.framework:
            case "fastapi":
                return fastapi.Response(text, status)
            case "starlette":
                return starlette.responses.Response(text, status)
            case _:
                return text, status

    def refusal(self, status: int) -> Exception:
        """One that it raises."""
        match self.framework:
            case "fastapi":
                return fastapi.HTTPException(status)
            case "starlette":
                return starlette.exceptions.HTTPException(status)
            case _:
                try:
                    flask.abort(status)
                except Exception as error:  # noqa: BLE001 - it is what is asked for
                    return error

    # --- deliveries

    def post(
        self,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        path: str = "/callbacks",
        method: str = "POST",
        app: Any = None,
        raises: bool = False,
    ) -> Reply:
        """Deliver: bytes as they are, anything else as JSON.  `raises` what it raises."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        app = self.app if app is None else app
        if self.framework == "flask":
            app.testing = raises
            found = app.test_client().open(path, method=method, data=body, headers=sent)
            fields = {name.lower(): value for name, value in found.headers.items()}
            return Reply(found.status_code, fields, found.get_data())
        reply = TestClient(app, raise_server_exceptions=raises).request(
            method, path, content=body, headers=sent, follow_redirects=False
        )
        return Reply(reply.status_code, {**reply.headers}, reply.content)

    @contextmanager
    def paused(self, payload: Any, headers: Mapping[str, str] | None = None) -> Generator["Future[Reply]"]:
        """A delivery that is being handled; its reply is there when the block is left."""
        begun, go_on, before = Flag(), Flag(), self.does

        def wait(event: Any) -> Any:
            begun.set()
            assert go_on.wait(30)
            return before(event)

        self.does = wait
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(self.post, payload, headers)
            try:
                while not begun.wait(0.01):
                    assert not reply.done(), reply.result()
                self.does = before
                yield reply
            finally:
                go_on.set()

    # --- what is known of it

    def records(self) -> int:
        return len(list(self.store.open_admin().export()))

    def receipt(self, id: str = "c-1") -> Receipt | None:
        return self.receipts.find(id)

    def verdicts(self) -> list[str]:
        return [event.verdict for event in self.events]
