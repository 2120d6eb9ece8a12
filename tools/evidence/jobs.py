"""What there is to do, cut into pieces of some minutes: each is a command that leaves one report."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tools.evidence.errors import EvidenceError
from tools.evidence.sources import Sources


class Job(NamedTuple):
    name: str
    """Of its file, too."""
    command: tuple[str, ...]
    """A module and its arguments, as after `python -m`, without `--json`.  A report that was made by another
    command is no report of this job."""
    expected: float
    """Seconds, roughly: for the time that is left, until there are reports to go by."""
    sources: Sources
    """What its report is about, and judged by.  Once that has changed, the report is of something else."""


class Part(NamedTuple):
    """What can be asked for on its own."""

    name: str
    plan: Callable[[float], Sequence[Job]]
    """The jobs of a size."""


def scaled(standard: int, size: float, least: int) -> int:
    return max(least, round(standard * size))


def chunks(total: int, chunk: int) -> list[tuple[int, int]]:
    """(first, how many) of each chunk: all are whole but the last."""
    return [(first, min(chunk, total - first)) for first in range(0, total, chunk)]


def shares(total: int, jobs: int) -> list[int]:
    """As even as can be; they add up."""
    return [total * (job + 1) // jobs - total * job // jobs for job in range(jobs)]


def choose(parts: Sequence[Part], names: Sequence[str]) -> list[Part]:
    """In the order of the parts, whatever the order of the names; all of them, if none is named."""
    known = [part.name for part in parts]
    for name in names:
        if name not in known:
            raise EvidenceError(f"there is no part {name!r}: the parts are {', '.join(known)}")
    return [part for part in parts if not names or part.name in names]
