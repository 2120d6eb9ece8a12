"""Cleanup: removes expired records, so that a store without a purge job does not grow without bound.

The lease keeper's thread does it, every few seconds while there is traffic: no request waits for it.
Each round removes what has expired, a slice per commit, and ends after a quarter of a second, because leases
are renewed by the same thread.  That is some thousand records a second, more than a process adds.  Processes
that do so at the same time skip each other's rows.
"""

import logging
from collections.abc import Callable
from time import monotonic, sleep

from retrysafe._core.model import Purged, Record
from retrysafe.errors import StoreError
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import operations

Run = Callable[[Operation[Purged]], Purged]
"""Runs a purge of a few rows, which commits."""

SLICE = 200
"""Rows removed in one commit.  It takes a few milliseconds, and then other statements can run."""

BUDGET = 0.25
"""Seconds for one round."""

PAUSE = 5.0
"""Seconds between two rounds: records that are held for weeks stand first in the index, and must not be
walked past all the time."""

_log = logging.getLogger("retrysafe.store")


class Cleanup:
    def __init__(self, turn: float = 0.0) -> None:
        self._turn = turn
        """Seconds between two commits, where only one process can write at a time."""
        self._next = 0.0

    def tidy(self, run: Run) -> None:
        """A round, if one is due."""
        began = monotonic()
        if began < self._next:
            return
        self._next = began + PAUSE
        try:
            while monotonic() < began + BUDGET:
                purged = run(operations.purge(SLICE))
                for record in purged.unresolved:
                    _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])
                if purged.records < SLICE:
                    return
                if self._turn:
                    sleep(self._turn)
        except StoreError as error:
            _log.warning("expired records could not be removed: %s", error)


def purge(run: Run, limit: int) -> Purged:
    """Remove up to `limit` records, a slice at a time."""
    removed, unresolved = 0, list[Record]()
    while removed < limit:
        wanted = min(SLICE, limit - removed)
        purged = run(operations.purge(wanted))
        removed += purged.records
        unresolved += purged.unresolved
        if purged.records < wanted:
            break
    return Purged(removed, tuple(unresolved))
