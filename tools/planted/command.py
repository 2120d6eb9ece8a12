"""Hunt for all planted bugs, say what gave each away, and report it."""

import sys
from collections.abc import Callable, Iterable

from retrysafe.testing.report import Report, Stopwatch
from tools.planted.bug import Planted
from tools.planted.catalogue import CATALOGUE
from tools.planted.hunt import LIMIT, hunt

Progress = Callable[[Iterable[Planted], str], Iterable[Planted]]


def hunt_all(progress: Progress, limit: int = LIMIT) -> Report:
    """A bug that survives is a violation."""
    stopwatch = Stopwatch()
    bugs: dict[str, dict[str, object]] = {}
    survivors: list[str] = []
    for planted in progress(CATALOGUE, "bugs"):
        caught = hunt(planted, limit)
        if caught is None:
            survivors.append(f"nobody noticed in {limit} schedules: {planted.name}")
            sys.stdout.write(f"SURVIVED      {planted.name}\n")
            continue
        sys.stdout.write(f"{caught.promise:4}{caught.schedules:8}  {planted.name}\n")
        bugs[planted.name] = {
            "seen": planted.seen,
            "caught by": caught.promise,
            "how": "walk",
            "schedules": caught.schedules,
        }
    sys.stdout.write(f"{len(bugs)} of {len(CATALOGUE)} bugs were caught.\n")
    return stopwatch.report("planted", {"limit": limit, "seed": 0}, {"bugs": bugs}, survivors)
