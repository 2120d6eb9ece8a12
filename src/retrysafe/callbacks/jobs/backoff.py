"""When a callback that was not acknowledged is sent again."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import SystemRandom

from retrysafe.errors import ConfigurationError

# Not the generator of the module: after a fork, all children would draw the same pauses from it.
_random = SystemRandom()

_DOUBLINGS = 64
"""No first pause that is worth its name needs more to reach the longest one, and 2.0 ** 1024 overflows."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Exponential back-off with full jitter: a random pause between 0 and a limit that doubles.

    The pause is random over the whole range because jobs that were launched together fail together, and
    should not come back together.
    """

    first: float = 1.0
    """Seconds, the limit of the first pause.  A connection that was reset, or a server that was just
    replaced, is there again within a second."""

    longest: float = 300.0
    """Seconds, the limit of all pauses.  After an outage, callbacks arrive within five minutes; during one, a
    job makes some twenty attempts per hour, which no service notices."""

    def __post_init__(self) -> None:
        for name, value in (("first", self.first), ("longest", self.longest)):
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise ConfigurationError(f"{name} must be a number of seconds greater than 0, got {value!r}")
        if self.longest < self.first:
            raise ConfigurationError(
                f"longest must not be less than first, got {self.longest!r} and {self.first!r}"
            )

    def limit(self, attempt: int) -> float:
        """How long the pause after this attempt, counted from 1, can be."""
        return min(self.longest, self.first * 2.0 ** min(attempt - 1, _DOUBLINGS))

    def pause(self, attempt: int, at_least: float = 0.0) -> float:
        """Seconds until the next attempt.

        What the receiver asked for comes first and the random part after it: it may have told all jobs to
        come back at the same moment.
        """
        return at_least + _random.uniform(0, self.limit(attempt))


# At least one digit and no sign: a number of seconds is never negative (RFC 9110 section 10.2.3).  A fraction
# is not in the RFC, and is sent all the same.
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """Seconds that a response asks to wait, 0 if it does not say so or says what makes no sense.

    `retry-after-ms` is the same as `Retry-After` and more precise, so it goes first.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    if (seconds := _number(text)) is not None:
        return seconds
    at = _moment(text)
    if at is None:
        return 0.0
    # A date is meant by the receiver's clock, which `Date` shows: ours may be wrong.
    sent = _moment(headers.get("date"))
    return max(0.0, at - (now if sent is None else sent))


def _number(text: str | None) -> float | None:
    if text is None or not _NUMBER.fullmatch(text.strip()):
        return None
    return float(text)


def _moment(text: str | None) -> float | None:
    """A date of HTTP (RFC 9110 section 5.6.7) in any of its three forms."""
    if text is None:
        return None
    try:
        found: datetime = parsedate_to_datetime(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
