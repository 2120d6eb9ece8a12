"""The shop's database: its tables, Procrastinate's jobs, and the records of the guard."""

import os

import psycopg
from psycopg_pool import AsyncConnectionPool

from retrysafe import Guard, scopes

URL = os.environ.get("SHOP_DATABASE", "postgresql://shop:secret@localhost/shop")

guard = Guard(
    URL,
    # Keys are ids of jobs, and all of them are this service's own.
    scope=scopes.service("shop"),
    # How long a job waits for a worker that was killed.  Renewed while a job runs.
    lease=float(os.environ.get("SHOP_LEASE", "30")),
)

pool = AsyncConnectionPool(URL, min_size=1, max_size=10, open=False)


def set_up() -> None:
    with psycopg.connect(URL) as db:
        db.execute("CREATE TABLE IF NOT EXISTS points (customer text, order_id text, points integer)")


async def add_points(
    db: psycopg.AsyncConnection[tuple[object, ...]], customer: str, order: str, points: int
) -> None:
    """Not unique: that an order is rewarded once is the guard's doing."""
    await db.execute("INSERT INTO points VALUES (%s, %s, %s)", (customer, order, points))
