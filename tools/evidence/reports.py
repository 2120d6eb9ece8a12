"""Where reports are kept: a folder for each size, a file for each job that came to its end."""

import fcntl
import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from retrysafe.testing.report import Report, read
from tools.evidence.environment import Circumstances
from tools.evidence.errors import EvidenceError
from tools.evidence.jobs import Job


class Kept(NamedTuple):
    """A report, and what it was made by, from and on."""

    command: tuple[str, ...]
    circumstances: Circumstances
    report: Report


class Shelf:
    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        """Where the code is that reports are about."""
        self._folder = folder
        self._desk = folder / f"unfinished-{os.getpid()}"

    @contextmanager
    def held(self) -> Generator[None]:
        """By one program at a time.  Whoever is killed lets go of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EvidenceError(
                    f"somebody else is at work in {self._folder}: wait until it is done, or stop it"
                ) from None
            self._clear_desks()
            self._desk.mkdir()
            try:
                yield
            finally:
                self._clear_desks()

    def _clear_desks(self) -> None:
        """What was not finished: whoever was at it is gone."""
        for desk in self._folder.glob("unfinished-*"):
            shutil.rmtree(desk, ignore_errors=True)

    def desk(self, job: Job) -> Path:
        """Where a job writes.  No other run writes there, even if it is still about somewhere."""
        return self._desk / f"{job.name}.json"

    def log(self, job: Job) -> Path:
        """What a job said."""
        return self._folder / f"{job.name}.log"

    def reported(self, job: Job) -> Report:
        """What a job has just left."""
        try:
            return read(self.desk(job))
        except FileNotFoundError:
            raise EvidenceError("it left no report") from None
        except (ValueError, TypeError) as error:
            raise EvidenceError(f"what it left is no report: {error}") from error

    def keep(self, job: Job, circumstances: Circumstances, report: Report) -> Kept:
        """All or nothing, as the report itself."""
        kept = Kept(job.command, circumstances, report)
        document = {
            "command": kept.command,
            "circumstances": circumstances._asdict(),
            "report": kept.report._asdict(),
        }
        half = self._desk / f"{job.name}.kept"
        half.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        half.replace(self._path(job))
        return kept

    def find(self, jobs: Sequence[Job]) -> dict[str, Kept]:
        """By the names of jobs, the reports that count: made by the same command, from the code as it is."""
        now = {sources: sources.digest(self.root) for sources in {job.sources for job in jobs}}
        return {
            job.name: kept
            for job in jobs
            if (kept := self._read(job)) and kept.circumstances.code == now[job.sources]
        }

    def stale(self, jobs: Sequence[Job]) -> set[str]:
        """The names of jobs whose report was made from other code."""
        current = self.find(jobs)
        return {job.name for job in jobs if job.name not in current and self._read(job)}

    def _read(self, job: Job) -> Kept | None:
        path = self._path(job)
        if not path.exists():
            return None
        try:
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            kept = Kept(
                tuple(document["command"]),
                Circumstances(**document["circumstances"]),
                Report(**document["report"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise EvidenceError(
                f"{path} is no report ({type(error).__name__}: {error}): remove it, and it is made again"
            ) from error
        # Another size of chunk, another option: it is not what would be run now.
        return kept if kept.command == job.command else None

    def forget(self, jobs: Sequence[Job]) -> list[str]:
        """The names of what was there."""
        gone = [job.name for job in jobs if self._path(job).exists()]
        for job in jobs:
            self._path(job).unlink(missing_ok=True)
            self.log(job).unlink(missing_ok=True)
        return gone

    def _path(self, job: Job) -> Path:
        return self._folder / f"{job.name}.json"
