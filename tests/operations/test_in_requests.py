"""Operations inside of guarded requests: their scope, their own record, the transaction of the request."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flask
import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy import Engine, create_engine, text

from retrysafe import Guard, current, scopes, stores
from retrysafe.fastapi import idempotent, protect
from retrysafe.flask import Retrysafe
from retrysafe.flask import idempotent as idempotent_view
from retrysafe.operations import AsyncOperation, Operation, operation
from retrysafe.sqlalchemy import sessionmaker

ANN = {"X-User": "ann", "Idempotency-Key": "k"}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    with engine.begin() as db:
        db.execute(text("CREATE TABLE items (item TEXT)"))
    yield engine
    engine.dispose()


@pytest.fixture
def guard(engine: Engine) -> Iterator[Guard]:
    guard = Guard(stores.from_engine(engine), scope=scopes.header("X-User"))
    yield guard
    guard.close()


def rows(engine: Engine) -> list[str]:
    with engine.connect() as db:
        return sorted(item for (item,) in db.execute(text("SELECT item FROM items")))


def writer(guard: Guard) -> Callable[[str], None]:
    sessions = sessionmaker(guard)

    def write(item: str) -> None:
        with sessions.begin() as session:
            session.execute(text("INSERT INTO items VALUES (:item)"), {"item": item})

    return write


def shipping(guard: Guard, write: Callable[[str], None]) -> Operation[[str], str]:
    @operation(guard, effects="database")
    def ship(item: str) -> str:
        write(f"ship {item}")
        if item == "rum":
            raise RuntimeError("no rum")
        return f"parcel of {item}"

    return ship


def test_in_an_endpoint_of_fastapi(guard: Guard, engine: Engine) -> None:
    """The request's transaction has both records; what fails undoes both."""
    app = FastAPI()
    protect(app, guard)
    write = writer(guard)
    ship = shipping(guard, write)

    @app.post("/orders/{item}")
    @idempotent(guard, effects="database")
    def order(item: str) -> dict[str, str]:
        write(f"order {item}")
        return {"parcel": ship.once(item, key=current().derive("ship")).value}

    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.post("/orders/rum", headers=ANN).status_code == 500
        assert rows(engine) == []
        for replayed in (None, "true"):
            response = client.post("/orders/tea", headers={**ANN, "Idempotency-Key": "l"})
            assert (response.status_code, response.json()) == (200, {"parcel": "parcel of tea"})
            assert response.headers.get("Idempotent-Replayed") == replayed
    assert rows(engine) == ["order tea", "ship tea"]


def test_a_refusal_that_is_stored_keeps_what_was_shipped(guard: Guard, engine: Engine) -> None:
    """A 4xx settles the request, and is committed with what it did."""
    app = FastAPI()
    protect(app, guard)
    ship = shipping(guard, writer(guard))

    @app.post("/orders/{item}")
    @idempotent(guard, effects="database")
    def order(item: str) -> None:
        ship.once(item, key="ship")
        raise HTTPException(409, "sold out")

    with TestClient(app) as client:
        for _ in range(2):
            assert client.post("/orders/tea", headers=ANN).status_code == 409
    assert rows(engine) == ["ship tea"]
    assert ship.once("tea", key="ship", scope={"x-user": "ann"}).replayed


def test_in_a_coroutine_of_fastapi(guard: Guard) -> None:
    """An operation with effects elsewhere, in a request with effects elsewhere: two records of one owner."""
    app = FastAPI()
    protect(app, guard)
    charged: list[str] = []

    @operation(guard, target="order")
    async def charge(order: str) -> str:
        charged.append(order)
        return f"charge of {order}"

    assert isinstance(charge, AsyncOperation)

    @app.post("/orders/{order}")
    @idempotent(guard)
    async def pay(order: str) -> dict[str, Any]:
        done = await charge.once(order, key=current().derive("charge"))
        return {"charge": done.value, "replayed": done.replayed}

    with TestClient(app) as client:
        for user in ("ann", "ann", "bob"):
            response = client.post("/orders/7", headers={"X-User": user, "Idempotency-Key": "k"})
            assert response.json() == {"charge": "charge of 7", "replayed": False}
    assert charged == ["7", "7"], "once for each of both users"


def test_in_a_view_of_flask(guard: Guard, engine: Engine) -> None:
    """The same without an event loop."""
    app = flask.Flask(__name__)
    Retrysafe(guard).init_app(app)
    write = writer(guard)
    ship = shipping(guard, write)

    @app.post("/orders/<item>")
    @idempotent_view(guard, effects="database")
    def order(item: str) -> dict[str, str]:
        write(f"order {item}")
        return {"parcel": ship.once(item, key="ship").value}

    client = app.test_client()
    app.config["PROPAGATE_EXCEPTIONS"] = False
    assert client.post("/orders/rum", headers=ANN).status_code == 500
    assert rows(engine) == []
    for replayed in (None, "true"):
        response = client.post("/orders/tea", headers=ANN)
        assert (response.status_code, response.json) == (200, {"parcel": "parcel of tea"})
        assert response.headers.get("Idempotent-Replayed") == replayed
    assert rows(engine) == ["order tea", "ship tea"]
    assert ship.once("tea", key="ship", scope={"x-user": "ann"}).replayed
