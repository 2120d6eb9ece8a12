"""Errors of PostgreSQL and of connections to it.

The server's message is passed on, but only its first line: the rest may quote values of the row.
"""

from retrysafe.errors import SchemaMismatch, StoreError, StoreUnavailable
from retrysafe.stores.retry import NotPermitted, Trouble

_PASSING = frozenset({"40001", "40P01", "55P03", "57014"})
"""Serialization failure, deadlock, a lock not to be had in time, a statement cancelled by a timeout."""

_SESSION = ("08", "57P", "0A000", "25006", "25P")
"""The session is of no more use, another may be: connection failures, a shutdown, a prepared statement whose
result has changed, a server that takes no more writes."""

DAMAGED = "XX001"
"""The server's code for damaged data."""

_NOT_PERMITTED = "42501"

NO_FUNCTION = frozenset({"42883", _NOT_PERMITTED})
"""The function for batches does not exist, or may not be called by this role."""

_TABLES = frozenset({"42P01", "42703"})
"""A table or a column is not there."""


class PostgresTrouble(Trouble):
    def __init__(self, reason: str, state: str = "") -> None:
        super().__init__(reason)
        self.state = state
        """The server's code for it (SQLSTATE); empty when it was not the server that said it."""
        self.passing = state in _PASSING
        self.disconnected = not state or state.startswith(_SESSION)

    def as_error(self) -> StoreError:
        if self.state in _TABLES:
            return SchemaMismatch(
                f"the tables differ from those of this release ({self.reason}): run `retrysafe migrate`"
            )
        kind = NotPermitted if self.state == _NOT_PERMITTED else StoreUnavailable
        return kind(f"PostgreSQL: {self.described}")

    @property
    def described(self) -> str:
        return f"{self.reason} (SQLSTATE {self.state})" if self.state else self.reason


def lost(error: Exception | str) -> PostgresTrouble:
    """The connection has gone."""
    lines = (line.strip() for line in str(error).splitlines())
    return PostgresTrouble(next((line for line in lines if line), "the connection was lost"))
