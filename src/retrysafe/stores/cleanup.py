"""A cleanup by an operator: expired records are removed in batches, and what was removed stays known.

Each batch is committed in small steps, so a cleanup that is killed has removed what it has removed, and the
next one goes on from there.  Several at once remove different records.
"""

import logging
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import current_thread, main_thread

from retrysafe._core.model import Door, Record
from retrysafe.stores.admin import Admin, Note

BATCH = 5000
"""Records between two looks at whether to go on: a second or two of a busy store."""

_UNRESOLVED = "an abandoned record expired unresolved"
"""The beginning of what stores log for each such record."""


class Cleanup:
    """What was removed so far."""

    def __init__(self) -> None:
        self.removed = 0
        self.unresolved: list[Record] = []
        """Abandoned records that were not settled until they expired: no other process knows about them."""

    def run(
        self,
        admin: Admin,
        door: Door | None = None,
        *,
        batch: int = BATCH,
        limit: int | None = None,
        note: Note | None = None,
        stopped: Callable[[], bool] = lambda: False,
        advance: Callable[[int], None] = lambda _number: None,
    ) -> None:
        """Remove what has expired, of one door if it is given, until `limit` is reached or it is stopped."""
        while not stopped() and (limit is None or self.removed < limit):
            wanted = batch if limit is None else min(batch, limit - self.removed)
            purged = admin.purge(wanted, note, door)
            self.removed += purged.records
            self.unresolved += purged.unresolved
            advance(purged.records)
            if purged.records < wanted:
                break


@contextmanager
def withheld_log() -> Generator[list[str]]:
    """What stores log of each unresolved record, which a command lists together at its end.

    If a batch fails, only this has those that it had removed.
    """
    logged: list[str] = []

    def withhold(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if not message.startswith(_UNRESOLVED):
            return True
        logged.append(message)
        return False

    log = logging.getLogger("retrysafe.store")
    log.addFilter(withhold)
    try:
        yield logged
    finally:
        log.removeFilter(withhold)


@contextmanager
def stop_on_interrupt() -> Generator[Callable[[], bool]]:
    """Make an interrupt stop it between two batches; a second one stops it at once."""
    asked = False

    def ask(_signal: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if current_thread() is not main_thread():  # which alone may have handlers of signals
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
