"""A middleware that stands outside of the authentication that its scope needs: found, and in the log."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from retrysafe import Guard, asgi, scopes
from retrysafe.coverage import Coverage, examine
from retrysafe.scopes import ScopeRule
from retrysafe.starlette import idempotent, protect

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


class User(SimpleUser):
    @property
    def identity(self) -> str:
        return self.username


class Backend(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, User]:
        return AuthCredentials(["authenticated"]), User("alice")


class Tokens:
    """Authentication of the application's own, which cannot be recognised."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app({**scope, "user": User("bob")}, receive, send)


class OwnAuthentication(AuthenticationMiddleware):
    """A subclass of Starlette's is recognised."""


async def endpoint(request: Request) -> Response:
    return PlainTextResponse("done")


AUTHENTICATION = Middleware(AuthenticationMiddleware, backend=Backend())
OWN = Middleware(OwnAuthentication, backend=Backend())
TOKENS = Middleware(Tokens)
ZIP = Middleware(GZipMiddleware)


def a_fastapi() -> FastAPI:
    """What is added last stands outermost."""
    app = FastAPI()
    app.add_api_route("/orders", lambda: "done", methods=["POST"])
    app.add_middleware(AuthenticationMiddleware, backend=Backend())
    app.add_middleware(asgi.Middleware, guard=Guard("memory:", scope=scopes.user))
    return app


def ours(scope: ScopeRule = scopes.user) -> Middleware:
    return Middleware(asgi.Middleware, guard=Guard("memory:", scope=scope))


def an_app(*middleware: Middleware) -> Starlette:
    return Starlette(routes=[Route("/orders", endpoint, methods=["POST"])], middleware=middleware)


def levels(found: Coverage) -> list[str]:
    assert {finding.check for finding in found.findings} <= {"authentication"}
    return [finding.level for finding in found.findings]


def refused(app: ASGIApp) -> bool:
    """Whether a request with a key meets what a wrong order leads to."""
    with TestClient(app) as client:
        reply = client.post("/orders", headers={"Idempotency-Key": KEY})
    assert reply.status_code in (200, 400)
    return reply.status_code == 400


CASES: dict[str, tuple[Callable[[], ASGIApp], str | None, bool]] = {
    # What is built, the level of the finding, and whether it is in the log.
    "inside": (lambda: an_app(AUTHENTICATION, ZIP, ours()), None, False),
    "inside a subclass": (lambda: an_app(OWN, ours()), None, False),
    "outside": (lambda: an_app(ours(), AUTHENTICATION), "problem", True),
    "outside a subclass": (lambda: an_app(ZIP, ours(), ZIP, OWN), "problem", True),
    "outside, with parts": (
        lambda: an_app(ours(scopes.all_of(scopes.user, scopes.public())), AUTHENTICATION),
        "problem",
        True,
    ),
    "around the application": (
        lambda: asgi.Middleware(an_app(AUTHENTICATION), Guard("memory:", scope=scopes.user)),
        "problem",
        True,
    ),
    "added last to FastAPI": (a_fastapi, "problem", True),
    "between two": (lambda: an_app(AUTHENTICATION, ours(), OWN), None, False),
    "inside one's own": (lambda: an_app(TOKENS, ours()), "note", False),
    # It may be that one's own sets the user, and so it is: an alarm at each start would be a false one.
    "between one's own and Starlette's": (lambda: an_app(TOKENS, ours(), AUTHENTICATION), "warning", False),
    "in front": (
        lambda: Tokens(asgi.Middleware(an_app(), Guard("memory:", scope=scopes.user))),
        "note",
        False,
    ),
    "another scope": (lambda: an_app(ours(scopes.public()), AUTHENTICATION), None, False),
    "a function of its own": (
        lambda: an_app(ours(lambda request: "everyone's"), AUTHENTICATION),
        None,
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_order(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A problem where requests with a key are refused, and only there; one line at the start."""
    build, level, logged = CASES[name]
    app = build()
    assert levels(examine(app)) == ([level] if level else [])
    with caplog.at_level(logging.WARNING, "retrysafe"):
        assert refused(app) == (level == "problem")
    lines = [line for line in caplog.messages if "AuthenticationMiddleware" in line]
    assert len(lines) == logged
    assert all("stands outside of the AuthenticationMiddleware that sets the user" in line for line in lines)


def test_what_is_said() -> None:
    """Which middleware, which scope, and what to do."""
    (finding,) = examine(an_app(ours(), AUTHENTICATION)).findings
    assert str(finding) == (
        "POST /orders: the key is claimed by asgi.Middleware, which stands outside of "
        "starlette.middleware.authentication.AuthenticationMiddleware, and its scope is the authenticated "
        'user (request.user, scope["user"] or REMOTE_USER): no user is known there, so requests with a '
        "key are refused or have another owner. Move it inside: with add_middleware, what is added first "
        "stands innermost."
    )
    (finding,) = examine(an_app(TOKENS, ours(), AUTHENTICATION)).findings
    assert f"only if it is set by {__name__}.Tokens" in finding.found


def test_worse_than_refused() -> None:
    """Where another rule finds an owner instead, users share their keys: it is a problem, too."""
    first_of = scopes.first_of(scopes.user, scopes.public())
    assert levels(examine(an_app(ours(first_of), AUTHENTICATION))) == ["problem"]


def test_routes_of_a_middleware(caplog: pytest.LogCaptureFixture) -> None:
    """The scope of one of its routes counts, too."""
    guard = Guard("memory:", scope=scopes.public())
    app = asgi.Middleware(an_app(AUTHENTICATION), guard, routes={"/orders": {"scope": scopes.user}})
    assert levels(examine(app)) == ["problem"]
    assert refused(app)
    assert len([line for line in caplog.messages if "AuthenticationMiddleware" in line]) == 1


def test_a_function_as_middleware() -> None:
    """`@app.middleware("http")` may set the user, and is called by the function's name."""
    app = FastAPI()
    app.add_middleware(asgi.Middleware, guard=Guard("memory:", scope=scopes.user))

    @app.middleware("http")
    async def authenticate(request: Request, call_next: Any) -> Response:
        raise AssertionError("it is examined, and not called")

    @app.post("/orders")
    def order() -> None: ...

    (finding,) = examine(app).findings
    assert finding.level == "note"
    assert "authenticate or what stands in front" in finding.found
    assert BaseHTTPMiddleware.__name__ not in finding.found


def test_mounted() -> None:
    """Authentication of a mounted application concerns its routes alone."""
    inner = Starlette(routes=[Route("/orders", endpoint, methods=["POST"])], middleware=[AUTHENTICATION])
    app = Starlette(
        routes=[Mount("/in", app=inner), Route("/out", endpoint, methods=["POST"])], middleware=[ours()]
    )
    problem, note = examine(app).findings
    assert (problem.level, problem.routes) == ("problem", ("POST /in/orders",))
    assert (note.level, note.routes) == ("note", ("POST /out",))


def test_decorated_endpoints() -> None:
    """They claim inside of all middlewares; without any, it is said that something has to set the user."""
    guard = Guard("memory:", scope=scopes.user)
    for middleware, level in (([AUTHENTICATION], []), ([TOKENS], []), ([ZIP], ["note"]), ([], ["note"])):
        route = Route("/orders", idempotent(guard)(endpoint), methods=["POST"])
        app = Starlette(routes=[route], middleware=middleware)
        protect(app, guard)
        assert levels(examine(app)) == level
