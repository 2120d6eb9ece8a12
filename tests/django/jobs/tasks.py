"""The tasks of the project: operations on its database, in the caller's transaction and in their own."""

import os

import django
from celery import Celery, Task  # pyright: ignore[reportMissingTypeStubs]  # it has none

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django.jobs.settings")
django.setup()

from django.conf import settings  # noqa: E402 - the project is set up now
from django.db import connection, transaction  # noqa: E402

from retrysafe import scopes  # noqa: E402
from retrysafe.django import guard  # noqa: E402
from retrysafe.operations import InFlight, Unavailable, operation  # noqa: E402
from tests.django.jobs.urls import GATES, note  # noqa: E402
from tests.django.shop.models import Order  # noqa: E402

app = Celery("jobs", broker=settings.BROKER)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)

LATER = {"autoretry_for": (InFlight, Unavailable), "max_retries": None, "retry_backoff": True}


@app.task  # type: ignore[untyped-decorator]  # of Celery
def ship(label: str) -> None:
    """What it finds says whether it was sent after the commit."""
    note("shipped", f"{label} {Order.objects.filter(label=label).count()}")


@operation(guard(), action="reward", target="order", scope=scopes.service("jobs"))
def reward(order: str, then: str = "") -> int:
    """It says nothing of transactions: what Django writes in it is committed with its record."""
    note("rewarded", f"{order} {os.getpid()}")
    assert connection.in_atomic_block
    GATES.pass_through(f"before {order}")
    Order.objects.create(label=f"reward for {order}")
    GATES.pass_through(f"after {order}")
    if then == "fail":
        raise ConnectionError("the bank is gone")
    return Order.objects.count()


@app.task(bind=True, **LATER)  # type: ignore[untyped-decorator]  # of Celery
def reward_order(self: Task, order: str, then: str = "") -> None:
    note("ended", f"{order} {reward.once(order, then, key=self.request.id).replayed}")


@app.task(bind=True, **LATER)  # type: ignore[untyped-decorator]  # of Celery
def close_order(self: Task, order: str, then: str = "") -> None:
    """Its own writes, and those of the operation, are in one transaction, and so is the record."""
    with transaction.atomic():
        Order.objects.create(label=f"closed {order}")
        replayed = reward.once(order, key=self.request.id).replayed
        if then == "fail" and not replayed:
            note("ended", f"{order} undone")
            raise RuntimeError("nothing of this is to be left")
    note("ended", f"{order} {replayed}")
