"""Starlette without FastAPI: functions, classes and mounted applications."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.endpoints import HTTPEndpoint
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from retrysafe import Guard, scopes
from retrysafe.starlette import idempotent, protect

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


class User(SimpleUser):
    @property
    def identity(self) -> str:
        return self.username


class Backend(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, User] | None:
        name = conn.headers.get("X-User")
        return (AuthCredentials(["authenticated"]), User(name)) if name else None


runs: list[Any] = []
guard = Guard("memory:", scope=scopes.user)


@idempotent(guard, required=True)
async def pay(request: Request) -> Response:
    runs.append(await request.json())
    return JSONResponse({"run": len(runs)}, 201)


@idempotent(guard)
def plain(request: Request) -> Response:
    runs.append(request.user.identity)
    return PlainTextResponse(str(len(runs)))


class Payments(HTTPEndpoint):
    @idempotent(guard)
    async def post(self, request: Request) -> Response:
        runs.append("post")
        return PlainTextResponse(str(len(runs)))

    async def put(self, request: Request) -> Response:
        runs.append("put")
        return PlainTextResponse(str(len(runs)))


@pytest.fixture
def client() -> Any:
    runs.clear()
    inner = Starlette(routes=[Route("/plain", plain, methods=["POST"])])
    app = Starlette(
        routes=[
            Route("/pay", pay, methods=["POST"]),
            Route("/plain", plain, methods=["POST"]),
            Route("/class", Payments),
            Mount("/mounted", app=inner),
        ]
    )
    protect(app, guard)
    # In whichever order they are added: it is asked before the claim.
    app.add_middleware(AuthenticationMiddleware, backend=Backend())
    with TestClient(app) as client:
        yield client


def send(client: TestClient, path: str, user: str = "alice", key: str = "", **rest: Any) -> Any:
    method: str = rest.pop("method", "POST")
    headers = {"X-User": user, "Idempotency-Key": key or KEY + path.replace("/", "-") + method}
    return client.request(method, path, headers=headers, **rest)


@pytest.mark.parametrize("path", ["/pay", "/plain", "/class", "/mounted/plain"])
def test_once(client: TestClient, path: str) -> None:
    """Functions, plain ones too, methods of classes, and endpoints of mounted applications."""
    user = f"user-of-{path}"
    first, second = (send(client, path, user, json={"amount": 1}) for _ in range(2))
    assert first.status_code in (200, 201)
    assert (second.content, second.headers["idempotent-replayed"]) == (first.content, "true")
    assert len(runs) == 1
    other = send(client, path, f"other-{user}", json={"amount": 1})
    assert "idempotent-replayed" not in other.headers


def test_a_method_that_is_not_decorated(client: TestClient) -> None:
    """It runs each time."""
    assert [send(client, "/class", method="PUT").text for _ in range(2)] == ["1", "2"]


def test_a_missing_user(client: TestClient) -> None:
    """The middleware that authenticates found none."""
    refused = send(client, "/plain", user="")
    assert (refused.status_code, refused.json()["code"]) == (400, "principal-required")


def test_a_required_key(client: TestClient) -> None:
    """As on every other adapter."""
    refused = client.post("/pay", headers={"X-User": "alice"}, json={})
    assert (refused.status_code, refused.json()["code"]) == (400, "key-missing")


def test_the_specification_names_what_is_protected(client: TestClient) -> None:
    """Mounted endpoints and methods of classes too."""
    published = client.get("/idempotency", headers={"Accept": "application/json"}).json()
    listed = {entry["path"]: (entry["methods"], entry["required"]) for entry in published["routes"]}
    assert listed == {
        "/pay": (["POST"], True),
        "/plain": (["POST"], False),
        "/class": (["POST"], False),
        "/mounted/plain": (["POST"], False),
    }
    assert published["coverage"] == "These routes take keys, and no others."
    assert published["example"]["url"] == "http://testserver/pay"
