"""Whatever is sent to a protected route, its response is one that the OpenAPI document describes.

schemathesis makes the requests from the document, valid ones and others, and compares what comes back with
it: status, media type, schema and headers.  Keys are valid, malformed, missing, and repeated with the same
body and with another one.
"""

import asyncio
import itertools
import os
from contextlib import suppress
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Body, FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from retrysafe import Guard, NotDone, profiles, scopes
from retrysafe.fastapi import idempotent, protect

LONG = "RETRYSAFE_LONG" in os.environ
TENANT = {"X-Tenant": "7"}


class Order(BaseModel):
    amount: Annotated[int, Field(gt=0)]
    note: str = ""


class Placed(BaseModel):
    number: int
    amount: int


class Store(FastAPI):
    """Protected routes of every kind, and one that is not."""

    def __init__(self, **said: Any) -> None:
        super().__init__()
        options: dict[str, Any] = {"scope": scopes.header("X-Tenant"), "max_request": 2000, **said}
        self.guard = guard = Guard("memory:", **options)
        protect(self, guard)
        placed: list[Order] = []
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

        @self.post("/orders", status_code=201)
        @idempotent(guard, required=True)
        def place(order: Order) -> Placed:
            placed.append(order)
            return Placed(number=len(placed), amount=order.amount)

        @self.put("/orders/{number}")
        @idempotent(guard, fingerprint="json")
        async def change(number: int, order: Order) -> Placed:
            return Placed(number=number, amount=order.amount)

        @self.delete("/orders/{number}", status_code=204)
        @idempotent(guard)
        def cancel(number: int) -> None:
            placed.clear()

        @self.post("/uploads/{name:path}")
        @idempotent(guard)
        async def upload(
            name: str, data: Annotated[bytes, Body(media_type="application/octet-stream")]
        ) -> int:
            return len(data)

        @self.post("/failing")
        @idempotent(guard)
        def fail() -> Placed:
            raise ValueError("no")

        @self.post("/conflicting")
        @idempotent(guard, failed="conflict")
        def conflict(order: Order) -> Placed:
            raise ValueError("no")

        @self.post("/later")
        @idempotent(guard)
        def later(order: Order) -> Placed:
            raise NotDone("not yet", retry_after=3)

        @self.post("/pending")
        @idempotent(guard)
        async def pending() -> str:
            self.begun.set()
            await self.go_on.wait()
            return "done"

        @self.post("/unprotected")
        def unprotected(order: Order) -> Placed:
            return Placed(number=0, amount=order.amount)


FAILING = ("/failing", "/conflicting", "/later")
"""What these respond is documented, and a 5xx."""

malformed = st.sampled_from(["", '"', '"open', "a b", "a,b", '"a" "b"', '""', "k" * 256, "\xe9"])

SEARCH = settings(
    max_examples=4,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def served(app: Store) -> Any:
    """As by a server: what a handler raises is logged, and the response is what was sent."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        with suppress(ValueError, NotDone):
            await app(scope, receive, send)

    return serve


# schemathesis is imported where it is used: that takes long, and every process that runs tests imports this.


def conformance() -> list[Any]:
    from schemathesis.specs.openapi import checks

    return [
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.response_headers_conformance,
    ]


def operations(app: Store) -> list[Any]:
    """Exactly the protected ones: those that have a parameter for the key."""
    import schemathesis

    schema: Any = schemathesis.openapi.from_asgi("/openapi.json", served(app))
    name = app.guard.wire.key_header
    found = [result.ok() for result in schema.get_all_operations()]
    return [each for each in found if any(one.name == name for one in each.headers)]


def assert_documented(operation: Any, response: Any, case: Any) -> None:
    from schemathesis.checks import not_a_server_error

    expected = conformance()
    if operation.path not in FAILING:
        expected.append(not_a_server_error)
    case.validate_response(response, checks=expected)


SAMPLE = [None, "stripe", "erp"]
"""The plain wire, one with an envelope, and one with other statuses, methods and headers."""


@pytest.mark.parametrize("profile", [None, *profiles.PROFILES] if LONG else SAMPLE)
def test_nothing_undocumented(profile: str | None) -> None:
    """Each request is sent twice and once more with another body, and with a malformed key and none."""
    app = Store(profile=profile)
    found = [each for each in operations(app) if each.path != "/pending"]
    expected = {"POST /orders", "PUT /orders/{number}", "DELETE /orders/{number}", "POST /uploads/{name}"}
    expected |= {f"POST {path}" for path in FAILING}
    covered = {each for each in expected if each.split()[0] in app.guard.wire.methods}
    assert {each.label for each in found} == covered
    statuses = {status for operation in found for status in explore(app, operation)}
    refused = {app.guard.wire.status(code) for code in ("key-missing", "key-invalid", "key-reused")}
    assert statuses >= {200, 201, 409, 500, 503} | refused


numbers = itertools.count()


def explore(app: Store, operation: Any) -> set[int]:
    """Send what the document allows, and what it does not; the statuses that came back."""
    from schemathesis import GenerationMode

    statuses: set[int] = set()
    key_header = app.guard.wire.key_header
    valid, invalid = (
        operation.as_strategy(generation_mode=mode)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    )

    def send(case: Any, key: str | None) -> None:
        if "%0A" in case.formatted_path:
            return  # Starlette matches no line break in a path: it is not a request to this route
        case.headers = {**(case.headers or {}), **TENANT}
        case.headers.pop(key_header, None)
        if key is not None:
            case.headers[key_header] = key
        response = case.call()
        statuses.add(response.status_code)
        assert_documented(operation, response, case)

    @SEARCH
    @given(valid, st.one_of(valid, invalid), malformed)
    def search(case: Any, other: Any, not_a_key: str) -> None:
        key = f"key-{next(numbers)}"
        for each, sent in [(case, key), (case, f'"{key}"'), (other, key), (case, not_a_key), (other, None)]:
            send(each, sent)

    search()
    return statuses


def test_refusals_that_take_more_than_a_request() -> None:
    """In flight, shutting down, too large, and a body that cannot be read: documented too."""
    app = Store()
    by_label = {operation.label: operation for operation in operations(app)}

    async def scenario() -> None:
        transport = httpx.ASGITransport(served(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:

            async def post(path: str, key: str = "first", **rest: Any) -> httpx.Response:
                fields = {**TENANT, "Idempotency-Key": key, "Content-Type": "application/json"}
                response = await client.post(path, headers=fields, **rest)
                operation = by_label[f"POST {path}"]
                operation.Case().validate_response(response, checks=conformance())
                return response

            running = asyncio.ensure_future(post("/pending"))
            await app.begun.wait()
            assert (await post("/pending")).json()["code"] == "in-flight"
            app.go_on.set()
            assert (await running).status_code == 200
            large = await post("/orders", json={"amount": 1, "note": "x" * 3000})
            assert (large.status_code, large.json()["code"]) == (413, "body-too-large")
            unreadable = await post("/orders", content=b"\xff")
            assert (unreadable.status_code, "code" in unreadable.json()) == (400, False)
            app.guard.runtime.draining = True
            drained = await post("/orders", "second", json={"amount": 1})
            assert (drained.status_code, drained.json()["code"]) == (503, "draining")

    asyncio.run(scenario())
