"""What is validated: readings of a meter, one per hour.  The same readings have the same findings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from pydantic import TypeAdapter

Readings = Sequence[float | None]

HIGHEST = 100.0
"""kWh in an hour: what the meter's fuse lets through."""

STEEPEST = 60.0
"""kWh from one hour to the next."""

STUCK = 4
"""Equal readings in a row, which no building has: the meter hangs."""


class Check(StrEnum):
    RANGE = "range"
    CONTINUITY = "continuity"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Found:
    """What a check has to say about one reading."""

    position: int
    rule: str
    severity: Severity


FINDINGS = TypeAdapter(list[Found])
"""As they are written to a result, and read from it."""


def validate(check: Check, readings: Readings) -> list[Found]:
    return list(_CHECKS[check](readings))


def errors(findings: Sequence[Found]) -> int:
    return sum(found.severity is Severity.ERROR for found in findings)


def _range(readings: Readings) -> Iterator[Found]:
    for position, reading in enumerate(readings):
        if reading is None:
            yield Found(position, "missing", Severity.ERROR)
        elif reading < 0:
            yield Found(position, "negative", Severity.ERROR)
        elif reading > HIGHEST:
            yield Found(position, "too high", Severity.WARNING)


def _continuity(readings: Readings) -> Iterator[Found]:
    equal = 1
    for position, (before, reading) in enumerate(pairwise(readings), start=1):
        equal = equal + 1 if reading is not None and reading == before else 1
        if equal == STUCK:
            yield Found(position, "stuck", Severity.ERROR)
        if reading is not None and before is not None and abs(reading - before) > STEEPEST:
            yield Found(position, "too steep", Severity.WARNING)


_CHECKS: Mapping[Check, Callable[[Readings], Iterator[Found]]] = {
    Check.RANGE: _range,
    Check.CONTINUITY: _continuity,
}
