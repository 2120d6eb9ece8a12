"""Times and durations, as options and the command line read them."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from retrysafe import Guard, scopes
from retrysafe._core.times import iso, seconds
from retrysafe.errors import ConfigurationError


@pytest.mark.parametrize(
    ("said", "expected"),
    [(0, 0), (1.5, 1.5), (timedelta(minutes=1), 60.0), ("90s", 90.0), (" 1H30m ", 5400.0), ("1w", 604800.0)],
)
def test_durations(said: object, expected: float) -> None:
    """Seconds, a timedelta, or text with units."""
    assert seconds(said) == expected


@pytest.mark.parametrize(
    "bad", [None, True, math.nan, math.inf, "", "5", "5 minutes", "m", [1], b"5s", "101d1y"]
)
def test_what_is_not_a_duration(bad: object) -> None:
    """Said in those words, with what to write instead."""
    with pytest.raises(ValueError, match=r"is not a valid duration: .*(90s|century)"):
        seconds(bad)


def test_a_duration_has_an_end() -> None:
    """More than a century is a slip of the finger."""
    with pytest.raises(ValueError, match="century"):
        seconds("6000w")


@pytest.mark.parametrize(
    ("said", "expected"), [("1m", 60.0), (timedelta(seconds=5), 5.0), (0, 0), (2.5, 2.5)]
)
def test_the_grace_time_is_a_duration(said: float, expected: float) -> None:
    """As every other one; zero is allowed, since a shutdown need not wait."""
    guard = Guard("memory:", scope=scopes.public(), grace=said)
    assert guard.grace == expected
    assert guard.drain(grace=said) == 0


@pytest.mark.parametrize("bad", [-1, "-1s", "soon", None, timedelta(seconds=-1), math.nan, math.inf])
def test_a_bad_grace_time(bad: float) -> None:
    """Refused when the guard is built."""
    with pytest.raises(ConfigurationError, match="grace="):
        Guard("memory:", scope=scopes.public(), grace=bad)


def test_iso() -> None:
    """In UTC, to the millisecond; what no calendar has is nothing."""
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC).timestamp()
    assert iso(at) == "2026-01-02T03:04:05.678Z"
    assert [iso(value) for value in (None, math.nan, math.inf, 1e20, -1e20)] == [None] * 5
