"""Where endpoints may stand: mounts, prefixes, classes, several of them, and beside endpoints with keys."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import fastapi
import flask
import flask.views
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route, Router
from starlette.websockets import WebSocket

import retrysafe.fastapi
import retrysafe.flask
import retrysafe.starlette
from retrysafe import Guard, asgi, scopes
from retrysafe.callbacks import Payload, receipts, webhooks
from retrysafe.coverage import examine
from retrysafe.errors import ConfigurationError
from retrysafe.flask import Retrysafe
from retrysafe.testing import assert_protected
from tests.callbacks.http.receiving import JobFinished, Service, finished

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def idempotent(framework: str) -> Callable[..., Any]:
    module: Any = {
        "fastapi": retrysafe.fastapi,
        "starlette": retrysafe.starlette,
        "flask": retrysafe.flask,
    }[framework]
    found: Callable[..., Any] = module.idempotent
    return found


def plain(service: Service, runs: list[int]) -> Callable[..., Any]:
    """An endpoint that takes no deliveries."""
    if service.framework == "starlette":

        async def endpoint(request: Request) -> PlainTextResponse:
            runs.append(1)
            return PlainTextResponse(f"run {len(runs)}")

        return endpoint

    def view() -> str:
        runs.append(1)
        return f"run {len(runs)}"

    return view


# --- places


def test_two_endpoints_of_one_source(kind: str) -> None:
    """One event, whichever address it is delivered to."""
    service = Service(kind)
    service.take("/second", service.receipts)
    assert service.post(finished()).status == 200
    assert service.post(finished(), path="/second").is_duplicate


def test_two_receipts_on_one_guard(kind: str) -> None:
    service = Service(kind)
    other = receipts(service.guard, source="other jobs")
    service.take("/other", other)
    assert service.post(finished()).status == 200
    assert service.post(finished(), path="/other").json()["idempotent_replayed"] is False
    assert service.post(finished(), path="/other").is_duplicate


def test_path_parameters(framework: str) -> None:
    """FastAPI and Flask pass them by name, Starlette has them in its request."""
    service = Service(framework)
    seen: list[tuple[str, str]] = []

    def handle(event: JobFinished, tenant: str) -> None:
        seen.append((event.run_id, tenant))

    def handle_request(event: JobFinished, request: Request) -> None:
        seen.append((event.run_id, request.path_params["tenant"]))

    decorated = service.decorate(service.receipts, handle_request if framework == "starlette" else handle)
    service.add("/of/<tenant>/jobs" if framework == "flask" else "/of/{tenant}/jobs", decorated)
    assert service.post(finished(), path="/of/acme/jobs").status == 200
    assert service.post(finished(), path="/of/acme/jobs").is_duplicate
    assert seen == [("run-7", "acme")]
    assert next(event.route for event in service.events).count("tenant") == 1


def test_mounted_applications(framework: str) -> None:
    """Below a prefix, of the application that is protected."""
    service = Service(framework)
    if framework == "flask":
        blueprint = flask.Blueprint("jobs", __name__, url_prefix="/api")
        inner = flask.Blueprint("inner", __name__, url_prefix="/v1")
        inner.add_url_rule("/callbacks", "in", service.endpoint, methods=["POST"])
        blueprint.register_blueprint(inner)
        service.app.register_blueprint(blueprint)
    else:
        below = service.new_app()
        service.add("/callbacks", service.endpoint, app=below)
        service.app.mount("/api/v1", below)
    assert service.post(finished(), path="/api/v1/callbacks").status == 200
    assert service.post(finished(), path="/api/v1/callbacks").is_duplicate
    assert service.post(finished()).is_duplicate


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_a_mounted_application_that_is_protected_itself(framework: str) -> None:
    service = Service(framework)
    outside = service.new_app()
    outside.mount("/below", service.app)
    assert service.post(finished(), path="/below/callbacks", app=outside).status == 200
    assert service.post(finished(), path="/below/callbacks", app=outside).is_duplicate


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_root_path(framework: str) -> None:
    """Behind a proxy that strips a prefix, or does not."""
    service = Service(framework)
    for path in ("/callbacks", "/api/callbacks"):
        with TestClient(service.app, root_path="/api") as client:
            assert client.post(path, json=finished(path)).status_code == 200
            assert client.post(path, json=finished(path)).json()["idempotent_replayed"] is True
    assert len(service.handled) == 2


def test_one_name_in_two_parts_of_a_path() -> None:
    """Of a mount and of a route below it."""
    service = Service("starlette")
    service.app.routes.append(
        Mount("/{id}", routes=[Route("/jobs/{id}", service.endpoint, methods=["POST"])])
    )
    assert service.post(finished(), path="/a/jobs/b").status == 200
    assert service.post(finished(), path="/a/jobs/b").is_duplicate


def test_routers_of_fastapi() -> None:
    """With prefixes, included in each other, before and after the endpoint was added."""
    service = Service("fastapi")
    inner, outer = fastapi.APIRouter(prefix="/inner"), fastapi.APIRouter(prefix="/outer")
    inner.add_api_route("/callbacks", service.endpoint, methods=["POST"])
    outer.include_router(inner)
    service.app.include_router(outer, prefix="/v2")
    assert service.post(finished(), path="/v2/outer/inner/callbacks").status == 200
    assert service.post(finished(), path="/v2/outer/inner/callbacks").is_duplicate


def test_classes_of_starlette() -> None:
    service = Service("starlette")
    seen: list[object] = []

    class Callbacks(HTTPEndpoint):
        @service.receipts.starlette
        async def post(self, event: JobFinished, request: Request) -> None:
            seen.append((type(self).__name__, event.run_id, request.method))

        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("read")

    service.app.routes.append(Route("/class", Callbacks))
    assert service.post(finished(), path="/class").status == 200
    assert service.post(finished(), path="/class").is_duplicate
    assert service.post(path="/class", method="GET").body == b"read"
    assert seen == [("Callbacks", "run-7", "POST")]


def test_classes_of_flask() -> None:
    service = Service("flask")
    seen: list[object] = []

    class Callbacks(flask.views.MethodView):
        @service.receipts.flask
        def post(self, event: JobFinished, tenant: str) -> None:
            seen.append((type(self).__name__, event.run_id, tenant))

        def get(self, tenant: str) -> str:
            return "read"

    service.app.add_url_rule("/<tenant>/class", view_func=Callbacks.as_view("callbacks"))
    assert service.post(finished(), path="/acme/class").status == 200
    assert service.post(finished(), path="/acme/class").is_duplicate
    assert service.post(path="/acme/class", method="GET").body == b"read"
    assert seen == [("Callbacks", "run-7", "acme")]


def test_methods_that_are_not_for_fastapi() -> None:
    service = Service("fastapi")

    class Callbacks:
        def post(self, event: JobFinished) -> None: ...

    with pytest.raises(ConfigurationError, match="is a method"):
        service.receipts.fastapi(Callbacks.post)
    assert service.receipts.fastapi(Callbacks().post) is not None


@pytest.mark.parametrize("where", ["host", "subdomain"])
def test_hosts_of_flask(where: str) -> None:
    """The same path of two hosts: only one takes deliveries, and the other one has keys."""
    guard, runs = Guard("memory:", scope=scopes.public()), list[int]()
    app = (
        flask.Flask("receiver", host_matching=True, static_host="static.test")
        if where == "host"
        else (flask.Flask("receiver", subdomain_matching=True))
    )
    if where == "subdomain":
        app.config["SERVER_NAME"] = "test"
    Retrysafe(guard).init_app(app)
    jobs = receipts(guard, source="jobs")

    @jobs.flask
    def handle(event: JobFinished) -> None:
        runs.append(1)

    @retrysafe.flask.idempotent(guard)
    def pay() -> str:
        return "paid"

    places: tuple[dict[str, Any], dict[str, Any]] = (
        ({"host": "jobs.test"}, {"host": "pay.test"})
        if where == "host"
        else ({"subdomain": "jobs"}, {"subdomain": "pay"})
    )
    app.add_url_rule("/x", "handle", handle, methods=["POST"], **places[0])
    app.add_url_rule("/x", "pay", pay, methods=["POST"], **places[1])
    client = app.test_client()
    replies = [client.post("http://jobs.test/x", json=finished()) for _ in range(2)]
    assert [reply.get_json()["idempotent_replayed"] for reply in replies] == [False, True]
    assert client.post("http://pay.test/x").get_data() == b"paid"


def test_hosts_of_starlette() -> None:
    """Only the path is known when a request arrives: one to another host claims its key all the same."""
    service, runs = Service("starlette"), list[int]()
    guard = Guard("memory:", scope=scopes.public())
    app = Starlette()
    retrysafe.starlette.protect(app, guard)
    jobs = receipts(guard, source="jobs")
    pay = retrysafe.starlette.idempotent(guard)(plain(service, runs))
    handle = service.decorate(jobs, service.function(JobFinished))
    for host, endpoint in (("pay.test", pay), ("jobs.test", handle)):
        app.routes.append(Host(host, Router([Route("/x", endpoint, methods=["POST"])])))
    client = TestClient(app)
    replies = [client.post("http://jobs.test/x", json=finished()) for _ in range(2)]
    assert [reply.json()["idempotent_replayed"] for reply in replies] == [False, True]
    assert client.post("http://pay.test/x").text == "run 1"
    keyed = [client.post("http://pay.test/x", headers={"Idempotency-Key": KEY}) for _ in range(2)]
    assert [reply.text for reply in keyed] == ["run 2", "run 2"]
    assert keyed[1].headers["idempotent-replayed"] == "true"


def test_a_path_that_another_endpoint_has(framework: str) -> None:
    """One with keys, whose path looks like that of deliveries, keeps its rules."""
    service, runs = Service(framework), list[int]()
    required = idempotent(framework)(service.guard, required=True)(plain(service, runs))
    service.add("/in/pay", required)
    service.add("/in/free", idempotent(framework)(service.guard)(plain(service, runs)))
    name = "<name>" if framework == "flask" else "{name}"

    def handle(event: JobFinished, name: str) -> None: ...

    def handle_request(event: JobFinished, request: Request) -> None: ...

    function = handle_request if framework == "starlette" else handle
    service.add(f"/in/{name}", service.decorate(service.receipts, function))
    assert service.post(path="/in/pay").code == "key-missing"
    assert service.post(path="/in/free").status == 200
    for path in ("/in/pay", "/in/free"):
        first, second = (service.post({}, {"Idempotency-Key": KEY + path[-3:]}, path=path) for _ in range(2))
        assert first.body == second.body
        assert second.headers["idempotent-replayed"] == "true"
    assert {event.door for event in service.events} == {"request"}
    assert service.post(finished(), path="/in/jobs").status == 200
    assert service.post(finished(), path="/in/jobs").is_duplicate
    assert len(runs) == 3


# --- beside keys


@pytest.mark.parametrize("guards", [1, 2])
def test_beside_endpoints_with_keys(kind: str, guards: int) -> None:
    """In one application, on one guard or on two; a key that is sent with a delivery says nothing."""
    service, runs = Service(kind), list[int]()
    guard = service.guard
    if guards == 2:
        guard = Guard("memory:", scope=scopes.public())
        service.protect(service.app, guard)
    service.add("/pay", idempotent(service.framework)(guard, required=True)(plain(service, runs)))
    keyed = {"Idempotency-Key": KEY}
    assert [service.post({}, keyed, path="/pay").body for _ in range(2)] == [b"run 1", b"run 1"] or (
        service.framework == "fastapi"
    )
    assert len(runs) == 1
    assert service.post(path="/pay").code == "key-missing"
    assert service.post(finished(), keyed).status == 200
    assert service.post(finished()).is_duplicate
    assert service.post(finished("c-2"), keyed).json()["idempotent_replayed"] is False
    assert len(service.handled) == 2


def test_below_a_middleware_with_keys() -> None:
    """Claimed outside already: said, and not handled."""
    service = Service("starlette")
    other = Guard("memory:", scope=scopes.public())
    app = Starlette(middleware=[Middleware(asgi.Middleware, guard=other)])
    app.mount("/", service.app)
    assert service.post(finished(), app=app).status == 200
    client = TestClient(app)
    with pytest.raises(ConfigurationError, match="has claimed the key"):
        client.post("/callbacks", json=finished("c-2"), headers={"Idempotency-Key": KEY})
    assert len(service.handled) == 1


def test_a_path_that_a_middleware_changes() -> None:
    """Inside of what holds requests: said, and not handled without its receipt."""
    service = Service("starlette")

    class Strip:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            scope["path"] = scope.get("path", "").removeprefix("/old")
            await self.app(scope, receive, send)

    service.app.add_middleware(Strip)
    client = TestClient(service.app)
    with pytest.raises(ConfigurationError, match="a middleware between"):
        client.post("/old/callbacks", json=finished())
    assert service.handled == []
    assert client.post("/callbacks", json=finished()).status_code == 200


def test_other_methods(framework: str) -> None:
    """They go where the framework sends them."""
    service = Service(framework)
    service.add("/put", service.endpoint, "PUT", "PATCH")
    assert service.post(path="/callbacks", method="GET").status == 405
    assert service.post(path="/callbacks", method="OPTIONS").status in (200, 405)
    assert service.post(path="/callbacks/", method="HEAD").status in (404, 405, 307)
    assert service.post(finished(), path="/put", method="PUT").status == 200
    assert service.post(finished(), path="/put", method="PATCH").is_duplicate


def test_a_get_that_delivers(framework: str) -> None:
    """A sender may use any method that an endpoint takes; a key needs one of its own."""
    service = Service(framework)
    service.add("/get", service.endpoint, "GET")
    assert service.post(finished(), path="/get", method="GET").status == 200
    assert service.post(finished(), path="/get", method="GET").is_duplicate


def test_websockets_are_left_alone() -> None:
    service = Service("fastapi")
    app: fastapi.FastAPI = service.app

    @app.websocket("/callbacks")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    with TestClient(service.app) as client, client.websocket_connect("/callbacks") as socket:
        assert socket.receive_text() == "hello"


# --- mistakes


def test_above_the_route(framework: str) -> None:
    """The framework was given the function itself, and would handle each delivery: it is refused."""
    service = Service(framework)
    function = service.function(JobFinished)
    service.add("/above", function)
    service.decorate(service.receipts, function)
    with pytest.raises(ConfigurationError, match="/above without its receipts"):
        service.post(finished(), path="/above", raises=True)
    assert service.handled == []


def test_above_the_route_of_another_guard(framework: str) -> None:
    """It may be meant for another application; and a function may be served bare beside its endpoint."""
    service = Service(framework)
    function = service.function(JobFinished)
    other = receipts(Guard("memory:", scope=scopes.public()), source="jobs")
    service.decorate(other, function)
    if framework != "starlette":
        service.add("/bare", function)
        assert service.post(finished(), path="/bare").status in (200, 500)


@pytest.mark.parametrize("other", ["receipts", "idempotent below", "idempotent above"])
def test_two_decorators(framework: str, other: str) -> None:
    """Refused where they are written."""
    service = Service(framework)
    function = service.function(JobFinished)
    keyed = idempotent(framework)(service.guard)
    match other:
        case "receipts":
            above, below = receipts(service.guard, source="second"), service.receipts
            first = service.decorate(below, function)
            decorate = partial(service.decorate, above)
        case "idempotent below":
            first, decorate = keyed(function), partial(service.decorate, service.receipts)
        case _:
            first, decorate = service.decorate(service.receipts, function), keyed
    with pytest.raises(ConfigurationError, match="takes one of them"):
        decorate(first)


def test_not_protected(framework: str) -> None:
    """A clear error, and nothing is handled."""
    service = Service(framework)
    app = service.new_app()
    service.add("/callbacks", service.endpoint, app=app)
    with pytest.raises(ConfigurationError, match=r"application is not protected: call .*guard"):
        service.post(finished(), app=app, raises=True)
    assert service.handled == []


def test_not_through_the_application() -> None:
    service = Service("flask")
    with (
        service.app.test_request_context("/callbacks", method="POST", json=finished()),
        pytest.raises(ConfigurationError, match="test_client"),
    ):
        service.app.full_dispatch_request() if service.app.testing else service.endpoint()


@pytest.mark.parametrize(
    "function",
    [
        lambda: None,
        lambda *events: None,
        type("Handler", (), {}),
    ],
)
def test_what_is_no_handler(framework: str, function: Any) -> None:
    service = Service(framework)
    with pytest.raises(ConfigurationError):
        service.decorate(service.receipts, function)


def test_generators(framework: str) -> None:
    service = Service(framework)

    def pieces(event: JobFinished) -> Any:
        yield b"1"

    with pytest.raises(ConfigurationError, match="is a generator"):
        service.decorate(service.receipts, pieces)


def test_direct_calls(kind: str) -> None:
    """In a unit test the decorated function is the function."""
    service = Service(kind)
    service.does = lambda event: event.run_id
    event = JobFinished(run_id="run-1")
    for _ in range(2):
        called = service.endpoint(event)
        if service.is_async:
            import asyncio

            called = asyncio.run(called)
        assert called == "run-1"
    assert len(service.handled) == 2
    assert service.endpoint.__name__ == service.endpoint.__wrapped__.__name__


# --- types of events


def test_raw_payloads(kind: str) -> None:
    """`Payload` has the bytes and the headers, whatever they are."""
    service = Service(kind, event=Payload, id=lambda payload: payload.headers["x-id"])
    body = b"\xff\x00 not JSON"
    assert service.post(body, {"X-Id": "1"}).status == 200
    assert service.post(body, {"X-Id": "1"}).is_duplicate
    assert service.post(b"other", {"X-Id": "1"}).code == "key-reused"
    [payload] = service.handled
    assert (payload.body, payload.headers["x-id"]) == (body, "1")


def test_bytes(framework: str) -> None:
    service = Service(framework, event=bytes, id=lambda body: body[:2].decode())
    assert service.post(b"id...").status == 200
    assert service.post(b"id...").is_duplicate
    assert service.handled == [b"id..."]


def test_any_json(framework: str) -> None:
    service = Service(framework, event=Any)
    assert service.post(finished()).status == 200
    assert service.post(finished()).is_duplicate
    assert service.handled == [finished()]


def test_events_that_a_dependency_makes() -> None:
    """FastAPI's own ways to make a value, of whichever type."""

    class Event:
        def __init__(self, callback_id: str) -> None:
            self.callback_id, self.run_id = callback_id, "run-7"

    service = Service("fastapi", compare=lambda event: event.callback_id)
    endpoint = service.decorate(service.receipts, service.function(Annotated[Event, fastapi.Depends(Event)]))
    service.add("/query", endpoint)
    for duplicate in (False, True):
        reply = service.post(b"", path="/query?callback_id=1")
        assert (reply.status, reply.json()["idempotent_replayed"]) == (200, duplicate)


def test_annotations_as_text(framework: str) -> None:
    """`from __future__ import annotations`"""
    service = Service(framework)
    source = (
        "from __future__ import annotations\n"
        "from tests.callbacks.http.receiving import JobFinished\n"
        "def handle(event: JobFinished) -> None: ...\n"
    )
    names: dict[str, Any] = {"__name__": "annotated"}
    sys.modules["annotated"] = type(sys)("annotated")
    exec(source, names)
    service.add("/text", service.decorate(service.receipts, names["handle"]))
    assert service.post(finished(), path="/text").status == 200
    assert service.post(finished(), path="/text").is_duplicate


def test_what_fastapi_makes_of_nothing() -> None:
    """What an endpoint says of its responses holds: `204` has no body, and a type is kept to."""
    service = Service("fastapi")

    def nothing(event: JobFinished) -> None: ...

    def maybe(event: JobFinished) -> str | None:
        return None

    def accepted(event: JobFinished, response: fastapi.Response) -> None:
        response.headers["x-mine"] = "1"

    for path, function, status in (("/204", nothing, 204), ("/typed", maybe, 200), ("/202", accepted, 202)):
        service.app.post(path, status_code=status)(service.decorate(service.receipts, function))
    service.app.post("/text", response_class=fastapi.responses.PlainTextResponse)(
        service.decorate(service.receipts, nothing)
    )
    assert (service.post(finished("1"), path="/204").status, service.post(finished("1")).is_duplicate) == (
        204,
        True,
    )
    assert service.post(finished("2"), path="/typed").body == b"null"
    reply = service.post(finished("3"), path="/202")
    assert (reply.status, reply.headers["x-mine"]) == (202, "1")
    assert reply.json()["message"] == "Callback processed"
    assert service.post(finished("4"), path="/text").status == 200


# --- what others say about it


def test_coverage(framework: str) -> None:
    """Exempt, and why: each event is handled once by its receipts."""
    service = Service(framework)
    [route] = [route for route in examine(service.app).routes if route.path == "/callbacks"]
    assert "the receipts 'jobs'" in (route.exempt or "")
    assert_protected(service.app)


class Order(BaseModel):
    id: str
    lines: list["Line"]


class Line(BaseModel):
    amount: int


def test_openapi() -> None:
    """The body of a webhook, which FastAPI does not read, and what a sender may be told."""
    service = Service("fastapi", webhook=webhooks.standard(SECRET), event=Order, check=lambda _: True)
    inbox = receipts(service.guard, source="inbox", inbox=True)
    service.take("/inbox", inbox)
    service.take("/raw", receipts(service.guard, source="raw", id=lambda _: "1"), Payload)
    service.add("/pay", retrysafe.fastapi.idempotent(service.guard)(plain(service, [])))
    document = service.app.openapi()
    operation = document["paths"]["/callbacks"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Order"}
    schemas = document["components"]["schemas"]
    assert schemas["Order"]["properties"]["lines"]["items"] == {"$ref": "#/components/schemas/Line"}
    assert schemas["Line"]["properties"]["amount"] == {"title": "Amount", "type": "integer"}
    responses = operation["responses"]
    assert {"200", "401", "404", "422", "500", "503"} <= responses.keys()
    assert "`signature-invalid`" in responses["401"]["description"]
    assert "Retry-After" in responses["503"]["headers"]
    assert "Idempotency-Key" not in str(operation)
    assert "202" in document["paths"]["/inbox"]["post"]["responses"]
    raw = document["paths"]["/raw"]["post"]["requestBody"]["content"]
    assert raw == {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    assert "retrysafe" not in str(document["paths"])
    assert "Idempotency-Key" in str(document["paths"]["/pay"])
    assert "signature-invalid" in schemas["IdempotencyProblem"]["properties"]["code"]["enum"]
