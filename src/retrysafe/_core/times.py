"""Times and durations as people write them, the same in options and on the command line."""

import math
import re
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from datetime import timedelta  # takes longer to import than this module and all that it needs

Duration = Union[float, str, "timedelta"]
"""Seconds, text such as `24h`, or a timedelta."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_LONGEST = 100 * 366 * 86400.0
"""A century: text that says more is a slip of the finger."""


def parse_duration(text: str) -> float:
    """Seconds out of `90s`, `10m`, `1h30m`, `2d`, `1w`; raises `ValueError` with what to write."""
    lowered = text.strip().lower().replace(" ", "")
    parts = _PART.findall(lowered)
    if not parts or "".join(number + unit for number, unit in parts) != lowered:
        raise ValueError(
            f"{text!r} is not a valid duration: write a number and a unit, such as 90s, 10m, 1h30m, 2d or 1w"
        )
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > _LONGEST:
        raise ValueError(f"{text!r} is not a valid duration: it is longer than a century")
    return seconds


def seconds(duration: object) -> float:
    """A duration in any of its forms as a finite number of seconds; raises `ValueError` for anything else."""
    if isinstance(duration, str):
        return parse_duration(duration)
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        if math.isfinite(duration):
            return duration
    else:
        from datetime import timedelta

        if isinstance(duration, timedelta):
            return duration.total_seconds()
    raise ValueError(
        f"{duration!r} is not a valid duration: expected a number of seconds, a timedelta, or text such as "
        '"90s", "24h" or "1h30m"'
    )


def iso(at: float | None) -> str | None:
    """A time for programs: ISO 8601, in UTC, to the millisecond; `None` for what no calendar has."""
    if at is None or not math.isfinite(at):
        return None
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # damage, or a clock that makes no sense
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
