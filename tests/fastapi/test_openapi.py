"""The OpenAPI document: exactly the protected routes say that they take keys, and what may come back."""

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI

from retrysafe import Guard, scopes
from retrysafe.fastapi import idempotent, protect
from tests.fastapi.shop import Shop, SignedIn


def operations(document: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def key_of(operation: dict[str, Any]) -> dict[str, Any] | None:
    return next((one for one in operation.get("parameters", []) if one["name"] == "Idempotency-Key"), None)


def test_exactly_the_protected_routes() -> None:
    """Routers within routers included, mutating routes without the decorator and reads not."""
    shop = Shop()
    router = APIRouter(prefix="/v1")
    router.post("/protected/{id}")(idempotent(shop.guard, required=True)(_by_user))
    router.post("/unprotected")(_by_user)
    router.put("/both")(idempotent(shop.guard)(_by_user))
    router.get("/both")(idempotent(shop.guard)(_by_user))
    router.put("/files/{name:path}")(idempotent(shop.guard)(_by_user))
    outer = APIRouter(prefix="/api")
    outer.include_router(router)
    shop.app.include_router(outer)
    found = {name: key_of(operation) for name, operation in operations(shop.app.openapi()).items()}
    assert {name for name, key in found.items() if key} == {
        "POST /orders",
        "POST /api/v1/protected/{id}",
        "PUT /api/v1/both",
        "PUT /api/v1/files/{name}",
    }
    required = {name: key["required"] for name, key in found.items() if key}
    assert {name for name, is_required in required.items() if is_required} == {"POST /api/v1/protected/{id}"}


def _by_user(user: SignedIn) -> str:
    return user.id


def test_problems_and_headers() -> None:
    """Each status that a refusal has, with the schema of problems; replays have their headers."""
    shop = Shop(required=True, retention="2d")
    document = shop.app.openapi()
    operation = operations(document)["POST /orders"]
    responses = operation["responses"]
    for status, code in [
        ("400", "key-missing"),
        ("409", "in-flight"),
        ("422", "key-reused"),
        ("503", "draining"),
    ]:
        assert code in responses[status]["description"]
        schema = responses[status]["content"]["application/problem+json"]["schema"]
        assert {"$ref": "#/components/schemas/IdempotencyProblem"} in schema.get("anyOf", [schema])
    assert "IdempotencyProblem" in document["components"]["schemas"]
    assert "Idempotent-Replayed" in responses["201"]["headers"]
    assert "Retry-After" in responses["409"]["headers"]
    key = key_of(operation)
    assert key is not None
    assert "2 days" in key["description"]
    # What FastAPI says itself about a body that does not validate is still there, and comes first.
    schema = responses["422"]["content"]["application/json"]["schema"]
    assert schema["anyOf"][0]["$ref"].endswith("HTTPValidationError")


def test_only_problems_that_can_come() -> None:
    """In the database there is no unknown outcome, and an optional key is not missing."""
    shop = Shop()
    found = operations(shop.app.openapi())["POST /orders"]["responses"]
    assert "outcome-unknown" in found["409"]["description"]
    assert "key-missing" not in found["400"]["description"]


def test_a_parameter_of_the_applications_own() -> None:
    """An endpoint that declares the header itself keeps its own words."""
    from fastapi import Header

    shop = Shop()

    def own(user: SignedIn, idempotency_key: str = Header(description="mine")) -> str:
        return idempotency_key

    shop.post("/own", own)
    parameters = operations(shop.app.openapi())["POST /own"]["parameters"]
    keys = [one for one in parameters if one["name"].lower() == "idempotency-key"]
    assert [key["description"] for key in keys] == ["mine"]


def test_two_guards() -> None:
    """Each describes its own routes."""
    app = FastAPI()
    first, second = (Guard("memory:", scope=scopes.header("X-Tenant"), required=it) for it in (True, False))
    protect(app, first)
    protect(app, second)
    app.post("/first")(idempotent(first)(lambda: 1))
    app.post("/second")(idempotent(second)(lambda: 2))
    found = operations(app.openapi())
    assert [key["required"] for name in found if (key := key_of(found[name]))] == [True, False]


def test_a_document_that_was_made_before() -> None:
    """It is made once more: what was there did not know of the keys."""
    app, guard = FastAPI(), Guard("memory:", scope=scopes.header("X-Tenant"))
    app.post("/first")(idempotent(guard)(lambda: 1))
    assert key_of(operations(app.openapi())["POST /first"]) is None
    protect(app, guard)
    assert key_of(operations(app.openapi())["POST /first"]) is not None


@pytest.mark.parametrize("path", ["/orders", "/later"])
def test_the_published_specification(path: str) -> None:
    """It names the routes that say something of their own."""
    shop = Shop(retention="2d")
    shop.post("/later", _by_user, no_store=True)
    with shop.client as client:
        published = client.get("/idempotency", headers={"Accept": "application/json"}).json()
    assert path in [entry["path"] for entry in published["routes"]]


def test_one_path_by_two_methods() -> None:
    """Each of its endpoints is published, with its own rules; a method that takes no keys is not."""
    shop = Shop()
    shop.app.put("/things/{id}")(idempotent(shop.guard, required=True)(_by_user))
    shop.app.delete("/things/{id}")(idempotent(shop.guard)(_by_user))
    shop.app.get("/things/{id}")(idempotent(shop.guard)(_by_user))
    with shop.client as client:
        published = client.get("/idempotency", headers={"Accept": "application/json"}).json()
    found = [(it["methods"], it["required"]) for it in published["routes"] if it["path"] == "/things/{id}"]
    assert found == [(["PUT"], True), (["DELETE"], False)]


@pytest.mark.parametrize(
    ("accept", "form"), [("text/html", "html"), ("text/markdown", "markdown"), ("application/json", "json")]
)
def test_three_forms(accept: str, form: str) -> None:
    """By the application's own address, for GET and for HEAD."""
    with Shop().client as client:
        page, head = (
            client.request(method, "/idempotency", headers={"Accept": accept}) for method in ("GET", "HEAD")
        )
    assert (page.status_code, head.status_code, head.content) == (200, 200, b"")
    assert form in page.headers["content-type"]
    assert page.headers == head.headers
    assert "http://testserver/orders" in page.text
