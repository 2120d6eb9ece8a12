"""The shop's workers, its broker, and what they did."""

import json
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from celery import Celery

from examples.workers import Workers

TASKS = "examples.celery_tasks.tasks"
WORKER = "examples.celery_tasks.tests.worker"


class Run(NamedTuple):
    """One run of a task that has ended.  One that was killed has not."""

    state: str
    value: str | int
    """Of a run that did not succeed, what the exception says."""

    def is_refused(self, state: str, why: str) -> bool:
        return self.state == state and why in str(self.value)


class Shop(Workers):
    """A shop whose workers wait at a broker."""

    def __init__(self, broker: str, folder: Path) -> None:
        super().__init__(
            folder,
            f"sqlite:///{folder}/shop.db",
            SHOP_DATABASE=str(folder / "shop.db"),
            SHOP_BROKER=broker,
        )
        self._celery = Celery(broker=broker)
        self._restoring = Celery(broker=broker, broker_transport_options={"visibility_timeout": 0})

    def close(self) -> None:
        super().close()
        self._celery.close()
        self._restoring.close()

    def start_worker(self, processes: int, **environment: str) -> None:
        options = [f"--concurrency={processes}", f"--hostname={secrets.token_hex(4)}@shop"]
        options += ["--without-gossip", "--without-mingle", "--loglevel=INFO"]
        self.start("celery", "--app", WORKER, "worker", *options, **environment)

    # --- messages

    def send(self, task: str, *arguments: str | int, id: str) -> None:
        name = task if "." in task else f"{TASKS}.{task}"
        self._celery.send_task(name, arguments, task_id=id)

    def show_again(self) -> None:
        """Put every message that is not acknowledged back into the queue.

        It is what each worker does by itself for those that are older than the visibility timeout.
        """
        with self._restoring.connection_for_write() as connection:
            connection.default_channel.qos.restore_visible(interval=1)

    # --- what they did

    def runs(self, id: str) -> list[Run]:
        return [Run(run["state"], run["value"]) for run in self._noted(id) if run["state"] != "STARTED"]

    def wait_for(self, id: str, state: str, times: int = 1) -> list[Run]:
        """All runs of a task, once so many have ended in this state."""
        self.wait_until(lambda: [run.state for run in self.runs(id)].count(state) >= times)
        return self.runs(id)

    def rewards(self, order: str) -> int:
        with closing(sqlite3.connect(self.folder / "shop.db")) as db:
            [count] = db.execute("SELECT count(*) FROM points WHERE order_id = ?", (order,)).fetchone()
            return int(count)

    def _noted(self, id: str) -> list[dict[str, Any]]:
        notes = self.folder / "runs"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [run for run in map(json.loads, lines) if run["id"] == id]
