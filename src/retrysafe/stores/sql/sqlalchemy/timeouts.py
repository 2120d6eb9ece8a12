"""Timeouts and their messages, the same for drivers that block and for those that do not."""

import time
from typing import Final

TIMED_OUT: Final = "PostgreSQL did not answer within the deadline"
CONNECT_TIMED_OUT: Final = "PostgreSQL did not let us in within the deadline; nothing was done"
NO_CONNECTION_FREE: Final = "no connection to PostgreSQL was free within the deadline; nothing was done"

_SHARE = 0.8
"""Of the time that is left, for the server to wait for a lock: it must say so before we give up."""

_LEAST = 0.001


def patience(until: float) -> float:
    """Seconds for which the server may wait for a lock."""
    return max((until - time.monotonic()) * _SHARE, _LEAST)
