"""Real applications with one protected route, whose handler is in flight while duplicates arrive."""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated, Any

import flask
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from werkzeug.serving import make_server

from retrysafe import Guard, asgi, scopes
from retrysafe.fastapi import idempotent, protect
from retrysafe.flask import Retrysafe
from retrysafe.flask import idempotent as idempotent_view
from retrysafe.stores.contract import Claim, Found
from retrysafe.stores.memory import MemoryStore

TOGETHER = 5
"""As many duplicates as are sent at once by default."""
PATIENCE = 30.0
ALICE = {"X-User": "alice"}
BOB = {"X-User": "bob"}


class Watched(MemoryStore):
    """Counts the duplicates that arrive while the first one runs."""

    def __init__(self) -> None:
        super().__init__()
        self.duplicates = threading.Semaphore(0)

    def reserve(self, claim: Claim) -> Any:
        found = super().reserve(claim)
        if isinstance(found, Found) and found.record.state == "in_progress":
            self.duplicates.release()
        return found


class Till:
    """What the handlers of all applications do."""

    def __init__(self, **options: Any) -> None:
        self.store = Watched()
        self.verdicts: list[str] = []
        options.setdefault("scope", scopes.header("X-User"))
        self.guard = Guard(self.store, on_event=lambda event: self.verdicts.append(event.verdict), **options)
        self.payments: list[int] = []
        self.pausing = True
        self.before: Callable[[int], object] = lambda amount: None
        self.after: Callable[[dict[str, int]], Any] = lambda paid: paid

    def pay(self, amount: int) -> Any:
        self.before(amount)
        self.payments.append(amount)
        number = len(self.payments)
        # The first request, the one with a fresh key, and then one that all duplicates must find running.
        if number == 3 and self.pausing:
            for _ in range(TOGETHER - 1):
                assert self.store.duplicates.acquire(timeout=PATIENCE), "no duplicate arrived meanwhile"
        return self.after({"number": number, "amount": amount})

    def count(self) -> int:
        return len(self.payments)


class Order(BaseModel):
    amount: Annotated[int, Field(le=1000)]


def signed_in(x_user: Annotated[str, Header()] = "") -> str:
    if not x_user:
        raise HTTPException(401, "sign in")
    return x_user


def fastapi(till: Till, **options: Any) -> FastAPI:
    """By the decorator: it claims after authentication and validation."""
    app = FastAPI()
    protect(app, till.guard)

    @app.post("/pay", status_code=201)
    @idempotent(till.guard, **options)
    def pay(order: Order, user: Annotated[str, Depends(signed_in)]) -> Any:
        return till.pay(order.amount)

    return app


def starlette(till: Till) -> Any:
    async def pay(request: Request) -> JSONResponse:
        body = await request.body()
        paid = await asyncio.to_thread(till.pay, len(body))
        return JSONResponse(paid, 201, {"Location": f"/payments/{paid['number']}", "Set-Cookie": "seen=yes"})

    return asgi.Middleware(Starlette(routes=[Route("/pay", pay, methods=["POST"])]), till.guard)


def flask_app(till: Till) -> flask.Flask:
    app = flask.Flask("shop")
    app.secret_key = "a secret of sixteen characters"
    Retrysafe(till.guard).init_app(app)

    @app.post("/sign-in")
    def sign_in() -> str:
        flask.session["user"] = "alice"
        return "signed in"

    @app.post("/pay")
    @idempotent_view
    def pay() -> Any:
        if flask.request.headers.get("X-Session") and "user" not in flask.session:
            return "sign in", 401
        flask.session["seen"] = till.count()  # each response has a cookie
        return till.pay(int(flask.request.form.get("amount", 0))), 201

    return app


@contextmanager
def served(application: Any) -> Generator[str]:
    """On a free port, by threads.  Gives the address."""
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
