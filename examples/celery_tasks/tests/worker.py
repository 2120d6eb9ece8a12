"""The shop in workers that a test can hold where it wants, and that write down every run of a task.

Run by `celery -A examples.celery_tasks.tests.worker worker`.
"""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import Task
from celery.exceptions import Retry
from celery.signals import task_postrun, task_prerun

from examples.celery_tasks import cards, database, labels
from examples.celery_tasks.app import app
from examples.celery_tasks.database import guard
from examples.gates import Gates
from retrysafe import NotDone
from retrysafe.operations import operation
from retrysafe.sqlite3 import connection

__all__ = ["app"]

FOLDER = Path(os.environ["SHOP_FOLDER"])
GATES = Gates(FOLDER)


def _gated(effect: Callable[..., Any], order: int) -> Callable[..., Any]:
    """An effect with a gate before and one after it, named by the order, an argument."""

    @functools.wraps(effect)
    def gated(*arguments: Any) -> Any:
        GATES.pass_through(f"before {arguments[order]}")
        result = effect(*arguments)
        GATES.pass_through(f"after {arguments[order]}")
        return result

    return gated


cards.charge = _gated(cards.charge, 0)
database.add_points = _gated(database.add_points, 2)
labels.write = _gated(labels.write, 0)

# How soon a worker looks for messages that are older than the visibility timeout; it is 100 s by default.
app.conf.broker_transport_options |= {"unacked_restore_interval": 1, "unacked_restore_throttle": 1}


def _note(**what: object) -> None:
    with (FOLDER / "runs").open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), **what}) + "\n")


@task_prerun.connect
def _begun(task_id: str, **_: object) -> None:
    _note(id=task_id, state="STARTED", value=None)


@task_postrun.connect
def _ended(task_id: str, retval: object, state: str | None, **_: object) -> None:
    error = retval.exc if isinstance(retval, Retry) else retval
    _note(id=task_id, state=state, value=retval if isinstance(retval, str | int) else str(error))


@app.task
def charge_without_a_key(order: str, cents: int) -> str:
    """What people write first."""
    return cards.charge(order, cents)


def _fail_once(kind: str, error: Exception) -> str:
    """The first time that it is called in any process."""
    try:
        (FOLDER / f"{kind}.failed").touch(exist_ok=False)
    except FileExistsError:
        return kind
    raise error


LOST = ConnectionError("no route to the card network")


@operation(guard)
def outside(kind: str) -> str:
    return _fail_once(kind, LOST)


@operation(guard, retry_on=(ConnectionError,))
def retry_on(kind: str) -> str:
    return _fail_once(kind, LOST)


@operation(guard)
def not_done(kind: str) -> str:
    return _fail_once(kind, NotDone("the card network is closed"))


@operation(guard, effects="database")
def database_(kind: str) -> str:
    with connection(guard) as db:
        database.add_points(db, "ann", kind, 1)
        return _fail_once(kind, LOST)


@operation(guard, effects="repeatable")
def repeatable(kind: str) -> str:
    return _fail_once(kind, LOST)


OPERATIONS = {
    "outside": outside,
    "retry_on": retry_on,
    "not_done": not_done,
    "database": database_,
    "repeatable": repeatable,
}


@app.task(bind=True, autoretry_for=(ConnectionError, NotDone), default_retry_delay=0)
def fail_once(self: Task, kind: str) -> str:
    return OPERATIONS[kind].once(kind, key=self.request.id).value
