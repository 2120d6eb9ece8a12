"""What is said and reckoned in the same way for both kinds of drivers."""

import time
from collections.abc import Iterator
from typing import Final

LATE: Final = "PostgreSQL did not answer within the deadline"
NOT_LET_IN: Final = "PostgreSQL did not let us in within the deadline; nothing was done"
NO_LINE_FREE: Final = "no connection to PostgreSQL was free within the deadline; nothing was done"

_SHARE = 0.8
"""Of the time that is left, for the server to wait for a lock: it must say so before we give up."""

_LEAST = 0.001


def patience(until: float) -> float:
    """Seconds for which the server may wait for a lock."""
    return max((until - time.monotonic()) * _SHARE, _LEAST)


def each(sql: str) -> Iterator[str]:
    """The statements of a text that has several: drivers which prepare them take one at a time."""
    return (statement for statement in sql.split(";") if statement.strip())
