"""Runs the jobs of the spool: `python -m examples.validation_service.jobs.runner`.

An envelope stays in the folder until its job has called back.  So there is nothing to be remembered: a runner
that was killed begins with what it finds there, and leaves jobs alone that have outlived it.
"""

import os
import signal
import subprocess
import sys
import time
from math import inf
from pathlib import Path

from examples.validation_service import environment
from examples.validation_service.jobs import process_lock
from examples.validation_service.jobs.envelopes import CheckEnvelope
from examples.validation_service.jobs.job_folder import JobFolder

AT_ONCE = 4
"""Jobs at the same time.  Most of theirs is spent on waiting for an acknowledgement."""

LOCK = "runner.lock"
"""In the spool: one runner works for it."""

_LOOK_EVERY = 0.1
"""Seconds.  A folder that may be on another machine tells no one what was put into it."""


class Runner:
    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._running: dict[Path, subprocess.Popen[bytes]] = {}
        self._failed: dict[Path, float] = {}
        """When a job has failed that is to be started again."""

    def look(self) -> None:
        """Note what has ended, and start what there is room for."""
        for spooled, job in list(self._running.items()):
            if job.poll() is not None:
                del self._running[spooled]
                if job.returncode == 0:
                    spooled.unlink()
                    self._failed.pop(spooled, None)
                elif job.returncode > 0:  # else it was killed, and is started again at once
                    self._failed[spooled] = time.monotonic()
        for spooled in sorted(self._spool.glob("*.json"), key=lambda file: file.stat().st_mtime):
            waits = time.monotonic() < self._failed.get(spooled, -inf) + environment.LAUNCH_EVERY
            if len(self._running) < AT_ONCE and spooled not in self._running and not waits:
                self._start(spooled)

    def _start(self, spooled: Path) -> None:
        envelope = CheckEnvelope.read(spooled)
        folder = JobFolder(envelope.folder)
        if folder.given_up.exists():
            spooled.unlink()
        elif (job := folder.start(envelope)) is not None:
            self._running[spooled] = job


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it, as any signal does
    lock = process_lock.take(environment.SPOOL / LOCK)
    if lock is None:
        sys.exit(f"another runner works for {environment.SPOOL}")
    process_lock.note(lock, os.getpid())
    runner = Runner(environment.SPOOL)
    while True:
        runner.look()
        time.sleep(_LOOK_EVERY)


if __name__ == "__main__":
    main()
