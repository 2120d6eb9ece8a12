"""A small Flask application that logs in with Flask-Login, and what its tests say with it."""

from collections.abc import Callable
from typing import Any

from flask import Flask, abort, request
from flask.testing import FlaskClient
from flask_login import (  # type: ignore[import-untyped]  # it has no types
    LoginManager,
    UserMixin,
    current_user,
    login_required,
)
from werkzeug.test import TestResponse
from werkzeug.wrappers import Response

from retrysafe import Guard, scopes
from retrysafe.flask import Retrysafe, idempotent
from retrysafe.stores.memory import MemoryStore

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


class User(UserMixin):  # type: ignore[misc]  # it has no types
    def __init__(self, name: str) -> None:
        self.id = name


def log_in(app: Flask) -> None:
    """`Bearer NAME.TOKEN`: who it is survives a renewed token."""
    manager = LoginManager(app)

    @manager.request_loader  # type: ignore[untyped-decorator]  # the same
    def load(_: object) -> User | None:
        name, _, token = request.headers.get("Authorization", "").removeprefix("Bearer ").partition(".")
        if token == "revoked":
            abort(403)
        return User(name) if name and token != "expired" else None


class Shop:
    """An application with one protected route, and whatever a test adds to it."""

    def __init__(self, **options: Any) -> None:
        self.store = MemoryStore()
        self.guard = Guard(self.store, scope=scopes.user)
        self.app = Flask("shop")
        self.app.secret_key = "not a secret, but long enough"
        self.runs: list[Any] = []
        log_in(self.app)
        Retrysafe(self.guard).init_app(self.app)

        @self.app.post("/orders")
        @login_required  # type: ignore[untyped-decorator]  # the same
        @idempotent(self.guard, **options)
        def create() -> tuple[dict[str, Any], int]:
            amount = request.get_json()["amount"]
            self.runs.append((current_user.id, amount))
            return {"number": len(self.runs), "amount": amount}, 201

    def post(self, path: str, view: Callable[..., Any], **options: Any) -> None:
        """One more route."""
        self.app.post(path, endpoint=path)(idempotent(self.guard, **options)(view))

    def pay(self) -> str:
        """A view that counts its runs."""
        self.runs.append(1)
        return "paid"

    @property
    def client(self) -> FlaskClient:
        return self.app.test_client()

    def records(self) -> int:
        return len(list(self.store.open_admin().export()))


def order(
    client: FlaskClient, amount: object = 1, token: str = "alice.1", key: str | None = KEY
) -> TestResponse:
    return send(client, "/orders", token=token, key=key, json={"amount": amount})


def send(
    client: FlaskClient, path: str, *, token: str = "alice.1", key: str | None = KEY, **rest: Any
) -> TestResponse:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if key is not None:
        headers["Idempotency-Key"] = key
    return client.open(
        path, method=rest.pop("method", "POST"), headers=headers | rest.pop("headers", {}), **rest
    )


def replayed(response: Response) -> bool:
    return response.headers.get("Idempotent-Replayed") == "true"


def code(response: TestResponse) -> str:
    """Of a problem."""
    document: dict[str, str] = response.get_json(force=True)
    return document["code"]
