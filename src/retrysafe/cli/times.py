"""Times and durations: read as people write them, written as people and programs read them."""

import math
from datetime import UTC, datetime

import typer

from retrysafe._core.times import iso as iso
from retrysafe._core.times import parse_duration


def duration(text: str) -> float:
    """Seconds out of `90s`, `10m`, `1h30m`, `2d`, `1w`."""
    try:
        return parse_duration(text)
    except ValueError as refusal:
        raise typer.BadParameter(str(refusal)) from None


def stamp(at: float | None) -> str:
    """A time for people who compare it with a log."""
    moment = _moment(at)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "never"


def _moment(at: float | None) -> datetime | None:
    if at is None or not math.isfinite(at):
        return None
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # beyond any calendar: damage, or a clock that makes no sense


def brief(seconds: float) -> str:
    """A duration in the narrowest column: `42s`, `3m`, `5h`, `12d`."""
    seconds = max(seconds, 0.0)
    for unit, size, upto in (("s", 1, 90), ("m", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < upto:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def spoken(seconds: float) -> str:
    """A duration in a sentence: `42 seconds`, `3 minutes`, `5 hours`, `12 days`."""
    text = brief(seconds)
    noun = {"s": "second", "m": "minute", "h": "hour", "d": "day"}[text[-1]]
    return f"{text[:-1]} {noun}{'' if text[:-1] == '1' else 's'}"


def relative(at: float, now: float) -> str:
    """`3 minutes ago`, `in 5 hours`, `just now`."""
    away = at - now
    if abs(away) < 1:
        return "just now"
    return f"in {spoken(away)}" if away > 0 else f"{spoken(-away)} ago"
