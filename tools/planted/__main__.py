"""Hunt all planted bugs, and report which promise each was seen to break.

python -m tools.planted [--json FILE]
"""

import argparse
import gc
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.progress import track

from retrysafe.testing.report import Report, Stopwatch
from tools.planted import by_tests
from tools.planted.bug import LeftToTests, Planted
from tools.planted.catalogue import CATALOGUE, TESTED
from tools.planted.hunt import LIMIT, hunt

Progress = Callable[[Iterable[Planted | LeftToTests]], Iterable[Planted | LeftToTests]]

INTERRUPTED = 130
"""What a shell reports for a command that Ctrl-C has ended."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tools.planted",
        description="Hunt all planted bugs, one at a time, with the simulator or with a test.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a report to FILE")
    options = parser.parse_args(arguments)
    gc.freeze()  # what is imported stays
    try:
        report = hunt_all(_progress)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before the end, so no report was written\n")
        return INTERRUPTED
    if options.json is not None:
        report.write(options.json)
    return int(not report.passed)


def hunt_all(progress: Progress, limit: int = LIMIT) -> Report:
    """A bug that survives is a violation."""
    stopwatch = Stopwatch()
    bugs: dict[str, dict[str, object]] = {}
    survivors: list[str] = []
    for planted in progress((*CATALOGUE, *TESTED)):
        found = _hunt(planted, limit) if isinstance(planted, Planted) else _try_tests(planted)
        if isinstance(found, str):
            survivors.append(f"{found}: {planted.name}")
            sys.stdout.write(f"SURVIVED      {planted.name}\n")
        else:
            bugs[planted.name] = {"seen": planted.seen, **found}
    sys.stdout.write(f"{len(bugs)} of {len(bugs) + len(survivors)} bugs were caught.\n")
    return stopwatch.report("planted", {"limit": limit, "seed": 0}, {"bugs": bugs}, survivors)


def _hunt(planted: Planted, limit: int) -> dict[str, object] | str:
    """How it was caught; or how it survived."""
    caught = hunt(planted, limit)
    if caught is None:
        return f"no check failed in {limit} schedules"
    sys.stdout.write(f"{caught.promise:4}{caught.schedules:8}  {planted.name}\n")
    return {"caught by": caught.promise, "how": "walk", "schedules": caught.schedules}


def _try_tests(planted: LeftToTests) -> dict[str, object] | str:
    failed = by_tests.run([planted.test], planted).failed
    if failed is None:
        return f"{planted.test} passed"
    sys.stdout.write(f"test          {planted.name}\n")
    return {"caught by": failed.partition("[")[0].rpartition("::")[2], "how": "test", "schedules": None}


def _progress(bugs: Iterable[Planted | LeftToTests]) -> Iterable[Planted | LeftToTests]:
    """A bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return bugs
    return track(bugs, "bugs", console=Console(stderr=True), update_period=0.5)


if __name__ == "__main__":
    sys.exit(main())
