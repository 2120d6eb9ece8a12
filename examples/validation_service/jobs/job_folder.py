"""The folder of one job: what it was given, what it made, and whether it runs.

A job holds a lock on a file in it, which it has from its launcher and which dies with it, whatever kills it.
So there is one process for a job at a time, and a launcher that finds no lock may start it again.
"""

import os
import subprocess
import sys
from pathlib import Path

from examples.validation_service.jobs import process_lock
from examples.validation_service.jobs.envelopes import CheckEnvelope


class JobFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.envelope = path / "envelope.json"
        self.result = path / "result.json"
        self.callbacks = path / "callbacks"
        self.given_up = path / "given-up.txt"
        """Why the job cannot deliver its callback, whatever is started again."""
        self.lock = path / "lock"

    def start(self, envelope: CheckEnvelope) -> "subprocess.Popen[bytes] | None":
        """Start its process; `None` if there is one, or if it has given up."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.given_up.exists() or (lock := process_lock.take(self.lock)) is None:
            return None
        try:
            if not self.envelope.exists():
                envelope.write(self.envelope)
            command = [sys.executable, "-m", "examples.validation_service.jobs.job", str(self.envelope)]
            job = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[lock])
            process_lock.note(lock, job.pid)
        finally:
            os.close(lock)  # the job has it
        return job
