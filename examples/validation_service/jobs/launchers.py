"""Two ways to have a job run.

`LocalLauncher` starts it here, as a process of the service's own; `SpoolLauncher` puts its envelope into a
folder, from which a runner takes it, on this machine or on one that has mounted the folder at the same place.
"""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from examples.validation_service.jobs.envelopes import CheckEnvelope
from examples.validation_service.jobs.job_folder import JobFolder


class Launcher(Protocol):
    def launch(self, envelope: CheckEnvelope) -> None:
        """Have a job for this envelope, unless there is one.  Called again until the job has called back."""


class LocalLauncher:
    """Starts a process, which does not end with the service's worker."""

    def __init__(self, at_once: int, ended: Callable[[], object]) -> None:
        self._slots = threading.Semaphore(at_once)
        self._ended = ended
        """Called when a job has succeeded, and there is room for another one.  After a failure the same job
        is next: it is started when its envelope comes again, and not in a loop."""

    def launch(self, envelope: CheckEnvelope) -> None:
        if not self._slots.acquire(blocking=False):
            return
        job = None
        try:
            job = JobFolder(envelope.folder).start(envelope)
        finally:
            if job is None:
                self._slots.release()
        if job is not None:
            threading.Thread(target=self._wait, args=[job], daemon=True).start()

    def _wait(self, job: "subprocess.Popen[bytes]") -> None:
        status = job.wait()
        self._slots.release()
        if status == 0:
            self._ended()


class SpoolLauncher:
    """Leaves it to the runner: `runner.py`, which also starts jobs again that were killed."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool

    def launch(self, envelope: CheckEnvelope) -> None:
        spooled = self._spool / f"{envelope.folder.name}.json"
        if not spooled.exists() and not JobFolder(envelope.folder).given_up.exists():
            envelope.write(spooled)  # the runner sees the whole of it, or nothing
