"""Timeouts and their messages, the same for drivers that block and for those that do not."""

import time
from typing import Final

TIMED_OUT: Final = "timed out waiting for PostgreSQL"
CONNECT_TIMED_OUT: Final = "timed out connecting to PostgreSQL; nothing was done"
NO_CONNECTION_FREE: Final = "timed out waiting for a free connection to PostgreSQL; nothing was done"

_SHARE = 0.8
"""Of the time that is left, for the server to wait for a lock: it must say so before we give up."""

_LEAST = 0.001


def patience(until: float) -> float:
    """Seconds for which the server may wait for a lock."""
    return max((until - time.monotonic()) * _SHARE, _LEAST)
