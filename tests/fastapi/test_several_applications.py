"""Guards, applications and middlewares in all combinations: one claim per request, and one life per guard."""

import threading
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, WebSocket
from fastapi.testclient import TestClient

from retrysafe import Guard, asgi, scopes
from retrysafe.fastapi import idempotent, protect
from retrysafe.stores.memory import MemoryStore
from tests.fastapi.shop import KEY

HEADERS = {"Idempotency-Key": KEY, "X-Tenant": "7"}


class Payments:
    """An application with one protected route."""

    def __init__(self, guard: Guard, *, protected: bool = True) -> None:
        self.app = FastAPI()
        self.runs: list[int] = []
        if protected:
            protect(self.app, guard)

        @self.app.post("/pay")
        @idempotent(guard)
        def pay() -> int:
            self.runs.append(1)
            return len(self.runs)


@pytest.fixture
def guard() -> Guard:
    return Guard("memory:", scope=scopes.header("X-Tenant"))


def assert_once(app: Any, path: str, runs: list[int]) -> None:
    with TestClient(app) as client:
        first, second = (client.post(path, headers=HEADERS) for _ in range(2))
    assert [(each.status_code, each.json()) for each in (first, second)] == [(200, 1), (200, 1)]
    assert second.headers.get_list("idempotent-replayed") == ["true"]
    assert runs == [1]


@pytest.mark.parametrize("same", [True, False])
def test_around_it_a_middleware(guard: Guard, same: bool) -> None:
    """It claims, and the endpoint runs below its claim: a second one would find the key taken, by itself."""
    payments = Payments(guard)
    outer = guard if same else Guard("memory:", scope=scopes.header("X-Tenant"))
    assert_once(asgi.Middleware(payments.app, outer), "/pay", payments.runs)


@pytest.mark.parametrize("protected", [True, False])
def test_mounted(guard: Guard, protected: bool) -> None:
    """Protected itself or by what it is mounted in, with the same guard: claimed once."""
    payments, outer = Payments(guard, protected=protected), FastAPI()
    protect(outer, guard)
    outer.mount("/sub", payments.app)
    assert_once(outer, "/sub/pay", payments.runs)


def test_mounted_with_a_guard_of_its_own(guard: Guard) -> None:
    """Each endpoint is claimed in the store of its own guard, and described by its own application."""
    stores = [MemoryStore(), MemoryStore()]
    inner, outer = (Payments(Guard(store, scope=scopes.header("X-Tenant"))) for store in stores)
    outer.app.mount("/sub", inner.app)
    assert_once(outer.app, "/sub/pay", inner.runs)
    assert [len(list(store.open_admin().export())) for store in stores] == [1, 0]
    assert_once(outer.app, "/pay", outer.runs)
    assert [len(list(store.open_admin().export())) for store in stores] == [1, 1]
    assert "parameters" in inner.app.openapi()["paths"]["/pay"]["post"]


def test_below_a_prefix(guard: Guard) -> None:
    """A `root_path` of a proxy's or a server's: requests, the published page and its links have it."""
    payments = Payments(guard)
    router = APIRouter(prefix="/v1")
    router.post("/pay")(idempotent(guard, required=True)(lambda: 1))
    payments.app.include_router(router)
    with TestClient(payments.app, root_path="/api") as client:
        refused = client.post("/api/v1/pay", headers={"X-Tenant": "7"})
        assert refused.json()["type"] == "http://testserver/api/idempotency#key-missing"
        assert client.get("/api/idempotency").status_code == 200
        assert client.post("/api/pay", headers=HEADERS).json() == 1
        assert client.post("/api/pay", headers=HEADERS).headers["idempotent-replayed"] == "true"


def test_one_of_two_stops(guard: Guard) -> None:
    """The other one still serves, and is neither drained nor waited for; the last one closes the guard."""
    stopping, serving = Payments(guard), Payments(guard)
    begun, go_on = threading.Event(), threading.Event()

    @serving.app.post("/slow")
    @idempotent(guard)
    def slow() -> str:
        begun.set()
        assert go_on.wait(10)
        return "done"

    with TestClient(serving.app) as client:
        with TestClient(stopping.app):
            responses: list[Any] = []
            running = threading.Thread(
                target=lambda: responses.append(client.post("/slow", headers=HEADERS)), daemon=True
            )
            running.start()
            assert begun.wait(10)
        # It has stopped, although a request of the other's runs.
        assert not responses
        assert client.post("/pay", headers={**HEADERS, "Idempotency-Key": f"{KEY}2"}).status_code == 200
        go_on.set()
        running.join(10)
        assert [response.json() for response in responses] == ["done"]
    assert (guard.lives, guard.runtime.draining) == (set(), False)


def test_websockets(guard: Guard) -> None:
    """They pass, with a key too; one that is decorated says so and does not run."""
    app, runs = FastAPI(), list[int]()
    protect(app, guard)

    @app.websocket("/plain")
    async def plain(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("hello")
        await websocket.close()

    @app.websocket("/decorated")
    @idempotent(guard)
    async def decorated(websocket: WebSocket) -> None:
        runs.append(1)

    with TestClient(app) as client:
        with client.websocket_connect("/plain", headers=HEADERS) as socket:
            assert socket.receive_text() == "hello"
        with (
            pytest.raises(Exception, match=r"/decorated: @idempotent was put on the function of a websocket"),
            client.websocket_connect("/decorated", headers=HEADERS),
        ):
            pass
    assert runs == []
