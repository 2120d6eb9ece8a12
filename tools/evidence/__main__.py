"""python -m tools.evidence [PART …]: run what is missing, and write the page."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console

from tools.evidence import page, runner
from tools.evidence.environment import ROOT
from tools.evidence.errors import EvidenceError
from tools.evidence.jobs import PARTS, Job, Part, choose
from tools.evidence.progress import Bars, Estimate, Lines, duration
from tools.evidence.reports import Archive, StoredReport

BUILD = ROOT / "build" / "evidence"
PAGE = ROOT / "docs" / "evidence.md"

Planned = dict[str, list[Job]]


class Terminated(BaseException):
    """SIGTERM: as with Ctrl-C, what this process has started ends with it."""


def main(
    arguments: Sequence[str] | None = None,
    *,
    parts: Sequence[Part] = PARTS,
    build: Path = BUILD,
    standard: Path = PAGE,
    root: Path = ROOT,
) -> int:
    parser = _parser(parts)
    options = parser.parse_args(arguments)
    _check_options(parser, options)
    options.jobs = options.jobs or os.cpu_count() or 1
    console = Console()
    try:
        chosen = {part.name for part in choose(parts, options.parts)}
        folder = build / f"{options.size:g}"
        options.page = options.page or (standard if options.size == 1 else folder / "evidence.md")
        return _obey(options, parts, chosen, Archive(folder, root), console)
    except EvidenceError as error:
        parser.error(str(error))
    except (KeyboardInterrupt, Terminated) as stopped:
        _print(console, "Stopped. Finished reports are stored; the same command goes on with the others.")
        return 128 + (signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT)


def _obey(
    options: argparse.Namespace, parts: Sequence[Part], chosen: set[str], archive: Archive, console: Console
) -> int:
    planned: Planned = {part.name: list(part.plan(options.size)) for part in parts}
    asked = {part: jobs for part, jobs in planned.items() if part in chosen}
    failed = 0
    if options.list:
        return _show(console, asked, archive, options.jobs)
    if not options.page_only:
        with archive.locked():
            if options.fresh:
                gone = archive.forget([job for jobs in asked.values() for job in jobs])
                _print(console, f"Removed {len(gone)} reports: {', '.join(gone) or 'there were none'}")
            failed = _run(asked, archive, options, console)
    every = [job for jobs in planned.values() for job in jobs]
    found = archive.find(every)
    reports = {part: page.Part(jobs, [found.get(job.name) for job in jobs]) for part, jobs in planned.items()}
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page.write(reports, options.size), encoding="utf-8")
    _print(console, f"The page: {os.path.relpath(options.page)}")
    broken = {
        job.name: stored.report.violations
        for jobs in asked.values()
        for job in jobs
        if (stored := found.get(job.name)) and not stored.report.passed
    }
    for name, violations in broken.items():
        for violation in violations:
            _print(console, f"\nVIOLATION in {name}: {violation}")
    if broken:
        _print(console, "Reports with violations are stored. After the fix, --again runs these jobs again.")
    return 1 if failed or broken else 0


def _run(asked: Planned, archive: Archive, options: argparse.Namespace, console: Console) -> int:
    """How many jobs failed."""
    jobs = [job for jobs in asked.values() for job in jobs]
    found, stale = archive.find(jobs), archive.stale(jobs)
    estimate = Estimate(asked, options.jobs)
    with (Bars if console.is_terminal else Lines)(console, asked, estimate) as watcher:
        missing: list[Job] = []
        for job in jobs:
            stored = found.get(job.name)
            if stored is None or (options.again and not stored.report.passed):
                missing.append(job)
            else:
                watcher.done_before(job, stored)
        if not console.is_terminal:
            _print(console, f"{len(jobs)} jobs, {len(missing)} to be run; {watcher.left}")
        if stale:
            _print(console, f"Made from other code, and so run again: {', '.join(sorted(stale))}")
        before = signal.signal(signal.SIGTERM, _terminate)
        try:
            failed = runner.run(missing, options.jobs, archive, watcher)
        finally:
            signal.signal(signal.SIGTERM, before)
    if failed:
        _print(
            console,
            f"{failed} of {len(missing)} jobs failed, and wrote no report: the next run tries again.",
        )
    return failed


def _show(console: Console, asked: Planned, archive: Archive, at_once: int) -> int:
    estimate = Estimate(asked, at_once)
    every = [job for jobs in asked.values() for job in jobs]
    found, stale = archive.find(every), archive.stale(every)
    for job in every:
        if stored := found.get(job.name):
            estimate.note(job, stored.report.seconds)
    for part, jobs in asked.items():
        done = [job for job in jobs if job.name in found]
        _print(console, f"{part}: {len(done)} of {len(jobs)} jobs done")
        for job in jobs:
            if stored := found.get(job.name):
                state = _state(stored)
            else:
                why = "made from other code, " if job.name in stale else ""
                state = f"{why}to be run, about {duration(estimate.of(job))}"
            _print(console, f"  {job.name:26} {state}\n{'':28} python -m {shlex.join(job.command)}")
    _print(console, f"About {duration(estimate.seconds())} left, {at_once} jobs at a time")
    return 0


def _state(stored: StoredReport) -> str:
    found = f"{len(stored.report.violations)} VIOLATIONS" if stored.report.violations else "no violation"
    revision = (stored.environment.revision or "no revision")[:12]
    return f"{found}, {duration(stored.report.seconds)}, {stored.report.began}, {revision}"


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _parser(parts: Sequence[Part]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.evidence", description=__doc__)
    names = ", ".join(part.name for part in parts)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{names}; else all of them")
    parser.add_argument(
        "--size",
        type=_size,
        default=1.0,
        metavar="N",
        help="of everything; 1 is the standard, 0.01 a trial",
    )
    parser.add_argument("--jobs", type=_count, metavar="N", help="at a time; else one per core")
    parser.add_argument("--again", action="store_true", help="run jobs that found violations again")
    parser.add_argument("--fresh", action="store_true", help="remove the reports of these parts first")
    parser.add_argument("--list", action="store_true", help="show what is done and what is left, and end")
    parser.add_argument("--page-only", action="store_true", help="run nothing, write the page")
    parser.add_argument(
        "--page", type=Path, metavar="FILE",
        help="where the page goes; else docs/evidence.md for the standard size, and beside the reports "
        "for others",
    )  # fmt: skip
    return parser


_REFUSED = {
    "list": ("shows what is done, and changes nothing", ("again", "fresh", "page", "page_only")),
    "page_only": ("runs nothing, and the page is about all parts", ("again", "fresh", "jobs", "parts")),
}
"""Options that these exclude."""


def _check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Nothing is accepted and then ignored."""

    def spelled(name: str) -> str:
        return "PART" if name == "parts" else "--" + name.replace("_", "-")

    for name, (why, refused) in _REFUSED.items():
        if getattr(options, name) and (also := [one for one in refused if getattr(options, one)]):
            given = ", ".join(map(spelled, also))
            parser.error(f"{spelled(name)} {why}; there is also {given}: leave out one or the other")


def _size(said: str) -> float:
    try:
        size = float(said)
    except ValueError:
        size = 0.0
    if not 0 < size <= 1_000:
        raise argparse.ArgumentTypeError(f"{said} is not a valid size: expected a number above 0, up to 1000")
    return size


def _count(said: str) -> int:
    if not said.isdecimal() or int(said) == 0:
        raise argparse.ArgumentTypeError(f"{said} is not a valid number of jobs: expected 1 or more")
    return int(said)


if __name__ == "__main__":
    sys.exit(main())
