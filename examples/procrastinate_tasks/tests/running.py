"""The shop's workers, its database, and what they did."""

from datetime import UTC, datetime
from pathlib import Path
from typing import LiteralString

import psycopg
from procrastinate import App, SyncPsycopgConnector

from examples.workers import Workers

_TASKS = "examples.procrastinate_tasks.tasks"
CHARGE, LABEL, REWARD = f"{_TASKS}.charge_order", f"{_TASKS}.label_order", f"{_TASKS}.reward_order"
RETRY_STALLED = f"{_TASKS}.retry_stalled_jobs"


class Shop(Workers):
    """A shop whose workers wait at its database."""

    def __init__(self, database: str, folder: Path) -> None:
        super().__init__(folder, database, SHOP_DATABASE=database)
        self._procrastinate = App(connector=SyncPsycopgConnector(conninfo=database))
        self._procrastinate.open()
        self._procrastinate.schema_manager.apply_schema()
        self._db = psycopg.connect(database, autocommit=True)
        self._db.execute("CREATE TABLE points (customer text, order_id text, points integer)")

    def close(self) -> None:
        super().close()
        self._db.close()
        self._procrastinate.close()

    def start_worker(self) -> None:
        self.start("examples.procrastinate_tasks.tests.worker")

    # --- jobs

    def defer(self, task: str, **arguments: str | int) -> int:
        """Gives the id of the job."""
        return self._procrastinate.configure_task(task).defer(**arguments)

    def hold(self, task: str, order: str, **arguments: str | int) -> int:
        """Defer a job, and hold it before or after its effect: the end of the order's name says which."""
        place = f"{order.rpartition('-')[2]} {order}"
        self.gates.close(place)
        job = self.defer(task, order=order, **arguments)
        self.wait_until_held(place)
        return job

    def retry(self, job: int) -> None:
        """What `retry_stalled_jobs` does with a job whose worker has sent no heartbeat for a while."""
        self._procrastinate.job_manager.retry_job_by_id(job, retry_at=datetime.now(UTC))

    def abort(self, job: int) -> None:
        self._procrastinate.job_manager.cancel_job_by_id(job, abort=True)

    def let_a_minute_pass(self) -> None:
        """Since the last heartbeat of every worker that was started until now."""
        self._db.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")

    def forget_that_it_is_done(self, job: int) -> None:
        """As if its worker had died just before it noted that."""
        self._db.execute("UPDATE procrastinate_jobs SET status = 'doing' WHERE id = %s", (job,))

    def wait_for(self, job: int, status: str) -> None:
        self.wait_until(lambda: self.status(job) == status)

    def status(self, job: int) -> str:
        return self._procrastinate.job_manager.get_job_status(job).value

    def attempts(self, job: int) -> int:
        """How often it was run to an end, or given back."""
        return self._number("SELECT attempts FROM procrastinate_jobs WHERE id = %s", job)

    # --- what they did

    def rewards(self, order: str) -> int:
        return self._number("SELECT count(*) FROM points WHERE order_id = %s", order)

    def labels_deferred(self, order: str) -> int:
        """How many jobs there are that print its label."""
        return self._number(
            "SELECT count(*) FROM procrastinate_jobs WHERE task_name = %s AND args->>'order' = %s",
            LABEL,
            order,
        )

    def _number(self, sql: LiteralString, *arguments: str | int) -> int:
        row = self._db.execute(sql, arguments).fetchone()
        assert row is not None
        return int(row[0])
