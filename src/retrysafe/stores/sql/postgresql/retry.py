"""Errors of the server and of connections to it, and which of them are retried.

Every operation may be repeated, because its token makes a repeated write the same write.  So what is likely
to pass is tried again within the deadline; everything else leaves as an error of ours.  The server's message
is passed on, but only its first line: the rest may quote values of the row.
"""

import random
import time

from retrysafe.errors import SchemaMismatch, StoreError, StoreUnavailable

_PASSING = frozenset({"40001", "40P01", "55P03", "57014"})
"""Serialization failure, deadlock, a lock not to be had in time, a statement cancelled by a timeout."""

_SESSION = ("08", "57P", "0A000", "25006", "25P")
"""The session is of no more use, another may be: connection failures, a shutdown, a prepared statement whose
result has changed, a server that takes no more writes."""

_TABLES = frozenset({"42P01", "42703"})
"""A table or a column is not there."""

_OFTEN = 5
_FIRST_PAUSE = 0.01


class Trouble(Exception):
    """Something between us and the server; it never leaves the store."""

    def __init__(self, reason: str, state: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.state = state
        """The server's code for it (SQLSTATE); empty when it was not the server who said it."""

    @property
    def ends_session(self) -> bool:
        return not self.state or self.state.startswith(_SESSION)

    def as_error(self) -> StoreError:
        if self.state in _TABLES:
            return SchemaMismatch(
                f"the tables differ from those of this release ({self.reason}): run `retrysafe migrate`"
            )
        code = f" (SQLSTATE {self.state})" if self.state else ""
        return StoreUnavailable(f"PostgreSQL: {self.reason}{code}")


class Retries:
    """How often an operation is tried, and when not again."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._refusals = 0
        self._reconnected = False

    def after(self, trouble: Trouble, *, has_worked: bool) -> float:
        """For how many seconds to pause before the next try; or the error, if there is to be none.

        A connection that `has_worked` before may be stale: the server was restarted, a firewall dropped it.
        That says nothing about the server now, so a new one is tried at once.
        """
        if trouble.ends_session:
            if not has_worked or self._reconnected:
                raise trouble.as_error() from None
            self._reconnected = True
            return 0.0
        if trouble.state not in _PASSING or self._refusals == _OFTEN:
            raise trouble.as_error() from None
        pause = _FIRST_PAUSE * (1 << self._refusals) * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        if time.monotonic() + pause >= self._until:
            raise trouble.as_error() from None
        self._refusals += 1
        return pause
