"""The OpenAPI document of drf-spectacular: exactly the protected operations say that they take keys."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import httpx
import pytest
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.test import Client, override_settings
from django.urls import include, path, re_path
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings
from drf_spectacular.utils import OpenApiParameter, extend_schema
from drf_spectacular.validation import validate_schema
from drf_spectacular.views import SpectacularAPIView
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType
from rest_framework import generics, parsers, serializers, versioning, viewsets
from rest_framework.decorators import action, api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from retrysafe.django import IdempotentMixin, idempotent
from tests.django.api import order, runs
from tests.django.shop.models import Order

HOOKS = ["drf_spectacular.hooks.postprocess_schema_enums", "retrysafe.django.spectacular.describe_keys"]


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # drf-spectacular's
    target_class = "tests.django.signing.Bearer"
    name = "bearer"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class OrderSerializer(serializers.ModelSerializer[Order]):
    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]  # as projects write it
        model = Order
        fields = ("id", "label")


class Orders(IdempotentMixin, viewsets.ModelViewSet[Order]):
    parser_classes = (parsers.JSONParser,)
    queryset = Order.objects.all()
    serializer_class = OrderSerializer
    idempotency_options: ClassVar[Any] = {"required": True, "effects": "database", "retention": "2d"}

    @extend_schema(request=None, responses={202: OrderSerializer})
    @action(detail=True, methods=["post"])
    def ship(self, request: Request, pk: str) -> Response:
        return Response(order(), status=202)


class Created(generics.CreateAPIView[Order]):
    queryset = Order.objects.all()
    serializer_class = OrderSerializer

    @idempotent
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        runs.append("create")
        return super().create(request, *args, **kwargs)


class Unprotected(generics.ListCreateAPIView[Order]):
    queryset = Order.objects.all()
    serializer_class = OrderSerializer


@extend_schema(
    request=None,
    responses={200: OrderSerializer, 409: OrderSerializer},
    parameters=[OpenApiParameter("idempotency-key", location="header", description="Our own words.")],
)
@api_view(["POST"])
@idempotent(effects="repeatable")
def described(request: Request) -> Response:
    return Response(order())


class Versioned(Created):
    versioning_class = versioning.URLPathVersioning


router = SimpleRouter()
router.register("orders", Orders)

urlpatterns = [
    path("api/", include(router.urls)),
    path("api/created/", Created.as_view()),
    path("api/unprotected/", Unprotected.as_view()),
    re_path(r"^api/described/(?P<order_id>\d+)/$", described),
    path("api/<str:version>/versioned/", Versioned.as_view()),
    path(
        "schema/",
        SpectacularAPIView.as_view(serve_public=False, custom_settings={"POSTPROCESSING_HOOKS": HOOKS}),
    ),
]

PROTECTED = {
    "POST /api/orders/",
    "PUT /api/orders/{id}/",
    "PATCH /api/orders/{id}/",
    "DELETE /api/orders/{id}/",
    "POST /api/orders/{id}/ship/",
    "POST /api/created/",
    "POST /api/described/{order_id}/",
    "POST /api/v1/versioned/",
}


@pytest.fixture(autouse=True)
def own_routes() -> Iterator[None]:
    runs.clear()
    with override_settings(ROOT_URLCONF=__name__):
        yield


def make(**said: Any) -> dict[str, Any]:
    """The document, valid by drf-spectacular's own rules."""
    with patched_settings({"POSTPROCESSING_HOOKS": HOOKS, **said}):
        untyped: Any = SchemaGenerator
        document: dict[str, Any] = untyped(api_version="v1").get_schema(public=True)
        validate: Any = validate_schema
        validate(document)
    return document


def operations(document: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def keys_of(document: dict[str, Any]) -> dict[str, Any]:
    """The key of each operation that has one."""
    return {
        name: parameter
        for name, operation in operations(document).items()
        for parameter in operation.get("parameters", [])
        if parameter["name"].lower() in ("idempotency-key", "x-idempotency-key")
    }


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_exactly_the_protected_operations(version: str) -> None:
    """Of classes, functions and generic views; reads and unprotected ones not."""
    keys = keys_of(make(OAS_VERSION=version))
    assert set(keys) == PROTECTED
    assert {name for name, key in keys.items() if key.get("required")} == {
        name for name in PROTECTED if "/orders/" in name
    }


def test_problems_headers_and_retention() -> None:
    """Each status of a refusal with the schema of problems, the headers of replays, and the retention."""
    document = make()
    operation = operations(document)["POST /api/orders/"]
    responses = operation["responses"]
    for status, code in (
        ("400", "key-missing"),
        ("409", "in-flight"),
        ("422", "key-reused"),
        ("503", "draining"),
    ):
        assert f"`{code}`" in responses[status]["description"]
        schema = responses[status]["content"]["application/problem+json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/IdempotencyProblem"}
    assert {"Idempotent-Replayed", "Original-Request-Id"} <= set(responses["201"]["headers"])
    assert {"Retry-After", "Retry-After-Ms", "x-should-retry"} <= {
        name if name != "X-Should-Retry" else "x-should-retry" for name in responses["409"]["headers"]
    }
    assert "2 days" in keys_of(document)["POST /api/orders/"]["description"]
    assert "24 hours" in keys_of(document)["POST /api/created/"]["description"]
    assert "IdempotencyProblem" in document["components"]["schemas"]
    # A key that is optional is not missing, and in the database no outcome is unknown.
    optional = operations(document)["POST /api/created/"]["responses"]
    assert "key-missing" not in optional["400"]["description"]
    assert "outcome-unknown" in optional["409"]["description"]
    assert "outcome-unknown" not in responses["409"]["description"]


def test_what_is_described_already() -> None:
    """It stays, beside what is added."""
    operation = operations(make())["POST /api/described/{order_id}/"]
    [key] = [one for one in operation["parameters"] if one["in"] == "header"]
    assert key["description"] == "Our own words."
    conflict = operation["responses"]["409"]
    assert conflict["content"]["application/json"]["schema"]["anyOf"][0] == {
        "$ref": "#/components/schemas/Order"
    }
    assert "Or, about the key" in conflict["description"]


def test_the_words_of_a_profile() -> None:
    """Another header, without DELETE, and other statuses."""
    with override_settings(RETRYSAFE={**settings.RETRYSAFE, "PROFILE": "agents"}):
        keys = keys_of(make())
    assert {key["name"] for key in keys.values()} == {"X-Idempotency-Key"}
    assert set(keys) == {name for name in PROTECTED if "DELETE" not in name}
    with override_settings(RETRYSAFE={**settings.RETRYSAFE, "PROFILE": "stripe"}):
        document = make()
    responses = operations(document)["POST /api/created/"]["responses"]
    assert "422" not in responses
    assert "key-reused" in responses["400"]["description"]
    assert "application/json" in responses["400"]["content"]
    assert "IdempotencyProblem" not in document["components"]["schemas"]


@pytest.mark.parametrize(
    "said",
    [
        {"SCHEMA_PATH_PREFIX": "/api", "SCHEMA_PATH_PREFIX_TRIM": True},
        {"SCHEMA_PATH_PREFIX_TRIM": True},
        {"SCHEMA_PATH_PREFIX_INSERT": "/gateway"},
        {"CAMELIZE_NAMES": True},
        {"SCHEMA_COERCE_PATH_PK_SUFFIX": True},
        {"SORT_OPERATIONS": False},
        {"POSTPROCESSING_HOOKS": HOOKS[::-1]},
        {"COMPONENT_SPLIT_REQUEST": True},
    ],
    ids=lambda said: ", ".join(said),
)
def test_however_paths_are_written(said: dict[str, Any]) -> None:
    """drf-spectacular has settings that rewrite them."""
    keys = keys_of(make(**said))
    assert len(keys) == len(PROTECTED)
    assert not any("unprotected" in name for name in keys)


def test_what_the_middleware_covers() -> None:
    """It claims for all below its paths that are not decorated."""
    covered = {
        **settings.RETRYSAFE,
        "PATHS": ["/api/unprotected/*"],
        "ROUTES": {"/api/unprotected/": {"required": True}},
    }
    with override_settings(RETRYSAFE=covered):
        keys = keys_of(make())
    assert set(keys) == PROTECTED | {"POST /api/unprotected/"}
    assert keys["POST /api/unprotected/"]["required"]


def test_the_view_of_the_document(client: Client) -> None:
    """What a client downloads, whose permissions may hide some of it."""
    response = client.get("/schema/?format=json")
    assert response.status_code == 200
    document = json.loads(response.content)
    assert "POST /api/created/" in keys_of(document)


# --- a client that is generated from it

PACKAGE = "generated_django"


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(make()), encoding="utf-8")
    folder = tmp_path / PACKAGE
    said = ConfigFile(post_hooks=[])  # nothing is formatted afterwards: that would be another program
    config = Config.from_sources(said, MetaType.NONE, document, "utf-8", False, folder)
    assert list(generate(config=config)) == []
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(PACKAGE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_a_generated_client(generated: ModuleType) -> None:
    """It sends the key as an argument, sees that a response is a replay, and reads problems as such."""
    create = importlib.import_module(f"{PACKAGE}.api.api.api_orders_create")
    order_model = importlib.import_module(f"{PACKAGE}.models").Order
    transport = httpx.WSGITransport(get_wsgi_application())

    def call(label: str, **arguments: Any) -> Any:
        client = generated.Client(
            base_url="http://shop.test",
            headers={"Authorization": "Bearer alice"},
            httpx_args={"transport": transport},
        )
        with client as opened:
            body = order_model(id=0, label=label)
            return create.sync_detailed(client=opened, body=body, **arguments)

    first, second = (call("one", idempotency_key="k1") for _ in range(2))
    assert first.status_code == 201
    assert second.parsed == first.parsed
    assert [one.headers.get("idempotent-replayed") for one in (first, second)] == [None, "true"]
    reused = call("two", idempotency_key="k1")
    assert (reused.status_code, reused.parsed.code) == (422, "key-reused")
    with pytest.raises(TypeError, match="idempotency_key"):
        call("two")  # it is required, so the client's signature has it
