"""`assert_idempotent` in tests as a project writes them: `test_assertions.py` has them run."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import Client, TestCase, TransactionTestCase
from django.test.utils import override_settings
from django.urls import path
from rest_framework import permissions, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIClient

from retrysafe.django import IdempotentMixin, idempotent
from retrysafe.testing import assert_idempotent, assert_idempotent_async
from tests.django.shop.models import Order


def _order(label: str) -> dict[str, int]:
    Order.objects.count()  # a view that reads before it writes
    return {"order": Order.objects.create(label=label).pk}


@login_required
@idempotent(required=True, effects="database")
def in_database(request: HttpRequest) -> HttpResponse:
    return JsonResponse(_order(request.POST["label"]), status=201)


@idempotent
def outside(request: HttpRequest) -> HttpResponse:
    return JsonResponse(_order(request.POST["label"]), status=201)


@idempotent
def failing(request: HttpRequest) -> HttpResponse:
    _order("made before it failed")
    raise RuntimeError("the view failed")


def unprotected(request: HttpRequest) -> HttpResponse:
    return JsonResponse(_order(request.POST["label"]), status=201)


@idempotent
async def awaited(request: HttpRequest) -> HttpResponse:
    order = await Order.objects.acreate(label=request.POST["label"])
    return JsonResponse({"order": order.pk}, status=201)


@idempotent
async def streaming(request: HttpRequest) -> StreamingHttpResponse:
    order = await Order.objects.acreate(label=request.POST["label"])

    async def pieces() -> Any:
        yield b"order "
        yield str(order.pk).encode()

    found: Any = pieces()
    return StreamingHttpResponse(found, status=201)


class OrderSerializer(serializers.ModelSerializer[Order]):
    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]  # as REST framework has it
        model = Order
        fields = ("id", "label")


class Orders(IdempotentMixin, viewsets.ModelViewSet[Order]):
    idempotency_options = {"required": True, "effects": "database"}  # noqa: RUF012 - as projects write it
    permission_classes = (permissions.IsAuthenticated,)
    serializer_class = OrderSerializer
    queryset = Order.objects.all()

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        Order.objects.count()
        return super().create(request, *args, **kwargs)


router = SimpleRouter()
router.register("api/orders", Orders)

urlpatterns = [
    path("database/", in_database),
    path("outside/", outside),
    path("failing/", failing),
    path("unprotected/", unprotected),
    path("awaited/", awaited),
    path("streaming/", streaming),
    *router.urls,
]

FORM: dict[str, Any] = {"data": {"label": "bread"}}
JSON: dict[str, Any] = {"json": {"label": "bread"}}


def signed_in(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_user(name))
    return client


def authenticated(name: str) -> APIClient:
    client = APIClient()
    client.force_authenticate(User.objects.create_user(name))
    return client


class _Blocking:
    """The same in tests of both kinds."""

    how: dict[str, Any]

    def test_client(self) -> None:
        mine, other = signed_in("ann"), signed_in("bob")
        for url in ("/database/", "/outside/"):
            response = assert_idempotent(
                mine, "POST", url, effects=Order.objects.count, other=other, **FORM, **self.how
            )
            assert response.json()["order"]

    def test_api_client(self) -> None:
        mine, other = authenticated("ann"), authenticated("bob")
        response = assert_idempotent(
            mine, "POST", "/api/orders/", effects=Order.objects.count, other=other, **JSON, **self.how
        )
        assert response.data["label"] == "bread"

    def test_credentials_of_an_api_client(self) -> None:
        mine, other = APIClient(), APIClient()
        mine.credentials(HTTP_AUTHORIZATION="Bearer alice")
        other.credentials(HTTP_AUTHORIZATION="Bearer bob")
        assert_idempotent(
            mine, "POST", "/api/orders/", effects=Order.objects.count, other=other, **JSON, **self.how
        )

    def test_another_method(self) -> None:
        client = authenticated("ann")
        order = Order.objects.create(label="before")
        assert_idempotent(client, "PATCH", f"/api/orders/{order.pk}/", expect=200, **JSON, **self.how)

    def test_a_failure_is_replayed(self) -> None:
        client = Client(raise_request_exception=False, headers={"Authorization": "Bearer alice"})
        assert_idempotent(
            client, "POST", "/failing/", effects=Order.objects.count, expect=500, **FORM, **self.how
        )


class _Awaiting:
    async def test_async_client(self) -> None:
        client: Any = self.async_client  # type: ignore[attr-defined]  # a test case's
        await client.aforce_login(await User.objects.acreate_user("ann"))
        for url in ("/awaited/", "/streaming/", "/database/"):
            response = await assert_idempotent_async(
                client, "POST", url, effects=Order.objects.acount, **FORM
            )
            assert response.status_code == 201


@override_settings(ROOT_URLCONF=__name__)
class InTestCase(_Blocking, _Awaiting, TestCase):
    """Without threads, which the test's transaction is not for."""

    how = {"concurrent": 0}  # noqa: RUF012 - as projects write it


@override_settings(ROOT_URLCONF=__name__)
class InTransactionTestCase(_Blocking, _Awaiting, TransactionTestCase):
    """With duplicates at the same moment."""

    how: dict[str, Any] = {}  # noqa: RUF012 - as projects write it
