"""Cleanup: removes expired records, so that a store without a purge job does not grow without bound.

The lease keeper's thread does it, every few seconds while there is traffic: no request waits for it.
Each round removes what has expired, a slice per commit, and ends after a quarter of a second, because leases
are renewed by the same thread.  That is some thousand records a second, more than a process adds.  Processes
that do so at the same time skip each other's rows.
"""

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar

from retrysafe._core.model import Purged
from retrysafe.errors import StoreError
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.operations import Operation

T = TypeVar("T")

SLICE = 200
"""Rows removed in one commit.  It takes a few milliseconds, and then other statements can run."""

BUDGET = 0.25
"""Seconds for one round."""

PAUSE = 5.0
"""Seconds between two rounds: records that are held for weeks stand first in the index, and must not be
walked past all the time."""

_log = logging.getLogger("retrysafe.store")


class Runner(Protocol):
    """One connection, by whichever driver.  An operation is made again for every try."""

    def run(self, make: Callable[[], Operation[T]]) -> T: ...
    def close(self) -> None: ...


class Cleanup:
    def __init__(self, executor: Runner) -> None:
        self._executor = executor
        self._next = 0.0

    def tidy(self) -> None:
        """A round, if one is due."""
        began = monotonic()
        if began < self._next:
            return
        self._next = began + PAUSE
        try:
            while monotonic() < began + BUDGET:
                purged = self._executor.run(partial(operations.purge, SLICE))
                for record in purged.unresolved:
                    _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])
                if purged.records < SLICE:
                    return
        except StoreError as error:
            _log.warning("expired records could not be removed: %s", error)


def purge(run: Callable[[Callable[[], Operation[Purged]]], Purged], limit: int) -> Purged:
    """Remove up to `limit` records, a slice at a time."""
    removed, unresolved = 0, list(Purged(0).unresolved)
    while removed < limit:
        wanted = min(SLICE, limit - removed)
        purged = run(partial(operations.purge, wanted))
        removed += purged.records
        unresolved += purged.unresolved
        if purged.records < wanted:
            break
    return Purged(removed, tuple(unresolved))
