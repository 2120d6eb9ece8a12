"""What is done about an order.  Each task calls one operation, with the task's id as the key."""

from celery import Task

from examples.celery_tasks import cards, database, labels
from examples.celery_tasks.app import app
from examples.celery_tasks.database import guard
from retrysafe.operations import InFlight, Unavailable, operation
from retrysafe.sqlite3 import connection

# What a task is to do when its key is in use by another delivery of the same task, or the store cannot be
# reached: come again, for as long as it takes.  Dropping it instead would lose the task if the other worker
# dies.  What else is refused would be refused again: the task fails, and an operator looks at it.
LATER = {
    "autoretry_for": (InFlight, Unavailable),
    "max_retries": None,
    "retry_backoff": True,
    "retry_backoff_max": 30,  # seconds, a lease: far below the visibility timeout
}


@operation(guard, target="order", effects="database")
def reward(customer: str, order: str, points: int) -> int:
    """Points are rows of the same database as the records: they are there once, whatever happens."""
    with connection(guard) as db:
        database.add_points(db, customer, order, points)
    return points


@operation(guard, target="order")
def charge(order: str, cents: int) -> str:
    """The card network takes no keys: it is never called again once it may have been called."""
    return cards.charge(order, cents)


@operation(guard, target="order", effects="repeatable")
def label(order: str, address: str) -> str:
    """The same file each time: after a crash it is simply written again."""
    return labels.write(order, address)


@app.task(bind=True, **LATER)
def reward_order(self: Task, customer: str, order: str, points: int) -> int:
    return reward.once(customer, order, points, key=self.request.id).value


@app.task(bind=True, **LATER)
def charge_order(self: Task, order: str, cents: int) -> str:
    return charge.once(order, cents, key=self.request.id).value


@app.task(bind=True, **LATER)
def label_order(self: Task, order: str, address: str) -> str:
    return label.once(order, address, key=self.request.id).value
