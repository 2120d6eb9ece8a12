"""What is done about an order.  Each task calls one operation, with the id of the job as the key."""

import asyncio

from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy

from examples.celery_tasks import cards, labels
from examples.procrastinate_tasks import database
from examples.procrastinate_tasks.database import URL, guard, pool
from retrysafe.operations import InFlight, Unavailable, operation
from retrysafe.psycopg import connection_async

app = App(connector=PsycopgConnector(conninfo=URL))

# What a job is to do when its key is in use by another run of the same job, or the store cannot be reached:
# come again, for as long as it takes.  What else is refused would be refused again: the job fails, and an
# operator looks at it.
LATER = RetryStrategy(wait=1, retry_exceptions=(InFlight, Unavailable))


@operation(guard, target="order", effects="database")
async def reward(customer: str, order: str, points: int, address: str) -> int:
    """Points, and the job that prints the label: rows of one transaction, there once whatever happens."""
    async with connection_async(guard, pool) as db:
        await database.add_points(db, customer, order, points)
        await label_order.configure(connection=db).defer_async(order=order, address=address)
    return points


@operation(guard, target="order")
async def charge(order: str, cents: int) -> str:
    """The card network takes no keys: it is never called again once it may have been called."""
    return await asyncio.to_thread(cards.charge, order, cents)


@operation(guard, target="order", effects="repeatable")
async def label(order: str, address: str) -> str:
    """The same file each time: after a crash it is simply written again."""
    return await asyncio.to_thread(labels.write, order, address)


@app.task(pass_context=True, retry=LATER)
async def reward_order(context: JobContext, customer: str, order: str, points: int, address: str) -> int:
    return (await reward.once(customer, order, points, address, key=str(context.job.id))).value


@app.task(pass_context=True, retry=LATER)
async def charge_order(context: JobContext, order: str, cents: int) -> str:
    return (await charge.once(order, cents, key=str(context.job.id))).value


@app.task(pass_context=True, retry=LATER)
async def label_order(context: JobContext, order: str, address: str) -> str:
    return (await label.once(order, address, key=str(context.job.id))).value


@app.periodic(cron="* * * * *")
@app.task(queueing_lock="retry stalled jobs")
async def retry_stalled_jobs(timestamp: int) -> None:  # noqa: ARG001 - it is passed by its name
    """A worker that was killed leaves its jobs as `doing`: Procrastinate lists them, and does no more."""
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=30):
        await app.job_manager.retry_job(job)
