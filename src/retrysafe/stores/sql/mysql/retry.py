"""Errors of MySQL and MariaDB, and of connections to them.

The server's message is passed on, but only its first line, and not where it quotes values of a row.
"""

from typing import Final

from retrysafe.errors import SchemaMismatch, StoreError, StoreUnavailable
from retrysafe.stores.retry import NotPermitted, Trouble

DEADLOCK: Final = 1213
"""Also what Galera says at a COMMIT that another node's was before, and when it breaks off a statement for
it."""

LOCK_TIMEOUT: Final = 1205
"""Also what MariaDB says of a row that was locked and was not to be waited for."""

LOCKED: Final = 3572
"""What MySQL says of it."""

_PASSING = frozenset(
    {
        LOCK_TIMEOUT,
        LOCKED,
        DEADLOCK,
        1020,  # MariaDB: the record has changed since this transaction looked
        1062,  # Galera: another node has inserted the key; here no insert of ours is refused for it
        1614,  # a part of a distributed transaction was rolled back
        3101,  # MySQL: the group's conflict detection rolled it back
    }
)
"""Likely to pass: a deadlock, a lock not to be had in time, another node that was faster."""

TOO_LONG: Final = frozenset(
    {
        1317,  # killed, as by KILL QUERY
        1969,  # MariaDB: max_statement_time
        3024,  # MySQL: max_execution_time
    }
)
"""The statement was broken off."""

READ_ONLY: Final = frozenset(
    {
        1290,  # read_only, super_read_only
        1792,  # a read-only transaction
        1836,  # a server in read-only mode
        3100,
        3101,  # MySQL: the group takes no writes, or rolled this one back
    }
)

_SESSION = READ_ONLY | frozenset(
    {
        1040,  # too many connections
        1041,  # out of memory
        1042,
        1043,  # no handshake
        1047,  # Galera: this node does not serve now
        1053,  # a shutdown
        1077,
        1079,
        1080,
        1152,
        1153,
        1154,
        1155,
        1156,
        1157,
        1158,
        1159,
        1160,
        1161,
        1184,  # the connection, and what is sent on it
        1203,
        1226,  # too many connections of this user, or too much of a resource
        1927,  # MariaDB: the connection was killed
        2002,
        2003,
        2006,
        2012,
        2013,
        2014,
        2026,
        2027,
        2055,  # of the client: no server, or none any more
        3032,  # MySQL: the server is offline
        3169,  # MySQL: the session was killed
        4031,  # MySQL: the session was idle for too long
    }
)
"""The session is of no more use, another may be."""

NOT_PERMITTED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1370, 1698})
"""The user may not do this, or not log in."""

_TABLES = frozenset(
    {
        1054,  # no such column
        1136,  # another number of columns
        1146,  # no such table
        1364,  # a column of which we know nothing has no default
    }
)

_QUOTING = frozenset({1062, 1265, 1292, 1366, 1406, 1586})
"""Messages that quote values."""


class MySQLTrouble(Trouble):
    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        """The server's number for it, or the driver's; 0 where neither gave one."""
        self.passing = code in _PASSING or code in TOO_LONG
        self.disconnected = not code or code in _SESSION

    @property
    def described(self) -> str:
        return f"{self.reason} (error {self.code})" if self.code else self.reason

    def as_error(self) -> StoreError:
        if self.code in _TABLES:
            return SchemaMismatch(
                f"the tables differ from those of this release ({self.reason}): run `retrysafe migrate`"
            )
        if self.code in READ_ONLY:
            return StoreUnavailable(
                f"the database accepts no writes ({self.described}): use the address of the primary"
            )
        kind = NotPermitted if self.code in NOT_PERMITTED else StoreUnavailable
        return kind(f"the database: {self.described}")


def trouble(error: BaseException) -> MySQLTrouble:
    """What an error of a driver's means: all of them have the number and the server's words."""
    match error.args:
        case (int(code), str(words), *_) if code:
            return MySQLTrouble(_said(code, words), code)
        case _:
            number = getattr(error, "errno", None)  # mysql-connector
            if isinstance(number, int) and number > 0 and not isinstance(error, OSError):
                return MySQLTrouble(_said(number, str(getattr(error, "msg", error))), number)
            return MySQLTrouble("the connection was lost")


def _said(code: int, words: str) -> str:
    if code in _QUOTING:
        return "a value does not fit its column, or is there already"
    return next((line.strip() for line in words.splitlines() if line.strip()), "no reason was given")
