"""A small FastAPI application that authenticates by a dependency, and what its tests say with it."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel

from retrysafe import Guard, scopes
from retrysafe.fastapi import idempotent, protect
from retrysafe.stores.memory import MemoryStore

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


class User(BaseModel):
    id: str


def signed_in(authorization: Annotated[str, Header()] = "") -> User:
    """`Bearer NAME.TOKEN`: who it is survives a renewed token."""
    name, _, token = authorization.removeprefix("Bearer ").partition(".")
    if not name or token == "expired":
        raise HTTPException(401, "sign in", {"WWW-Authenticate": "Bearer"})
    if token == "revoked":
        raise HTTPException(403, "not any more")
    return User(id=name)


SignedIn = Annotated[User, Depends(signed_in)]


class Order(BaseModel):
    amount: int


class Shop:
    """An application with one protected route, and whatever a test adds to it.

    `guard` is what its guard says, `options` what the route does.
    """

    def __init__(self, guard: dict[str, Any] | None = None, **options: Any) -> None:
        self.store = MemoryStore()
        said: dict[str, Any] = {"scope": scopes.argument("user.id"), **(guard or {})}
        self.guard = Guard(self.store, **said)
        self.app = FastAPI()
        self.runs: list[Any] = []
        protect(self.app, self.guard)

        @self.app.post("/orders", status_code=201)
        @idempotent(self.guard, **options)
        def create(order: Order, user: SignedIn) -> dict[str, Any]:
            self.runs.append((user.id, order.amount))
            return {"number": len(self.runs), "amount": order.amount}

        self.create = create

    def post(self, path: str, handler: Callable[..., Any], **options: Any) -> None:
        """One more route."""
        self.app.post(path)(idempotent(self.guard, **options)(handler))

    @property
    def client(self) -> TestClient:
        """Responses to errors are responses, as they are for a client over the network."""
        return TestClient(self.app, raise_server_exceptions=False)

    def records(self) -> int:
        return len(list(self.store.open_admin().export()))


def order(client: TestClient, amount: object = 1, token: str = "alice.1", key: str | None = KEY) -> Any:
    return send(client, "/orders", token=token, key=key, json={"amount": amount})


def send(client: TestClient, path: str, *, token: str = "alice.1", key: str | None = KEY, **rest: Any) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if key is not None:
        headers["Idempotency-Key"] = key
    return client.post(path, headers=headers | rest.pop("headers", {}), **rest)


def replayed(response: Any) -> bool:
    return bool(response.headers.get("idempotent-replayed") == "true")
