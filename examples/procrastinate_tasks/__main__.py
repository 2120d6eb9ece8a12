"""Makes the tables, and works: `python -m examples.procrastinate_tasks`."""

import asyncio

from examples.procrastinate_tasks.database import guard, pool, set_up
from examples.procrastinate_tasks.tasks import app


async def work(*, concurrency: int = 10, fetch_job_polling_interval: float = 1) -> None:
    """Until it is asked to stop: SIGTERM lets running jobs finish."""
    async with pool, app.open_async():
        try:
            await app.run_worker_async(
                concurrency=concurrency, fetch_job_polling_interval=fetch_job_polling_interval
            )
        finally:
            # An operation outlives a job that was aborted.  It is waited for, so that its outcome is stored.
            await guard.drain_async()
            guard.close()


async def create_schema() -> None:
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()


if __name__ == "__main__":
    set_up()
    asyncio.run(create_schema())
    asyncio.run(work())
