"""Where reports are stored: a folder for each size, a file for each job that has ended."""

import fcntl
import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from retrysafe.testing.report import Report, read
from tools.evidence.environment import Environment
from tools.evidence.errors import EvidenceError
from tools.evidence.jobs import Job


class StoredReport(NamedTuple):
    """A report, with its command and its environment."""

    command: tuple[str, ...]
    environment: Environment
    report: Report


class Archive:
    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        """Where the code is that reports are about."""
        self._folder = folder
        self._unfinished = folder / f"unfinished-{os.getpid()}"

    @contextmanager
    def locked(self) -> Generator[None]:
        """By one program at a time; the lock of one that is killed is released."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EvidenceError(
                    f"another run is using {self._folder}: wait until it has ended, or stop it"
                ) from None
            self._clear_unfinished()
            self._unfinished.mkdir()
            try:
                yield
            finally:
                self._clear_unfinished()

    def _clear_unfinished(self) -> None:
        """What was left by runs that have ended."""
        for folder in self._folder.glob("unfinished-*"):
            shutil.rmtree(folder, ignore_errors=True)

    def output(self, job: Job) -> Path:
        """Where a job writes.  No other run writes there, even if it is still about somewhere."""
        return self._unfinished / f"{job.name}.json"

    def log(self, job: Job) -> Path:
        """The output of a job."""
        return self._folder / f"{job.name}.log"

    def reported(self, job: Job) -> Report:
        """The report that a job has just written."""
        try:
            return read(self.output(job))
        except FileNotFoundError:
            raise EvidenceError("it wrote no report") from None
        except (ValueError, TypeError) as error:
            raise EvidenceError(f"what it wrote is not a valid report: {error}") from error

    def add(self, job: Job, environment: Environment, report: Report) -> StoredReport:
        """All or nothing, as the report itself."""
        stored = StoredReport(job.command, environment, report)
        document = {
            "command": stored.command,
            "environment": environment._asdict(),
            "report": stored.report._asdict(),
        }
        half = self._unfinished / f"{job.name}.half"
        half.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        half.replace(self._path(job))
        return stored

    def find(self, jobs: Sequence[Job]) -> dict[str, StoredReport]:
        """By the names of jobs, the reports that count: made by the same command, from the code as it is."""
        now = {sources: sources.digest(self.root) for sources in {job.sources for job in jobs}}
        return {
            job.name: stored
            for job in jobs
            if (stored := self._read(job)) and stored.environment.code == now[job.sources]
        }

    def stale(self, jobs: Sequence[Job]) -> set[str]:
        """The names of jobs whose report was made from other code."""
        current = self.find(jobs)
        return {job.name for job in jobs if job.name not in current and self._read(job)}

    def _read(self, job: Job) -> StoredReport | None:
        path = self._path(job)
        if not path.exists():
            return None
        try:
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if "circumstances" in document:
                return None  # written by an earlier version, and so from other code
            stored = StoredReport(
                tuple(document["command"]),
                Environment(**document["environment"]),
                Report(**document["report"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise EvidenceError(
                f"{path} is not a valid report ({type(error).__name__}: {error}): remove it to make it again"
            ) from error
        # Another size of chunk, another option: it is not what would be run now.
        return stored if stored.command == job.command else None

    def forget(self, jobs: Sequence[Job]) -> list[str]:
        """The names of what was there."""
        gone = [job.name for job in jobs if self._path(job).exists()]
        for job in jobs:
            self._path(job).unlink(missing_ok=True)
            self.log(job).unlink(missing_ok=True)
        return gone

    def _path(self, job: Job) -> Path:
        return self._folder / f"{job.name}.json"
