"""The Celery application, and what makes a worker that dies give its tasks back."""

import os

from celery import Celery
from celery.signals import worker_init

from examples.celery_tasks import database

app = Celery(
    "shop",
    broker=os.environ.get("SHOP_BROKER", "redis://127.0.0.1:6379/0"),
    include=["examples.celery_tasks.tasks"],
)
app.conf.update(
    # A message is acknowledged when its task has ended, and not when it begins: else a task is lost with its
    # worker.  From here on every task can run twice.
    task_acks_late=True,
    # If a process of the pool is killed, its message goes back to the queue at once.  If the whole worker
    # is, Redis shows the message to another one after the visibility timeout.
    task_reject_on_worker_lost=True,
    broker_transport_options={"visibility_timeout": float(os.environ.get("SHOP_VISIBILITY", "3600"))},
    # Return values are in the records of the guard.
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)


@worker_init.connect
def _prepare(**_: object) -> None:
    database.set_up()
