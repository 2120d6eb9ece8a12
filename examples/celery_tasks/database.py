"""The shop's database, and the guard whose records are in it."""

import os
import sqlite3
from contextlib import closing

from retrysafe import Guard, scopes

PATH = os.environ.get("SHOP_DATABASE", "shop.db")

guard = Guard(
    f"sqlite:///{PATH}",
    # Keys are ids of tasks, and all of them are this service's own.
    scope=scopes.service("shop"),
    # How long a task waits for a worker that was killed.  Renewed while a task runs.
    lease=float(os.environ.get("SHOP_LEASE", "30")),
)


def set_up() -> None:
    with closing(sqlite3.connect(PATH)) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS points (customer TEXT, order_id TEXT, points INTEGER)")


def add_points(db: sqlite3.Connection, customer: str, order: str, points: int) -> None:
    """Not unique: that an order is rewarded once is the guard's doing."""
    db.execute("INSERT INTO points VALUES (?, ?, ?)", (customer, order, points))
