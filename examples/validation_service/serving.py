"""The service, its runner and its jobs as processes that can be killed."""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from examples.gateway import Proxy
from examples.services import PATIENCE, Service
from examples.validation_service.jobs import process_lock
from examples.validation_service.jobs.runner import LOCK

QUICK = {
    # Seconds: a retry soon takes over from a worker that was killed, and a launch from one that was lost.
    "VALIDATION_LEASE": "2",
    "VALIDATION_LAUNCH_EVERY": "0.5",
    "VALIDATION_LONGEST_PAUSE": "0.5",
}
"""What takes minutes in production, in seconds."""


class ValidationService(Service):
    """Runs as long as the `with` does, with its files in `folder`.  Jobs call back through a gateway.

    The runner and all jobs are in the process group of the service, and end with it.
    """

    # What gunicorn writes to its log, and `gunicorn_conf.py`.
    address = re.compile(r"Listening at: http://127\.0\.0\.1:(\d+)")
    worker = re.compile(r"Worker is ready \[(\d+)\]")
    ready = "Worker is ready"

    def __init__(
        self,
        database: str,
        folder: Path,
        callbacks: Proxy,
        *,
        program: str = "examples.validation_service",
        **environment: str,
    ) -> None:
        self.database = database
        self.files = folder / "files"
        self.callbacks = callbacks
        given = {
            "VALIDATION_DATABASE": database,
            "VALIDATION_FILES": str(self.files),
            "VALIDATION_CALLBACK_URL": f"{callbacks.url}/api/callbacks/",
            **QUICK,
            **environment,
        }
        super().__init__(program, folder, given)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        super().start()
        self.callbacks.upstream = self.port

    def kill(self) -> None:
        """SIGKILL for all of it, and no process is left."""
        super().kill()
        until = time.monotonic() + PATIENCE
        while self.jobs() or self.runner() is not None:
            assert time.monotonic() < until, "processes that were killed still run"
            time.sleep(0.005)

    def runner(self) -> int | None:
        """Its process id, while one runs."""
        return process_lock.holder(self.files / "spool" / LOCK)

    def jobs(self) -> dict[str, int]:
        """The process ids of jobs that run, by the names of their folders."""
        locks = sorted((self.files / "jobs").glob("*/lock"))
        found = {lock.parent.name: process_lock.holder(lock) for lock in locks}
        return {name: process for name, process in found.items() if process is not None}

    def spooled(self) -> int:
        return len(list((self.files / "spool").glob("*.json")))

    def kill_runner(self) -> bool:
        return _kill(self.runner())

    def kill_job(self, random: Random) -> bool:
        """Any of those that run; `False`: there was none."""
        jobs = list(self.jobs().values())
        return bool(jobs) and _kill(random.choice(jobs))


def _kill(process: int | None) -> bool:
    """SIGKILL, whatever it is doing."""
    if process is not None:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(process, signal.SIGKILL)
            return True
    return False
