"""Starts jobs, some at a time, and stores what they report."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tools.evidence.environment import ROOT, Environment, observe
from tools.evidence.errors import EvidenceError
from tools.evidence.jobs import Job
from tools.evidence.reports import Archive, StoredReport

GRACE = 15.0
"""Seconds that a tool has, after Ctrl-C, to end its servers and workers.  It takes one or two."""

TAIL = 15
"""Lines of the output of a failed tool: enough for the end of a traceback."""

_PAUSE = 0.05


class Watcher(Protocol):
    """Is notified of what happens."""

    def began(self, job: Job) -> None: ...
    def ended(self, job: Job, stored: StoredReport) -> None: ...
    def failed(self, job: Job, why: str) -> None: ...
    def tick(self) -> None: ...
    def stopping(self, jobs: int) -> None: ...


class _Running(NamedTuple):
    job: Job
    process: "subprocess.Popen[bytes]"
    environment: Environment


def run(jobs: Sequence[Job], at_once: int, archive: Archive, watcher: Watcher) -> int:
    """How many jobs failed, that is, wrote no report.  What they found is another matter."""
    waiting = list(reversed(jobs))
    running: list[_Running] = []
    failed = 0
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop()
                running.append(_start(job, archive))
                watcher.began(job)
            time.sleep(_PAUSE)
            watcher.tick()
            for one in [one for one in running if _has_ended(one.process)]:
                running.remove(one)
                _sweep(one.process)
                try:
                    stored = _judge(one, archive)
                except EvidenceError as error:
                    failed += 1
                    watcher.failed(one.job, f"{error}\n{_tail(archive.log(one.job))}")
                else:
                    watcher.ended(one.job, stored)
    except BaseException:
        watcher.stopping(len(running))
        raise
    finally:
        _end([one.process for one in running])
    return failed


def _start(job: Job, archive: Archive) -> _Running:
    module, *arguments = job.command
    launcher = Path(__file__).with_name("launcher.py")
    environment = observe(job.sources, archive.root)
    with archive.log(job).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, launcher, str(os.getpid()), module, *arguments, "--json", archive.output(job)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A group of its own: it is ended together with all that it started, and only by us.
            start_new_session=True,
        )
    return _Running(job, process, environment)


def _judge(one: _Running, archive: Archive) -> StoredReport:
    """A tool ends with 0, or with 1 and a report of what is wrong.  Everything else is a tool that failed."""
    code = one.process.returncode
    if code < 0:
        raise EvidenceError(f"it was ended by {signal.Signals(-code).name}")
    if code not in (0, 1):
        raise EvidenceError(f"it ended with {code}")
    report = archive.reported(one.job)
    if code == 1 and report.passed:
        raise EvidenceError("it ended with 1, and its report has no violation")
    if one.job.sources.digest(archive.root) != one.environment.code:
        raise EvidenceError("the code was changed while it ran, so its report is of neither")
    return archive.add(one.job, one.environment, report)


def _end(processes: "Sequence[subprocess.Popen[bytes]]") -> None:
    """As by Ctrl-C, so that they clean up; by force, if they do not, or if we are asked to hurry."""
    try:
        for process in processes:
            _signal(process, signal.SIGINT)
        until = time.monotonic() + GRACE
        while time.monotonic() < until and not all(_has_ended(process) for process in processes):
            time.sleep(_PAUSE)
    finally:
        for process in processes:
            _sweep(process)


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """It stays a zombie: until it is waited for, its number and its group are not reused."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _sweep(process: "subprocess.Popen[bytes]") -> None:
    """End whatever is left in its group."""
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    # Some systems say that a group of zombies is not there, others that it may not be disturbed.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(["its output:", *lines[-TAIL:]] if lines else ["it had no output"])
