"""The views of the project, which a test can hold where it wants."""

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from examples.gates import Gates
from retrysafe import current
from retrysafe.callbacks import Receipts, receipts
from retrysafe.callbacks.jobs import Callback
from retrysafe.django import guard, idempotent
from tests.django.shop.models import Finding, Order, Run

FOLDER = Path(settings.FOLDER)
GATES = Gates(FOLDER)


def note(file: str, what: str) -> None:
    """A line, which is there whatever becomes of the process and of its transaction."""
    with (FOLDER / file).open("a") as notes:
        notes.write(f"{what}\n")


def anyone(_: HttpRequest) -> dict[str, str]:
    return {"owner": "anyone"}


def exists(event: Callback) -> bool:
    return Run.objects.filter(id=event.run_id).exists()


def process(event: Callback) -> None:
    note("handled", f"{event.callback_id} {os.getpid()}")
    GATES.pass_through(f"before {event.callback_id}")
    run = Run.objects.select_for_update().get(id=event.run_id)  # events of one run are counted in turn
    for message in ("too hot", "too cold"):
        Finding.objects.create(run=run, message=message)
    Run.objects.filter(id=run.pk).update(
        status=event.status, findings=Finding.objects.filter(run=run).count()
    )
    GATES.pass_through(f"after {event.callback_id}")


exact: Receipts[Callback] = receipts(guard("job-callbacks"), source="exact", check=exists, lease=1.0)
repeatable: Receipts[Callback] = receipts(
    guard("job-callbacks"), source="repeatable", check=exists, effects="repeatable", lease=1.0
)
inbox: Receipts[Callback] = receipts(guard("job-callbacks"), source="inbox", inbox=True, lease=1.0)


@exact.django
def handle_exactly(event: Callback) -> None:
    process(event)


@repeatable.django
def handle_repeatably(event: Callback) -> None:
    """Which it is: the run's findings are replaced."""
    with transaction.atomic():
        Finding.objects.filter(run=event.run_id).delete()
        process(event)


@inbox.django
def handle_later(event: Callback) -> None:
    process(event)


@idempotent
def order(request: HttpRequest) -> HttpResponse:
    """An order, whose task is sent after its commit."""
    from tests.django.jobs import tasks

    ship: Any = tasks.ship  # Celery has no types
    label = request.GET["label"]
    Order.objects.create(label=label)
    on_commit = transaction.on_commit if request.GET["by"] == "django" else current().on_commit
    on_commit(lambda: ship.apply_async((label,), task_id=f"ship-{label}"))
    GATES.pass_through(f"before the commit of {label}")
    match request.GET.get("then"):
        case "raise":
            raise RuntimeError("no card")
        case "mark":
            transaction.set_rollback(True)
        case _:
            pass
    return JsonResponse({"label": label}, status=201)


urlpatterns = [
    path("exact/", handle_exactly),
    path("repeatable/", handle_repeatably),
    path("inbox/", handle_later),
    path("orders/", order),
]
