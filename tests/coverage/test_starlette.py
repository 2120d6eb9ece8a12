"""Starlette and FastAPI: what is said of each route is what requests to it meet."""

from functools import partial
from itertools import count
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from fastapi import APIRouter, FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

import retrysafe.fastapi
from retrysafe import asgi
from retrysafe.coverage import examine, exempt
from retrysafe.errors import ConfigurationError
from retrysafe.fastapi import routes
from retrysafe.starlette import idempotent, protect
from tests.coverage.sending import a_guard, is_true, send_asgi, states

runs = count()


async def run(request: Request) -> Response:
    return PlainTextResponse(f"run {next(runs)}")


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application without routes."""
    if scope["type"] == "lifespan":
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})
        return
    await PlainTextResponse(f"run {next(runs)}")(scope, receive, send)


class Bare:
    """The same as an object, which Starlette does not take for a function of a request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await bare(scope, receive, send)


def starlette_app() -> Starlette:
    """Functions, classes, mounts, hosts and middlewares at every place where Starlette takes one."""
    guard, other, erp = a_guard(), a_guard(required=True), a_guard(profile="erp")

    class Payments(HTTPEndpoint):
        @idempotent(guard)
        async def post(self, request: Request) -> Response:
            return await run(request)

        async def put(self, request: Request) -> Response:
            return await run(request)

        async def get(self, request: Request) -> Response:
            raise AssertionError("it is not mutating")

    async def socket(websocket: WebSocket) -> None:
        raise AssertionError("it is not a request")

    own = Starlette(
        routes=[
            Route("/in/{id:int}", run, methods=["POST", "DELETE"]),
            Route("/out", run, methods=["POST"]),
            Route("/decorated", idempotent(other)(run), methods=["POST"]),
        ],
        middleware=[Middleware(asgi.Middleware, guard=erp, paths=["/in/*"])],
    )
    app = Starlette(
        routes=[
            Host("other.example", app=Router([Route("/orders", run, methods=["POST"])])),
            Route("/orders", idempotent(guard, required=True, effects="repeatable")(run), methods=["POST"]),
            Route("/orders", run, methods=["PUT"]),
            Route("/orders", idempotent(guard)(run), methods=["GET", "PATCH"]),
            Route("/orders", run, methods=["POST"]),  # never reached
            Route("/class", Payments),
            Route("/post-only", Payments, methods=["POST"]),
            Route("/erp", idempotent(erp)(run), methods=["POST", "DELETE"]),
            Route("/partial", partial(idempotent(guard)(run)), methods=["POST"]),
            Route("/own", run, methods=["POST"], middleware=[Middleware(asgi.Middleware, guard=other)]),
            Route("/application", Bare()),
            Route("/odd", run, methods=["PURGE", "OPTIONS"]),
            WebSocketRoute("/socket", socket),
            Mount("/routes", routes=[Route("/{name}/x", idempotent(guard)(run), methods=["POST"])]),
            Mount(
                "/layered",
                routes=[Route("/x", run, methods=["POST"])],
                middleware=[Middleware(asgi.Middleware, guard=guard, paths=["/x"])],
            ),
            Mount("/mounted", app=own),
            Mount("/wrapped", app=asgi.Middleware(bare, other, paths=["/y/*"])),
            Mount("/router", app=Router([Route("/z", run, methods=["POST"])], default=bare)),
            Mount("/files", app=StaticFiles(directory=".")),
        ]
    )
    for one in (guard, other, erp):
        protect(app, one)
    app.add_middleware(GZipMiddleware)
    return app


def test_starlette() -> None:
    """Every mutating route once, with its state, and each request meets just that."""
    app = starlette_app()
    found = examine(app)
    assert states(found) == {
        "POST /orders": "required",
        "PUT /orders": "unprotected",
        "PATCH /orders": "optional",
        "POST /class": "optional",
        "PUT /class": "unprotected",
        "POST /post-only": "optional",
        "POST /erp": "optional",
        "DELETE /erp": "unprotected",
        "POST /partial": "optional",
        "POST /own": "required",
        "POST /application": "unprotected",
        "PUT /application": "unprotected",
        "PATCH /application": "unprotected",
        "DELETE /application": "unprotected",
        "PURGE /odd": "unprotected",
        "POST /routes/{name}/x": "optional",
        "POST /layered/x": "optional",
        "POST /mounted/in/{id:int}": "optional",
        "DELETE /mounted/in/{id:int}": "unprotected",
        "POST /mounted/out": "unprotected",
        "POST /mounted/decorated": "required",
        **{f"{method} /wrapped/y/*": "required" for method in ("POST", "PUT", "PATCH", "DELETE")},
        **{f"{method} /wrapped/*": "unprotected" for method in ("POST", "PUT", "PATCH", "DELETE")},
        "POST /router/z": "unprotected",
        **{f"{method} /router/*": "unprotected" for method in ("POST", "PUT", "PATCH", "DELETE")},
        "POST other.example/orders": "unprotected",
    }
    wrong = [f"{route}: {seen}" for route, seen in send_asgi(app, found) if not is_true(route, seen)]
    assert wrong == []
    assert found.findings == ()


def test_what_is_said_of_a_route() -> None:
    """By what, with which guard, scope and effects, and where it is; or why not."""
    app = starlette_app()
    found = {route.name: route for route in examine(app).routes}
    order = found["POST /orders"]
    assert order.protection is not None
    assert order.protection.by == "@idempotent"
    assert order.protection.scope == "the header X-Tenant"
    assert order.protection.rules.policy.effects == "repeatable"
    assert order.endpoint == f"{__name__}.run"
    inside = found["POST /mounted/in/{id:int}"].protection
    assert inside is not None
    assert (inside.by, inside.guard.profile and inside.guard.profile.name) == ("asgi.Middleware", "erp")
    assert found["PUT /orders"].remark == "no decorator and no middleware protects it"
    assert found["DELETE /erp"].remark == (
        "@idempotent does not cover DELETE: the wire of the profile erp has POST, PUT and PATCH"
    )
    assert found["POST /mounted/out"].remark == "asgi.Middleware covers only /in/*"
    assert found["POST /wrapped/*"].remark == (
        f"asgi.Middleware covers only /y/*; the routes of {__name__}.bare cannot be read"
    )


def fastapi_app() -> FastAPI:
    """Routers that are included, nested and in mounted applications."""
    guard = a_guard()
    decorated = retrysafe.fastapi.idempotent(guard, required="warn")

    def handler() -> str:
        return f"run {next(runs)}"

    inner, outer = APIRouter(prefix="/inner"), APIRouter(prefix="/outer")
    inner.post("/{id}")(decorated(lambda id: handler()))
    inner.delete("/{id}")(lambda id: handler())
    outer.include_router(inner, prefix="/nested")
    # Without the router's own prefix: that is how FastAPI serves these two.
    outer.add_route("/plain", run, methods=["POST"])
    outer.mount("/mounted", Starlette(routes=[Route("/x", run, methods=["POST"])]))
    sub = FastAPI()
    sub.include_router(inner)
    app = FastAPI()
    retrysafe.fastapi.protect(app, guard)
    app.include_router(outer)
    app.mount("/sub", sub)
    app.post("/login")(exempt("a second login does no harm")(handler))
    return app


def test_fastapi() -> None:
    """The same for FastAPI, whose included routers are not in its list of routes."""
    app = fastapi_app()
    found = examine(app)
    assert states(found) == {
        "POST /outer/nested/inner/{id}": "warn",
        "DELETE /outer/nested/inner/{id}": "unprotected",
        "POST /plain": "unprotected",
        "POST /mounted/x": "unprotected",
        "POST /sub/inner/{id}": "warn",
        "DELETE /sub/inner/{id}": "unprotected",
        "POST /login": "exempt",
    }
    wrong = [f"{route}: {seen}" for route, seen in send_asgi(app, found) if not is_true(route, seen)]
    assert wrong == []


def test_the_routes_that_the_adapters_list() -> None:
    """The published specification has them, too: also of routers that a mounted application includes."""
    listed = {(path, method) for path, _, methods in routes(fastapi_app()) for method in methods}
    assert {("/sub/inner/{id}", "POST"), ("/outer/nested/inner/{id}", "DELETE")} <= listed


def test_a_class_that_fastapi_calls() -> None:
    """It is not an `HTTPEndpoint`, and its route is not lost."""

    class Order:
        def __init__(self) -> None:
            self.number = 1

    app = FastAPI()
    app.add_api_route("/orders", Order, methods=["POST"], response_model=None)
    assert states(examine(app)) == {"POST /orders": "unprotected"}


@pytest.mark.parametrize(
    ("paths", "path", "state"),
    [
        (None, "/orders/{id}", "optional"),
        (["/orders/*"], "/orders/{id}", "optional"),
        (["/orders/*"], "/orders", "unprotected"),
        (["/orders"], "/orders/", "optional"),
        (["/orders/1"], "/orders/{id:int}", "unprotected"),
        (["/api/*"], "/{rest:path}", "unprotected"),
        (["/*"], "/{rest:path}", "optional"),
        (["/api/*", "/orders"], "/orders", "optional"),
        (lambda path: path.startswith("/orders"), "/orders/{id}", "optional"),
        (lambda path: path.endswith("/1"), "/orders/{id}", "unprotected"),
        (lambda path: False, "/orders", "unprotected"),
        (["/café/*"], "/café/{name}", "optional"),
        (["/a.b+c/*"], "/a.b+c/{x}-{y}", "optional"),
    ],
)
def test_paths_of_a_middleware(paths: Any, path: str, state: str) -> None:
    """A route with parameters is protected if all that requests can ask for is covered."""
    app = Starlette(routes=[Route(path, run, methods=["POST"])])
    app.add_middleware(asgi.Middleware, guard=a_guard(), paths=paths)
    assert list(states(examine(app)).values()) == [state]


def test_some_of_the_paths_of_a_route() -> None:
    """Named, with one that is covered and one that is not."""
    app = Starlette(routes=[Route("/users/{id}/orders", run, methods=["POST"])])
    app.add_middleware(asgi.Middleware, guard=a_guard(), paths=["/users/admin/*"])
    (route,) = examine(app).routes
    assert route.remark == "asgi.Middleware covers /users/admin/orders, and not /users/a/orders"


def test_rules_of_some_paths() -> None:
    """A route has the rules that its paths have, and others that hold for some of them are said."""
    app = asgi.Middleware(
        Starlette(
            routes=[Route("/orders/{id}", run, methods=["POST"]), Route("/pay", run, methods=["POST"])]
        ),
        a_guard(),
        routes={"/orders/special": {"required": True}, "/pay": {"required": True, "effects": "repeatable"}},
    )
    orders, pay = examine(app).routes
    assert (orders.state, orders.remark) == ("optional", "routes= has other rules for /orders/special")
    assert (pay.state, pay.protection and pay.protection.rules.policy.effects) == ("required", "repeatable")


def test_paths_of_a_profile() -> None:
    """A profile's own paths count, and a path where nothing is to be protected is said."""
    app = Starlette(routes=[Route("/orders", run, methods=["POST"]), Route("/api/x", run, methods=["GET"])])
    app.add_middleware(asgi.Middleware, guard=a_guard(profile="agents"))
    found = examine(app)
    assert found.routes[0].remark == "asgi.Middleware covers only /api/*"
    assert [str(finding) for finding in found.findings] == [
        "asgi.Middleware covers /api/* (of the profile agents), and the application has no mutating route "
        "there. Correct the path, or remove it."
    ]


def test_a_function_that_fails() -> None:
    """It would fail for each request, and is not taken for one that covers or does not."""
    app = Starlette(routes=[Route("/orders", run, methods=["POST"])])
    app.add_middleware(asgi.Middleware, guard=a_guard(), paths=lambda path: path.split("/")[9] == "x")
    with pytest.raises(ConfigurationError, match=r"paths=.*raised IndexError.*list index out of range"):
        examine(app)


def test_wrapped_several_times() -> None:
    """What stands around the application, ours among it, whichever attribute has what is inside."""

    class Around:
        def __init__(self, application: Any) -> None:
            self.application = application

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self.application(scope, receive, send)

    app = Starlette(routes=[Route("/orders", run, methods=["POST"])])
    wrapped = Around(GZipMiddleware(asgi.Middleware(Around(app), a_guard(required=True))))
    found = examine(wrapped)
    assert states(found) == {"POST /orders": "required"}
    assert [is_true(route, seen) for route, seen in send_asgi(wrapped, found)] == [True]


def test_a_partial_middleware_and_one_without_a_guard() -> None:
    """The first is recognised; the second is an error that says what is missing."""
    app = Starlette(
        routes=[Route("/orders", run, methods=["POST"])],
        middleware=[Middleware(partial(asgi.Middleware, guard=a_guard()))],
    )
    assert states(examine(app)) == {"POST /orders": "optional"}
    app = Starlette(middleware=[Middleware(asgi.Middleware)])  # type: ignore[call-arg]  # that is the mistake
    with pytest.raises(
        ConfigurationError, match=r"missing.*guard.*add_middleware\(Middleware, guard=guard\)"
    ):
        examine(app)


def test_without_routes() -> None:
    """Of a bare application it is said what the middleware covers, and that the rest is not known."""
    found = examine(
        asgi.Middleware(bare, a_guard(profile="erp"), paths=["/a*"], routes={"/b": {"required": True}})
    )
    posts = {route.path: (route.state, route.remark) for route in found.routes if route.method == "POST"}
    assert posts == {
        "/b": (
            "unprotected",
            f"asgi.Middleware covers only /a*; the routes of {__name__}.bare cannot be read",
        ),
        "/a*": ("optional", ""),
        "/*": (
            "unprotected",
            f"asgi.Middleware covers only /a*; the routes of {__name__}.bare cannot be read",
        ),
    }
    assert states(found)["DELETE /a*"] == "unprotected"
    assert states(examine(asgi.Middleware(bare, a_guard())))["POST /*"] == "optional"
    by_function = examine(asgi.Middleware(bare, a_guard(), paths=lambda path: True))
    assert by_function.routes[0].remark.startswith("asgi.Middleware covers only what ")
    assert found.findings == ()


def test_flask_inside() -> None:
    """A Flask application that is mounted by an adapter is read, too."""

    class FromWsgi:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            raise AssertionError("it is examined, and not called")

    legacy = Flask("legacy")
    legacy.add_url_rule("/orders/<int:id>", "orders", lambda id: "", methods=["POST"])
    app = Starlette(routes=[Mount("/legacy", app=FromWsgi(legacy))])
    assert states(examine(app)) == {"POST /legacy/orders/<int:id>": "unprotected"}
    covered = asgi.Middleware(app, a_guard(), paths=["/legacy/orders/*"])
    assert states(examine(covered)) == {"POST /legacy/orders/<int:id>": "optional"}


def test_doubles() -> None:
    """What has every attribute that it is asked for has no inside that never ends, and no mark."""
    app = Starlette(routes=[Mount("/mounted", app=AsyncMock()), Route("/x", MagicMock(), methods=["POST"])])
    assert states(examine(app))["POST /x"] == "unprotected"
    assert states(examine(asgi.Middleware(AsyncMock(), a_guard())))["POST /*"] == "optional"


def test_a_subclass_of_ours() -> None:
    """It is built as the application builds it."""

    class Guarded(asgi.Middleware):
        def __init__(self, app: Any, name: str) -> None:
            super().__init__(app, a_guard(required=True), paths=[name])

    app = Starlette(routes=[Route("/orders", run, methods=["POST"])])
    app.add_middleware(Guarded, "/orders")
    assert states(examine(app)) == {"POST /orders": "required"}


def test_mounted_in_itself() -> None:
    """Read once, and not for ever."""
    app = Starlette(routes=[Route("/orders", run, methods=["POST"])])
    app.mount("/again", app)
    assert states(examine(app)) == {"POST /orders": "unprotected"}


def test_a_route_that_cannot_be_read() -> None:
    """A kind of route of the application's own is not passed over."""
    from starlette.routing import BaseRoute

    class Own(BaseRoute):
        path = "/own"

    found = examine(Starlette(routes=[Own()]))
    assert states(found)["POST /own/*"] == "unprotected"
    assert found.routes[0].remark.endswith("Own cannot be read")


# --- findings


def test_decorated_and_not_protected() -> None:
    """A problem, also where a middleware covers the path: the endpoint raises."""
    guard = a_guard()
    app = Starlette(routes=[Route("/orders", idempotent(guard)(run), methods=["POST", "PUT"])])
    found = examine(app)
    assert set(states(found).values()) == {"unprotected"}
    (finding,) = found.findings
    assert (finding.level, finding.routes) == ("problem", ("POST /orders", "PUT /orders"))
    assert "is not protected: each request fails. Call protect(app, guard)" in str(finding)
    app.add_middleware(asgi.Middleware, guard=guard)
    assert examine(app).findings == found.findings


def test_decorated_with_another_guard() -> None:
    """The same, and it is said that there is one."""
    app = Starlette(routes=[Route("/orders", idempotent(a_guard())(run), methods=["POST"])])
    protect(app, a_guard())
    (finding,) = examine(app).findings
    assert finding.level == "problem"
    assert "another guard than its application is protected with" in finding.found


def test_decorated_below_a_middleware() -> None:
    """The middleware claims, so its rules hold, but a key that the decorator requires is required."""
    guard = a_guard()
    app = Starlette(
        routes=[Route("/x", idempotent(guard, required=True, effects="repeatable")(run), methods=["POST"])]
    )
    protect(app, guard)
    app.add_middleware(asgi.Middleware, guard=guard)
    found = examine(app)
    (route,) = found.routes
    assert route.protection is not None
    assert (route.state, route.protection.by) == ("required", "asgi.Middleware")
    assert route.protection.rules.policy.effects == "outside"
    assert [(finding.level, finding.routes) for finding in found.findings] == [("warning", ("POST /x",))]
    assert [is_true(route, seen) for route, seen in send_asgi(app, found)] == [True]


def test_thousands_of_routes() -> None:
    """Read in one go: what is wrong is one finding, and not thousands."""
    guard = a_guard()
    endpoint = idempotent(guard)(run)
    app = Starlette(routes=[Route(f"/r{n}/{{id}}", endpoint, methods=["POST"]) for n in range(2000)])
    app.add_middleware(asgi.Middleware, guard=guard, paths=[f"/r{n}/*" for n in range(0, 2000, 100)])
    found = examine(app)
    assert len(found.routes) == 2000
    assert len(found.findings) == 1
    assert str(found.findings[0]).startswith("POST /r0/{id}, POST /r1/{id}")
    assert "and 1990 others: decorated" in str(found.findings[0])
