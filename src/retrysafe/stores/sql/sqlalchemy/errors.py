"""What a driver's error says, whichever driver it is."""

from sqlalchemy.exc import DBAPIError

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.postgresql.retry import PostgresTrouble

_DRIVERS = frozenset({"asyncpg", "pg8000", "psycopg", "psycopg2", "psycopg2cffi", "sqlalchemy"})
"""Whose messages are passed on.  Others come from the application, as from a `creator`, and may hold
anything."""


def trouble(error: BaseException) -> PostgresTrouble:
    """The server's code, and the first line of its words: the rest may quote values of a row."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    match original.args:
        case ({"C": str(state), "M": str(words)}, *_):  # pg8000 passes the fields of the message on
            return PostgresTrouble(words, state)
        case _:
            return PostgresTrouble(_first_line(original), _state(original))


def unreachable(error: BaseException) -> StoreUnavailable:
    """No connection could be opened."""
    found = trouble(error)
    code = f" (SQLSTATE {found.state})" if found.state else ""
    return StoreUnavailable(f"cannot connect to PostgreSQL: {found.reason}{code}")


def _state(error: BaseException) -> str:
    for name in ("sqlstate", "pgcode"):  # asyncpg and psycopg; psycopg2
        if isinstance(state := getattr(error, name, None), str):
            return state
    return ""


def _first_line(error: BaseException) -> str:
    name = type(error).__name__
    if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in _DRIVERS:
        return name
    words = str(error)
    if words.startswith("<class '"):  # so SQLAlchemy begins what asyncpg says
        words = words.partition(">: ")[2]
    return next((line.strip() for line in words.splitlines() if line.strip()), name)
