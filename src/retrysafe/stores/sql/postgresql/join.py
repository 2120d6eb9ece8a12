"""Errors of PostgreSQL at the end of the caller's transaction, from whichever driver."""

from retrysafe.stores.sql.join import Joint, NotCommitted, connection_lost, refused

_PASSING = frozenset({"40001", "40P01", "55P03", "25P03", "25P04"})
"""Serialization failure, deadlock, a lock that was not to be had, a transaction that took too long: another
time it will work."""

_UNCERTAIN = ("08", "53", "57", "58", "XX")
"""Classes of errors after which the server may not be there any more: the connection, its resources, an
operator who intervened, the system, a bug."""


def not_committed(error: Exception) -> NotCommitted:
    """What an error there means.  A server that gives its reasons has not committed."""
    state = sqlstate(error)
    if state is None or state.startswith(_UNCERTAIN):
        return connection_lost(error)
    return refused(error, passing=state in _PASSING)


def sqlstate(error: BaseException) -> str | None:
    """The code that a driver's exception carries, each in its own way; nothing if it has none."""
    for name in ("sqlstate", "pgcode"):  # psycopg, asyncpg; psycopg2
        found = getattr(error, name, None)
        if isinstance(found, str):
            return found
    match error.args:
        case ({"C": str(code)}, *_):  # pg8000 passes the fields of the message on
            return code
        case _:
            return None


JOINT = Joint("postgresql", not_committed)
