"""Trouble between a store and its server, and how often a call is tried again.

Every call may be repeated, because its token makes a repeated write the same write.  So what is likely to
pass is tried again within the deadline; everything else leaves the store as an error of ours.
"""

import random
from time import monotonic

from retrysafe.errors import StoreError, StoreUnavailable

_OFTEN = 5
_FIRST_PAUSE = 0.01
"""Five pauses from ten milliseconds on, each twice as long as the one before: a third of a second in all,
which outlasts a deadlock or a commit of another transaction, and leaves most of a deadline of two seconds."""


class Trouble(Exception):
    """Something between us and the server.  It never leaves a store."""

    passing = False
    """Whether it is likely to pass: a deadlock, a lock not to be had in time."""

    disconnected = False
    """Whether the connection is of no more use; another may be."""

    stale = False
    """Whether the lost connection had worked before.  Then it says nothing about the server now: it was
    restarted, or a firewall dropped an idle connection."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def described(self) -> str:
        """The reason, and the server's code for it if there is one."""
        return self.reason

    def as_error(self) -> StoreError:
        return StoreUnavailable(self.reason)


class TookTooLong(StoreUnavailable):
    """A statement was broken off: it had all the time that it was given."""


class NotPermitted(StoreUnavailable):
    """The role lacks a permission that a statement needs."""


class Retries:
    """How often a call is tried, and when not again."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._refusals = 0
        self._reconnected = False

    @property
    def is_last(self) -> bool:
        """Whether trouble that may pass is not waited for again."""
        return self._refusals == _OFTEN

    def after(self, trouble: Trouble) -> float:
        """For how many seconds to pause before the next try; raises the error, if there is to be none."""
        if trouble.disconnected:
            if not trouble.stale or self._reconnected:
                raise trouble.as_error() from trouble
            self._reconnected = True
            return 0.0
        if not trouble.passing or self.is_last:
            raise trouble.as_error() from trouble
        pause = _FIRST_PAUSE * (1 << self._refusals) * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        if monotonic() + pause >= self._until:
            raise trouble.as_error() from trouble
        self._refusals += 1
        return pause
