"""A worker of the shop that a test can hold before and after each effect.

Run by `python -m examples.procrastinate_tasks.tests.worker`.
"""

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from examples.celery_tasks import cards, labels
from examples.gates import Gates
from examples.procrastinate_tasks import database
from examples.procrastinate_tasks.__main__ import work
from examples.procrastinate_tasks.tasks import app

GATES = Gates(Path(os.environ["SHOP_FOLDER"]))


def _gated(effect: Callable[..., Any]) -> Callable[..., Any]:
    """An effect with a gate before and one after it, named by the order, its first argument."""

    @functools.wraps(effect)
    def gated(order: str, *arguments: Any) -> Any:
        GATES.pass_through(f"before {order}")
        result = effect(order, *arguments)
        GATES.pass_through(f"after {order}")
        return result

    return gated


def _gated_async(
    effect: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., Coroutine[Any, Any, None]]:
    """The same for a coroutine whose third argument is the order."""

    @functools.wraps(effect)
    async def gated(db: Any, customer: str, order: str, points: int) -> None:
        await asyncio.to_thread(GATES.pass_through, f"before {order}")
        await effect(db, customer, order, points)
        await asyncio.to_thread(GATES.pass_through, f"after {order}")

    return gated


cards.charge = _gated(cards.charge)
labels.write = _gated(labels.write)
database.add_points = _gated_async(database.add_points)


@app.task(name="charge_without_a_key")
async def charge_without_a_key(order: str, cents: int) -> str:
    """What people write first."""
    return await asyncio.to_thread(cards.charge, order, cents)


if __name__ == "__main__":
    asyncio.run(work(concurrency=20, fetch_job_polling_interval=0.1))
