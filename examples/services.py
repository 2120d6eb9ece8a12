"""A service under uvicorn or gunicorn, as a process whose workers can be killed."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 60.0
"""Seconds until a service that does not start is given up: far more than it takes, on a busy machine too."""


class Service:
    """Runs as long as the `with` does, on any port that is free.  Its log is in `folder`.

    `program` is a module that takes `--port` and `--workers`.
    """

    # What uvicorn writes to its log; another server writes something else.
    address = re.compile(r"Uvicorn running on http://127\.0\.0\.1:(\d+)")
    worker = re.compile(r"Started server process \[(\d+)\]")
    ready = "Application startup complete."

    def __init__(
        self, program: str, folder: Path, environment: Mapping[str, str], *, workers: int = 2
    ) -> None:
        self._log = folder / "service.log"
        self._workers = workers
        self._command = [sys.executable, "-m", program, "--port=0", f"--workers={workers}"]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self.killed: list[int] = []
        """The process ids of workers that `kill_worker` has killed."""
        self.port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # Ctrl-C too: no process may be left running
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until all its workers are ready."""
        with self._log.open("wb") as log:
            # In a group of its own, so that it can be killed with all its workers.
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment,
                cwd=Path(__file__).parents[1],
            )
        until = time.monotonic() + PATIENCE
        while (log_text := self.log).count(self.ready) < self._workers or not self.address.search(log_text):
            if (status := self._process.poll()) is not None:
                raise RuntimeError(
                    f"the service ended with {status} when it was started; its log:\n{self.log}"
                )
            if time.monotonic() > until:
                raise RuntimeError(f"the service was not ready within {PATIENCE:g} s; its log:\n{log_text}")
            time.sleep(0.02)
        self.port = int(self.address.findall(log_text)[-1])

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def workers(self) -> list[int]:
        """The process ids of those that were started and not killed by `kill_worker`."""
        return [pid for found in self.worker.findall(self.log) if (pid := int(found)) not in self.killed]

    def kill_worker(self) -> None:
        """SIGKILL for the worker that has run longest, whatever it does; the server starts another one."""
        until = time.monotonic() + PATIENCE
        while not (workers := self.workers()):
            assert time.monotonic() < until, "no worker was started again"
            time.sleep(0.02)
        pid = workers[0]
        self.killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL for all of it."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
