"""Views of REST framework that claim: of every kind, and after authentication, permissions and throttles."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from django.test import Client, RequestFactory
from django.urls import include, path
from django.utils.decorators import method_decorator
from rest_framework import generics, permissions, serializers, throttling, viewsets
from rest_framework.decorators import action, api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.versioning import AcceptHeaderVersioning
from rest_framework.views import APIView

from retrysafe.django import IdempotentMixin, idempotent
from retrysafe.django.models import Record
from retrysafe.errors import ConfigurationError
from tests.django.api import check_replayed, is_replay, order, runs, send
from tests.django.shop.models import Order


class OrderSerializer(serializers.ModelSerializer[Order]):
    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]  # as projects write it
        model = Order
        fields = ("id", "label")

    def create(self, validated_data: dict[str, Any]) -> Order:
        runs.append("create")
        return super().create(validated_data)

    def update(self, instance: Order, validated_data: dict[str, Any]) -> Order:
        runs.append("update")
        return super().update(instance, validated_data)


class Decorated(APIView):
    @idempotent(required=True, effects="database")
    def post(self, request: Request) -> Response:
        return Response(order(), status=201)

    @idempotent
    def get(self, request: Request) -> Response:
        return Response({"run": len(runs)})


@method_decorator(idempotent(effects="database"), name="post")
class ByName(APIView):
    def post(self, request: Request) -> Response:
        return Response(order(), status=201)


class Asked(permissions.BasePermission):
    """Whether this may be done, by `allowed`; it reads the request's data, as permissions do."""

    allowed = True
    seen: ClassVar[list[object]] = []

    def has_permission(self, request: Request, view: object) -> bool:
        self.seen.append(request.data)
        return self.allowed


@method_decorator(idempotent(required=True), name="dispatch")
class ByDispatch(APIView):
    permission_classes = (Asked,)

    def post(self, request: Request) -> Response:
        return Response(order(), status=201)


class Generic(generics.ListCreateAPIView[Order]):
    queryset = Order.objects.all()
    serializer_class = OrderSerializer

    @idempotent(effects="database")
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Which `post` calls, that is REST framework's own."""
        return super().create(request, *args, **kwargs)


class ByMixin(IdempotentMixin, generics.CreateAPIView[Order]):
    permission_classes = (Asked,)
    queryset = Order.objects.all()
    serializer_class = OrderSerializer
    idempotency_options: ClassVar[Any] = {"required": True, "effects": "database"}


class Orders(IdempotentMixin, viewsets.ModelViewSet[Order]):
    queryset = Order.objects.all()
    serializer_class = OrderSerializer
    idempotency_options: ClassVar[Any] = {"effects": "database"}

    @action(detail=True, methods=["post"])
    def ship(self, request: Request, pk: str) -> Response:
        return Response(order("shipped"), status=202)


class Some(viewsets.ModelViewSet[Order]):
    queryset = Order.objects.all()
    serializer_class = OrderSerializer

    @idempotent(effects="database")
    def update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().update(request, *args, **kwargs)

    @action(detail=True, methods=["post"])
    @idempotent(effects="database")
    def ship(self, request: Request, pk: str) -> Response:
        return Response(order("shipped"), status=202)

    @action(detail=True, methods=["post"])
    def look(self, request: Request, pk: str) -> Response:
        return Response(order("looked"))


@method_decorator(idempotent(), name="update")
@method_decorator(idempotent(), name="partial_update")
class Both(viewsets.ModelViewSet[Order]):
    """`partial_update` calls `update`."""

    queryset = Order.objects.all()
    serializer_class = OrderSerializer


class ByKeyword(APIView):
    """Its method is called by another one, which names the request."""

    def post(self, request: Request) -> Response:
        return self.create(request=request)

    @idempotent
    def create(self, request: Request) -> Response:
        return Response(order(), status=201)


@api_view(["POST", "PUT", "GET"])
@idempotent(effects="database")
def function(request: Request) -> Response:
    return Response(order(request.method or ""), status=201)


class Slow(throttling.BaseThrottle):
    allowed = True

    def allow_request(self, request: Request, view: object) -> bool:
        return self.allowed

    def wait(self) -> float:
        return 7


class Private(APIView):
    permission_classes = (permissions.IsAuthenticated, Asked)
    throttle_classes = (Slow,)

    @idempotent(effects="database")
    def post(self, request: Request) -> Response:
        return Response(order(), status=201)


class Versioned(APIView):
    versioning_class = AcceptHeaderVersioning

    @idempotent
    def post(self, request: Request) -> Response:
        return Response(order(str(request.version)), status=201)


class Optional(APIView):
    @idempotent(required="warn")
    def post(self, request: Request) -> Response:
        return Response(order(), status=201)


router = SimpleRouter()
router.register("orders", Orders)
router.register("some", Some, basename="some")
router.register("both", Both, basename="both")

urlpatterns = [
    path("decorated/", Decorated.as_view()),
    path("by-name/", ByName.as_view()),
    path("by-dispatch/", ByDispatch.as_view()),
    path("generic/", Generic.as_view()),
    path("mixin/", ByMixin.as_view()),
    path("function/", function),
    path("private/", Private.as_view()),
    path("versioned/", Versioned.as_view()),
    path("optional/", Optional.as_view()),
    path("by-keyword/", ByKeyword.as_view()),
    path("v1/", include(router.urls)),
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    runs.clear()
    Asked.seen.clear()
    yield
    Asked.allowed = Slow.allowed = True


@pytest.mark.parametrize(
    "url",
    [
        "/decorated/",
        "/by-name/",
        "/by-dispatch/",
        "/function/",
        "/generic/",
        "/mixin/",
        "/v1/orders/",
        "/by-keyword/",
    ],
)
def test_every_kind_of_view(client: Client, each_database: str, url: str) -> None:
    """It runs once, and the retry has the same status and bytes, rendered as the first."""
    first, second = (send(client, url, {"label": "-"}) for _ in range(2))
    check_replayed(first, second, 201)
    assert second.headers["Content-Type"] == "application/json"
    assert second.headers["Allow"] == first.headers["Allow"]
    assert "Accept" in second.headers["Vary"]
    assert len(runs) == Order.objects.count() == Record.objects.count() == 1


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("url", ["/v1/orders/", "/v1/some/", "/v1/both/"])
def test_updates(client: Client, each_database: str, url: str, method: str) -> None:
    """By whichever of its methods a generic view does them, also where a decorated one calls the other."""
    one = Order.objects.create(label="before")
    first, second = (send(client, f"{url}{one.pk}/", {"label": "after"}, method) for _ in range(2))
    check_replayed(first, second, 200)
    assert runs == ["update"]
    one.refresh_from_db()
    assert one.label == "after"


def test_deletion(client: Client, each_database: str) -> None:
    """A 204 is replayed without a body, where a second run would be a 404."""
    one = Order.objects.create(label="one")
    first, second = (send(client, f"/v1/orders/{one.pk}/", method="DELETE") for _ in range(2))
    check_replayed(first, second, 204)
    assert second.content == b""
    assert Order.objects.count() == 0


def test_actions(client: Client, each_database: str) -> None:
    """Of a class with the mixin all that change something, and otherwise those that are decorated."""
    for url in ("/v1/orders/1/ship/", "/v1/some/1/ship/"):
        check_replayed(send(client, url, key=url), send(client, url, key=url), 202)
    assert runs == ["shipped", "shipped"]
    assert not any(is_replay(send(client, "/v1/some/1/look/")) for _ in range(2))
    assert runs[2:] == ["looked", "looked"]


def test_a_function_by_several_methods(client: Client) -> None:
    """Each has its own fingerprint: the same key by another method is another request."""
    assert send(client, "/function/").status_code == 201
    assert send(client, "/function/", method="PUT").status_code == 422
    assert runs == ["POST"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("url", ["/decorated/", "/v1/orders/", "/by-dispatch/"])
def test_reads_are_left_alone(client: Client, url: str, method: str) -> None:
    """Also with a key, and under a class that requires one."""
    status = 405 if url == "/by-dispatch/" and method != "OPTIONS" else 200
    for _ in range(2):
        response = send(client, url, method=method)
        assert response.status_code == status
        assert "Idempotent-Replayed" not in response.headers
    assert Record.objects.count() == 0


@pytest.mark.parametrize("url", ["/decorated/", "/by-dispatch/", "/mixin/"])
def test_a_key_is_required(client: Client, url: str) -> None:
    response = client.post(url, {"label": "-"}, content_type="application/json")
    assert (response.status_code, response.json()["code"]) == (400, "key-missing")
    assert runs == []


def test_a_key_is_asked_for(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """`required="warn"`: it is served, and logged."""
    assert client.post("/optional/").status_code == 201
    assert runs == ["-"]
    assert "without a key" in caplog.text


# --- who may do what


@pytest.mark.parametrize("url", ["/private/", "/mixin/", "/by-dispatch/"])
def test_permissions_come_first(client: Client, each_database: str, url: str) -> None:
    """Before a claim, and before a replay: what was revoked meanwhile is not shown again."""
    Asked.allowed = False
    assert send(client, url, {"label": "-"}).status_code == 403
    assert Record.objects.count() == 0
    Asked.allowed = True
    first = send(client, url, {"label": "-"})
    Asked.allowed = False
    assert send(client, url, {"label": "-"}).status_code == 403
    # They come before a missing key, too.
    assert client.post(url, "{}", content_type="application/json").status_code == 403
    Asked.allowed = True
    check_replayed(first, send(client, url, {"label": "-"}), 201)
    assert len(runs) == 1


def test_authentication_comes_first(client: Client, each_database: str) -> None:
    """Nobody, and somebody whose credentials are refused, have no record and see none."""
    first = send(client, "/private/")
    assert first.status_code == 201
    assert send(Client(), "/private/").status_code == 401
    assert send(client, "/private/", headers={"Authorization": "Bearer revoked"}).status_code == 401
    assert Record.objects.count() == 1
    check_replayed(first, send(client, "/private/"), 201)


def test_keys_belong_to_whom_the_framework_has_authenticated(client: Client) -> None:
    """The same key of another user is another one."""
    send(client, "/private/")
    assert not is_replay(send(client, "/private/", headers={"Authorization": "Bearer bob"}))
    assert runs == ["-", "-"]


def test_throttles_come_first(client: Client) -> None:
    """A 429 is nothing that was done: it has no record, and the retry runs."""
    Slow.allowed = False
    response = send(client, "/private/")
    assert (response.status_code, response.headers["Retry-After"]) == (429, "7")
    assert Record.objects.count() == 0
    Slow.allowed = True
    check_replayed(send(client, "/private/"), send(client, "/private/"), 201)


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded"])
def test_a_permission_may_read_the_data(client: Client, content_type: str) -> None:
    """Before the claim, which has the whole body in its fingerprint all the same."""
    bodies = ['{"label": "a"}', '{"label": "b"}'] if "json" in content_type else ["label=a", "label=b"]
    first, second, other = (
        send(client, "/by-dispatch/", data=body, content_type=content_type) for body in (bodies[0], *bodies)
    )
    check_replayed(first, second, 201)
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    assert [dict(seen)["label"] in ("a", ["a"]) for seen in Asked.seen] == [True, True, False]  # type: ignore[call-overload]  # a mapping


def test_versions(client: Client) -> None:
    """The version is not part of the request's identity, unless it is in the path."""
    first = send(client, "/versioned/", headers={"Accept": "application/json; version=1.0"})
    second = send(client, "/versioned/", headers={"Accept": "application/json; version=2.0"})
    check_replayed(first, second, 201)
    assert json.loads(first.content)["label"] == "1.0"


# --- misuse


def test_a_decorator_above_api_view_is_refused() -> None:
    """It would claim before REST framework has authenticated anyone."""
    with pytest.raises(ConfigurationError, match="Below @api_view"):
        idempotent(function)
    with pytest.raises(ConfigurationError, match="Below @api_view"):
        idempotent(Decorated.as_view())


def test_a_mixin_after_its_view_is_refused() -> None:
    """Its `dispatch` would never be called."""
    with pytest.raises(ConfigurationError, match="after the view"):
        type("Wrong", (APIView, IdempotentMixin), {})


def test_a_test_may_call_a_view_itself(client: Client) -> None:
    """With a request of a factory's, without middlewares."""
    headers = {"Idempotency-Key": "k1", "Authorization": "Bearer alice"}
    first, second = (function(RequestFactory().post("/function/", headers=headers)) for _ in range(2))
    check_replayed(first, second, 201)
