"""PostgreSQL by any driver: see `sql/backend.py`."""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from retrysafe.errors import UnreadableRecord
from retrysafe.stores.queue import Call, Outcome, Row, Rows
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.backend import Backend, Execute, nothing_to_begin, said_by
from retrysafe.stores.sql.postgresql import schema
from retrysafe.stores.sql.postgresql.admin import PostgresAdmin, explained
from retrysafe.stores.sql.postgresql.batch import Combined, is_worth, literal
from retrysafe.stores.sql.postgresql.join import JOINT, sqlstate
from retrysafe.stores.sql.postgresql.plans import DISCARD, CachedPlans
from retrysafe.stores.sql.postgresql.retry import DAMAGED, NO_FUNCTION, PostgresTrouble
from retrysafe.stores.sql.statements import load

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Said in full: a role or a database may have another default, and a claim that waited for a row must then
see it as it is."""

_ARRAY = re.compile(r"CAST\(:(\w+) AS (\w+\[\])\)")


@cache
def _statements() -> Mapping[str, str]:
    """As the drivers of SQLAlchemy take them: not all have arrays, so these travel as text."""
    known = dict(load("postgresql"))
    known["batch"] = _ARRAY.sub(r"CAST(CAST(:\1 AS text) AS \2)", known["batch"])
    return known


class Runner:
    """A batch of several calls is one transaction; a single call commits by itself."""

    def __init__(self) -> None:
        self._combines = True
        """Until it is found that the function for batches does not exist."""
        self._plans = CachedPlans()

    def run(self, execute: Execute, calls: Sequence[Call], patience: float) -> Sequence[Outcome]:
        if self._plans.are_old():
            execute(DISCARD, {})
        if self._combines and is_worth(calls):
            combined = Combined(calls, literal)
            try:
                rows, *others = self._run(execute, combined.calls, patience)
            except PostgresTrouble as trouble:
                if trouble.state not in NO_FUNCTION:
                    raise
                self._combines = False
            except UnreadableRecord as damage:
                # One record is damaged.  All calls were done, and each recognises that when it is alone.
                raise PostgresTrouble(str(damage), DAMAGED) from damage
            else:
                return combined.apart(others, rows)
        if len(calls) > 1:
            return self._run(execute, calls, patience)
        try:
            return self._run(execute, calls, patience)
        except Trouble as trouble:
            if trouble.disconnected:
                raise
            return [trouble]

    def _run(self, execute: Execute, calls: Sequence[Call], patience: float) -> list[Rows]:
        known = _statements()
        if len(calls) == 1:
            [(name, arguments)] = calls
            return [execute(known[name], {**arguments, "patience": patience})]
        execute(_BEGIN, {})
        try:
            rows = [execute(known[name], {**arguments, "patience": patience}) for name, arguments in calls]
            execute("COMMIT", {})
        except UnreadableRecord as damage:
            execute("ROLLBACK", {})
            raise PostgresTrouble(str(damage), DAMAGED) from damage
        except Trouble as trouble:
            if not trouble.disconnected:
                execute("ROLLBACK", {})
            raise
        return rows


def _check(execute: Execute, *, prepared: bool, migrated_by: str | None = None) -> None:
    def ask(name: str) -> Sequence[Row]:
        return _query(execute, name, {})

    def command(sql: str) -> None:
        execute(sql, {})

    schema.inspect(ask)
    if not prepared:
        schema.prepare(ask, command, migrated_by)


def _query(execute: Execute, name: str, arguments: Mapping[str, object]) -> Sequence[Row]:
    return execute(load(schema.DIALECT)[name], arguments)


_DRIVERS = frozenset({"asyncpg", "pg8000", "psycopg", "psycopg2", "psycopg2cffi", "sqlalchemy"})
"""Whose messages are passed on.  Others come from the application, as from a `creator`, and may hold
anything."""


def trouble(error: BaseException) -> PostgresTrouble:
    """The server's code, and the first line of its words: the rest may quote values of a row."""
    match error.args:
        case ({"C": str(state), "M": str(words)}, *_):  # pg8000 passes the fields of the message on
            return PostgresTrouble(words, state)
        case _:
            return PostgresTrouble(said_by(error, _DRIVERS), sqlstate(error) or "")


BACKEND = Backend(
    title="PostgreSQL",
    joint=JOINT,
    runner=Runner,
    begin=nothing_to_begin,
    check=_check,
    query=_query,
    trouble=trouble,
    explained=explained,
    admin=PostgresAdmin,
)
