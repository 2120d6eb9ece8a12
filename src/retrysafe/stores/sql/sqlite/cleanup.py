"""Cleanup by the writer, within commits that happen anyway: it removes expired records, and marks the time.

Removal keeps pace with the traffic, so that a store without a purge job does not grow without bound: once
in a hundred jobs, as many rows as there were jobs.  A key is two jobs, so that is twice the rate of insertion
and a backlog shrinks.  When a round finds fewer, the next one waits five seconds: records that are held for
weeks stand first in the index, and must not be walked past all the time.
"""

import logging
import time

from retrysafe._core.model import Purged
from retrysafe.errors import StoreError
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.jobs import Job
from retrysafe.stores.sql.sqlite.clock import HostClock
from retrysafe.stores.sql.sqlite.connection import Clock

_log = logging.getLogger("retrysafe.store")

ROUND = 100
PAUSE = 5.0

MOST = 200
"""Rows removed in one commit at the most: requests wait for it."""

MARK_EVERY = 10.0
"""Seconds between two raises of the clock's high-water mark: by so much at most may the store's time fall
back, if the wall clock is wrong after the next boot."""


class Cleanup:
    """Knows what is due."""

    def __init__(self, clock: Clock) -> None:
        self._host_clock = clock if isinstance(clock, HostClock) else None
        self._jobs = 0
        self._limit = 0
        self._purge: Job[Purged] | None = None
        self._purge_at = 0.0
        self._mark_at = 0.0

    def due(self, jobs: int) -> list[Job[object]]:
        """What is to be done together with so many jobs."""
        self._jobs += jobs
        now = time.monotonic()
        due: list[Job[object]] = []
        if self._jobs >= ROUND and now >= self._purge_at:
            self._limit = min(self._jobs, MOST)
            self._jobs -= self._limit
            self._purge = Job(operations.purge(self._limit))
            due.append(self._purge)
        if self._host_clock is not None and now >= self._mark_at:
            self._mark_at = now + MARK_EVERY
            due.append(Job(_mark(self._host_clock)))
        return due

    def undone(self) -> None:
        """The commit failed, and the cleanup with it."""
        self._purge = None

    def review(self) -> None:
        """After the commit: unresolved records are logged, and the pace is set."""
        purge, self._purge = self._purge, None
        if purge is None:
            return
        try:
            purged = purge.answer()
        except StoreError as error:
            _log.warning("expired records could not be removed: %s", error)
            return
        if purged.records < self._limit:
            self._purge_at = time.monotonic() + PAUSE
        for record in purged.unresolved:
            _log.warning("an abandoned record expired unresolved: %s", record.id.hex()[:8])


def _mark(clock: HostClock) -> Operation[None]:
    [(mark,)] = yield "raise_high_water", {}
    clock.raise_to(mark)
