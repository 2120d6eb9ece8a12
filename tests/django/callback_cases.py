"""Deliveries in tests as a project writes them: `test_callbacks_test_case.py` has them run."""

import json
from typing import Any

from django.db import transaction
from django.http import Http404
from django.test import TestCase, TransactionTestCase
from django.test.utils import override_settings
from django.urls import path

from retrysafe import current
from retrysafe.callbacks import receipts
from retrysafe.callbacks.jobs import Callback
from retrysafe.callbacks.worker import Worker
from retrysafe.django import guard
from retrysafe.django.models import Record
from tests.django.shop.models import Order

finished = receipts(guard("job-callbacks"), source="jobs", effects="database")
awaited = receipts(guard("job-callbacks"), source="awaited")
inbox = receipts(guard("job-callbacks"), source="inbox", inbox=True, effects="database")


@finished.django
def handle(event: Callback) -> None:
    Order.objects.create(label=event.run_id)
    transaction.on_commit(lambda: None)
    current().on_commit(lambda: None)
    match event.status:
        case "raise":
            raise RuntimeError("the handler failed")
        case "missing":
            raise Http404
        case _:
            pass


@awaited.django
async def handle_async(event: Callback) -> None:
    await Order.objects.acreate(label=event.run_id)


@inbox.django
def handle_later(event: Callback) -> None:
    Order.objects.create(label=event.run_id)


urlpatterns = [path("exact/", handle), path("async/", handle_async), path("inbox/", handle_later)]


def sent(status: str = "success") -> dict[str, Any]:
    payload = {"run_id": "run-1", "callback_id": "c-1", "status": status}
    return {"data": json.dumps(payload), "content_type": "application/json"}


@override_settings(ROOT_URLCONF=__name__)
class InTestCase(TestCase):
    databases = {"default"}  # noqa: RUF012 - as projects write it

    def test_a(self) -> None:
        assert Record.objects.count() == 0
        for replayed in (False, True):
            assert self.client.post("/exact/", **sent()).json()["idempotent_replayed"] is replayed
        assert Order.objects.count() == Record.objects.count() == 1
        [receipt] = finished.list("run-1")
        assert (receipt.id, receipt.state) == ("c-1", "completed")
        assert finished.find("c-1") == receipt

    test_b = test_a  # the same event again: nothing is left of the first

    def test_failure_is_undone(self) -> None:
        Order.objects.create(label="of the test")
        with self.assertRaisesMessage(RuntimeError, "the handler failed"):
            self.client.post("/exact/", **sent("raise"))
        assert Order.objects.count() == 1, "what the test itself wrote is there"
        [receipt] = finished.list("run-1")
        assert (receipt.state, receipt.details["error"]) == ("failed", "RuntimeError: the handler failed")

    def test_refusal_leaves_nothing(self) -> None:
        assert self.client.post("/exact/", **sent("missing")).status_code == 404
        assert Order.objects.count() == Record.objects.count() == 0

    def test_hooks(self) -> None:
        with self.captureOnCommitCallbacks() as hooks:
            self.client.post("/exact/", **sent())
        assert len(hooks) == 1, "the handler's own, and none of ours"

    async def test_async_client(self) -> None:
        for replayed in (False, True):
            response = await self.async_client.post("/async/", **sent())
            assert response.json()["idempotent_replayed"] is replayed
        assert await Order.objects.acount() == 1

    def test_worker(self) -> None:
        assert self.client.post("/inbox/", **sent()).status_code == 202
        assert Order.objects.count() == 0
        Worker(inbox, concurrency=1).run(until_idle=True)
        assert Order.objects.count() == 1
        assert self.client.post("/inbox/", **sent()).json()["idempotent_replayed"] is True


@override_settings(ROOT_URLCONF=__name__)
class InTransactionTestCase(TransactionTestCase):
    databases = {"default"}  # noqa: RUF012 - as projects write it

    test_a = InTestCase.test_a
    test_b = InTestCase.test_a
    test_worker = InTestCase.test_worker
