"""What a driver's error says, whichever driver it is."""

from sqlalchemy.exc import DBAPIError

from retrysafe.stores.sql.postgresql.trouble import Trouble


def trouble(error: Exception) -> Trouble:
    """The server's code, and the first line of its words: the rest may quote values of a row."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    match original.args:
        case ({"C": str(state), "M": str(words)}, *_):  # pg8000 passes the fields of the message on
            return Trouble(words, state)
        case _:
            return Trouble(_first_line(original), _state(original))


def _state(error: BaseException) -> str:
    for name in ("sqlstate", "pgcode"):  # asyncpg and psycopg; psycopg2
        if isinstance(state := getattr(error, name, None), str):
            return state
    return ""


def _first_line(error: BaseException) -> str:
    # SQLAlchemy puts the class before what asyncpg says.
    words = str(error).rpartition("'>: ")[2] if str(error).startswith("<class '") else str(error)
    lines = (line.strip() for line in words.splitlines())
    return next((line for line in lines if line), type(error).__name__)
