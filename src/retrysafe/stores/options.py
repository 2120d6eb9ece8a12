"""Options that stores have in common, checked when a store is made."""

from retrysafe._core.times import seconds
from retrysafe.errors import ConfigurationError

CLEANUP_INTERVAL = 5.0
"""Seconds.  Small rounds, of which no request takes notice; and a table is not larger than its records for
long."""


def check_deadline(deadline: float) -> None:
    if not deadline > 0:
        raise ConfigurationError(f"deadline must be greater than 0, got {deadline:g}")


def cleanup_seconds(interval: object) -> float | None:
    """A `cleanup_interval` in seconds; `None`, if services leave cleanup to `retrysafe purge`."""
    if interval is None:
        return None
    try:
        found = seconds(interval)
    except ValueError as refusal:
        raise ConfigurationError(
            f"cleanup_interval={refusal}, or None to run `retrysafe purge` instead"
        ) from None
    if found <= 0:
        raise ConfigurationError(
            f"cleanup_interval={interval!r} must be greater than 0: write a number of seconds, text such as "
            '"5m", or None to run `retrysafe purge` instead'
        )
    return found
