"""Tests as a project writes them, for Django's runner: `test_test_tools.py` has them run.

Each begins without records, whatever the one before it has done.
"""

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncRequestFactory, RequestFactory, TestCase, TransactionTestCase
from django.test.utils import override_settings
from django.urls import path

from retrysafe.django import idempotent
from retrysafe.django.models import Record
from tests.django.shop.models import Order
from tests.django.signing import Person


@idempotent(effects="database")
def create(request: HttpRequest) -> HttpResponse:
    Order.objects.create(label="made")
    if request.GET.get("fail"):
        raise RuntimeError("the view failed")
    transaction.on_commit(lambda: None)
    return JsonResponse({"orders": Order.objects.count()}, status=201)


@idempotent
async def create_async(request: HttpRequest) -> HttpResponse:
    await Order.objects.acreate(label="made")
    return JsonResponse({"orders": await Order.objects.acount()}, status=201)


urlpatterns = [path("create/", create), path("async/", create_async)]

KEYED: dict[str, str] = {"Idempotency-Key": "k1", "Authorization": "Bearer alice"}


@override_settings(ROOT_URLCONF=__name__)
class InTestCase(TestCase):
    databases = {"default"}  # noqa: RUF012 - as projects write it

    def test_a(self) -> None:
        assert Record.objects.count() == 0
        for replayed in (None, "true"):
            response = self.client.post("/create/", headers=KEYED)
            assert response.status_code == 201
            assert response.headers.get("Idempotent-Replayed") == replayed
        assert Order.objects.count() == Record.objects.count() == 1

    test_b = test_a  # the same key again: nothing is left of the first

    def test_mismatch(self) -> None:
        self.client.post("/create/", headers=KEYED)
        assert self.client.post("/create/?other=1", headers=KEYED).status_code == 422

    def test_failure_is_undone(self) -> None:
        Order.objects.create(label="of the test")
        with self.assertRaisesMessage(RuntimeError, "the view failed"):
            self.client.post("/create/?fail=1", headers=KEYED)
        assert Order.objects.count() == 1, "what the test itself wrote is there"
        assert Record.objects.count() == 0

    def test_hooks(self) -> None:
        with self.captureOnCommitCallbacks() as hooks:
            self.client.post("/create/", headers=KEYED)
        assert len(hooks) == 1, "the view's own, and none of ours"

    def test_queries_of_the_view_alone(self) -> None:
        with self.assertNumQueries(4):  # a savepoint, an insert, a count, and the savepoint's end
            self.client.post("/create/", headers=KEYED)

    def test_request_factory(self) -> None:
        request = RequestFactory().post("/create/", headers=KEYED)
        request.user = Person("alice")  # type: ignore[assignment]  # a user without a table
        first, second = create(request), create(RequestFactory().post("/create/", headers=KEYED))
        assert first.status_code == 201
        assert second.status_code == 400, "without a user, it is not known whose key it is"

    async def test_async_client(self) -> None:
        for replayed in (None, "true"):
            response = await self.async_client.post("/async/", headers=KEYED)
            assert response.status_code == 201, response.content
            assert response.headers.get("Idempotent-Replayed") == replayed
        assert await Order.objects.acount() == 1

    async def test_async_request_factory(self) -> None:
        request = AsyncRequestFactory().post("/async/", headers=KEYED)
        request.user = Person("alice")  # type: ignore[assignment]  # a user without a table
        response = await create_async(request)
        assert response.status_code == 201


@override_settings(ROOT_URLCONF=__name__)
class InTransactionTestCase(TransactionTestCase):
    databases = {"default"}  # noqa: RUF012 - as projects write it

    def test_a(self) -> None:
        assert Record.objects.count() == 0, "the flush after each test empties our tables, too"
        for replayed in (None, "true"):
            response = self.client.post("/create/", headers=KEYED)
            assert response.headers.get("Idempotent-Replayed") == replayed
        assert Record.objects.count() == 1

    test_b = test_a
