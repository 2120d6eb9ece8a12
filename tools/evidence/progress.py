"""Progress while jobs run: bars on a terminal, lines in a log."""

import time
from collections.abc import Mapping, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tools.evidence.jobs import Job
from tools.evidence.reports import StoredReport


class Estimate:
    """How long what is left will take, by what the plan expected and how that came out so far."""

    def __init__(self, jobs: Mapping[str, Sequence[Job]], at_once: int) -> None:
        self._part_of = {job.name: part for part, planned in jobs.items() for job in planned}
        self._left = {job.name: job for planned in jobs.values() for job in planned}
        self._began: dict[str, float] = {}
        self._took: dict[str, tuple[float, float]] = {}
        self._at_once = at_once

    def note(self, job: Job, seconds: float) -> None:
        """It is done, now or before."""
        self._left.pop(job.name, None)
        took, expected = self._took.get(self._part_of[job.name], (0.0, 0.0))
        self._took[self._part_of[job.name]] = took + seconds, expected + job.expected

    def give_up(self, job: Job) -> None:
        self._left.pop(job.name, None)

    def start(self, job: Job) -> None:
        self._began[job.name] = time.monotonic()

    def of(self, job: Job) -> float:
        took, expected = self._took.get(self._part_of[job.name], (1.0, 1.0))
        return job.expected * took / expected

    def seconds(self) -> float:
        now = time.monotonic()
        left = [
            max(0.0, self.of(job) - (now - self._began.get(name, now))) for name, job in self._left.items()
        ]
        return max([sum(left) / self._at_once, *left], default=0.0)


def duration(seconds: float) -> str:
    """For people: no more than two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{round(whole / 60)} min"
    minutes = round(whole / 60)
    return f"{minutes // 60} h {minutes % 60} min"


class Lines:
    """One for each thing that happens."""

    def __init__(self, console: Console, jobs: Mapping[str, Sequence[Job]], estimate: Estimate) -> None:
        self._console = console
        self._estimate = estimate
        self._all = sum(len(planned) for planned in jobs.values())
        self._over = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def done_before(self, job: Job, stored: StoredReport) -> None:
        self._over += 1
        self._estimate.note(job, stored.report.seconds)

    def began(self, job: Job) -> None:
        self._estimate.start(job)
        self._print(f"{job.name}: began")

    def ended(self, job: Job, stored: StoredReport) -> None:
        self._over += 1
        self._estimate.note(job, stored.report.seconds)
        self._print(f"{job.name}: {in_short(stored)} ({self._over} of {self._all}; {self.left})")

    def failed(self, job: Job, why: str) -> None:
        self._over += 1
        self._estimate.give_up(job)
        self._print(f"{job.name}: FAILED, {why}")

    def tick(self) -> None:
        pass

    def stopping(self, jobs: int) -> None:
        self._print(f"Ending {jobs} jobs; once more, and they are killed")

    @property
    def left(self) -> str:
        return f"about {duration(self._estimate.seconds())} left"

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class Bars(Lines):
    """One for each part, and below them the lines of a log about violations and failures."""

    def __init__(self, console: Console, jobs: Mapping[str, Sequence[Job]], estimate: Estimate) -> None:
        super().__init__(console, jobs, estimate)
        self._progress = Progress(
            TextColumn("{task.description:17}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f} of {task.total:.0f} jobs"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self._bars: dict[str, TaskID] = {}
        for part, planned in jobs.items():
            bar = self._progress.add_task(part, total=len(planned), left="", start=False)
            self._bars |= {job.name: bar for job in planned}
        self._whole = self._progress.add_task("everything", total=self._all, left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.update(self._whole, left="")
        self._progress.stop()

    def done_before(self, job: Job, stored: StoredReport) -> None:
        super().done_before(job, stored)
        self._advance(job)

    def began(self, job: Job) -> None:
        self._estimate.start(job)
        if not self._progress.tasks[self._bars[job.name]].started:
            self._progress.start_task(self._bars[job.name])

    def ended(self, job: Job, stored: StoredReport) -> None:
        self._over += 1
        self._estimate.note(job, stored.report.seconds)
        if not stored.report.passed:
            self._print(f"{job.name}: {in_short(stored)}")
        self._advance(job)

    def failed(self, job: Job, why: str) -> None:
        super().failed(job, why)
        self._progress.advance(self._whole)

    def tick(self) -> None:
        self._progress.update(self._whole, left=self.left)

    def _advance(self, job: Job) -> None:
        self._progress.advance(self._bars[job.name])
        self._progress.advance(self._whole)
        task = self._progress.tasks[self._bars[job.name]]
        if task.finished:
            self._progress.stop_task(task.id)


def in_short(stored: StoredReport) -> str:
    took = duration(stored.report.seconds)
    if stored.report.passed:
        return f"no violation, {took}"
    number = len(stored.report.violations)
    first = stored.report.violations[0].strip().splitlines()[0]
    return f"{number} VIOLATION{'S' if number > 1 else ''}, {took}: {first}"
