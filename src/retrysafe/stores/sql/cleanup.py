"""Cleanup: removes expired records, so that a store without a purge job does not grow without bound.

The lease keeper's thread does it, while there is traffic: no request waits for it.  Processes take turns.  A
row of `retrysafe_meta` has the time of the next round, and the process that moves it on, with one conditional
statement, does that round.

A round removes what has expired, a slice per commit, and ends when its budget is used up, because leases
are renewed by the same thread.  If there is more, another process may go on at once; this one does so much
later that its rounds take 5% of its time.  So there is more cleanup where there are more processes, one at a
time.  Beside full traffic one process removed between 100 and 1,150 records a second on two cores, depending
on what else they had to do.
"""

import logging
from collections.abc import Callable
from time import monotonic, sleep
from typing import Protocol, TypeVar

from retrysafe._core.model import Purged, Record
from retrysafe._core.times import Duration
from retrysafe.errors import StoreError
from retrysafe.stores.options import CLEANUP_INTERVAL, cleanup_seconds
from retrysafe.stores.queue import Operation
from retrysafe.stores.retry import NotPermitted
from retrysafe.stores.sql import operations

T = TypeVar("T")

SLICE = 500
"""Rows removed in one commit.  It takes some 12 ms, and then other statements can run.  Commits of 200 rows
take 7 ms on SQLite, and remove half as many in the same time."""

BUDGET = 0.4
"""Seconds for one round.  The next is then due after 8 s, and the keeper looks every 10 s."""

DUTY = 0.05
"""The share of a process's time that its rounds may take."""

TURN = 60.0
"""Seconds after which a process that began a round and did not end it is no longer waited for.  No pause for
the sake of the duty is longer.  So a round that is due later than in this time and in the interval was set by
a process with a longer one, or by a clock that was wrong, and is due now."""

_log = logging.getLogger("retrysafe.store")


class Operations(Protocol):
    """What a round is made of."""

    def claim_cleanup(self, turn: float, longest: float, /) -> Operation[bool]: ...
    def postpone_cleanup(self, pause: float, /) -> Operation[None]: ...
    def purge(self, limit: int, /) -> Operation[Purged]: ...


class Perform(Protocol):
    """Runs an operation, which commits."""

    def __call__(self, operation: Operation[T], /) -> T: ...


class Cleanup:
    """Of one store in one process."""

    def __init__(
        self,
        interval: Duration | None = CLEANUP_INTERVAL,
        rest: float = 0.0,
        operations: Operations = operations,
    ) -> None:
        self._operations = operations
        self._interval = cleanup_seconds(interval)
        self._rest = rest
        """Seconds between two commits, where only one process can write at a time."""
        self._next = 0.0
        self._takes_turns = True
        """Until it is found that this role may not write the row for it."""

    def tidy(self, perform: Perform) -> None:
        """A round, if one is due."""
        began = monotonic()
        if self._interval is None or began < self._next:
            return
        try:
            if not self._claim(perform, self._interval):
                return  # another process does it, or has done it; looked at again with the next call
            is_done = self._remove(perform, began)
            took = monotonic() - began
            pause = self._interval if is_done else 0.0
            self._next = began + max(min(took / DUTY, TURN), pause)
            if self._takes_turns:
                perform(self._operations.postpone_cleanup(max(pause - took, 0.0)))
        except StoreError as error:
            self._next = began + self._interval
            _log.warning("expired records could not be removed: %s", error)

    def _claim(self, perform: Perform, interval: float) -> bool:
        if self._takes_turns:
            try:
                return perform(self._operations.claim_cleanup(TURN, max(interval, TURN)))
            except NotPermitted as error:
                self._takes_turns = False
                _log.info("cleanup does not take turns with other processes: %s", error)
        return True

    def _remove(self, perform: Perform, began: float) -> bool:
        """Whether all that had expired was removed."""
        while monotonic() < began + BUDGET:
            purged = perform(self._operations.purge(SLICE))
            for record in purged.unresolved:
                _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])
            if purged.records < SLICE:
                return True
            if self._rest:
                sleep(self._rest)
        return False


def purge(run: Callable[[Operation[Purged]], Purged], limit: int) -> Purged:
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
