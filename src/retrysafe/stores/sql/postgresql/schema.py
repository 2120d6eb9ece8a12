"""Our tables: which of them exist, of which version, and how they are created; and whether a server can hold
them.

Everything here is given a function that runs a statement by its name, so it works with any driver.

On every new connection the server is checked: it takes writes, because after a failover another server may
be behind the same address.  On the first one of a process the tables are checked too.  Where there are none,
a service creates them, in one transaction under a lock, so that processes which start together create them
once; a role that may not gets an error that says what to run.  An operator gets an error in any case.

Tables are found along the connection's search path, and created in its first schema, as psql would.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, cast

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.queue import Row
from retrysafe.stores.sql.postgresql.retry import PostgresTrouble
from retrysafe.stores.sql.statements import load

SCHEMA: Final = 1

TABLES: Final = ("retrysafe_records", "retrysafe_meta", "retrysafe_audit", "retrysafe_verdicts")
INDEXES: Final = ("retrysafe_records_expires_at",)

_VITAL = {"retrysafe_records", "retrysafe_meta"}
"""Without the one there are no records, without the other their version is unknown."""

_MARK = f"version {SCHEMA} in retrysafe_meta"
"""Missing where a migration of the application's, such as Alembic's, created the tables: it has no rows."""

Ask = Callable[[str], Sequence[Row]]
"""Runs a statement by its name."""

Command = Callable[[str], None]
"""Runs SQL without arguments or rows, and perhaps several statements."""

_OLDEST = 120000
"""PostgreSQL 12 is the first that can be told to look up a record once and use it twice (`AS MATERIALIZED`),
which is what makes a claim one statement."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Others cannot hold every path that a client may ask for."""

_FORBIDDEN = ("42501", "25006")


def missing(ask: Ask) -> list[str]:
    """What `migrate` would create, by name.  A `SchemaMismatch` is what it could not fix."""
    there = {str(name) for (name,) in ask("existing_tables")}
    absent = [name for name in (*TABLES, *INDEXES) if name not in there]
    if there & set(TABLES):
        vital = sorted(_VITAL - there)
        if vital:
            raise SchemaMismatch(
                f"{' and '.join(vital)} is missing while other tables of retrysafe exist: restore it "
                "from a backup, or drop all of these tables and with them every record"
            )
        if not _is_marked(ask):
            absent.append(_MARK)
    return absent


def is_new(absent: Sequence[str]) -> bool:
    """Whether a service may create what is missing: all of the tables, or their version.

    Where some tables exist and some do not, they were removed, and an operator should know.
    """
    return not (gone := set(TABLES) & set(absent)) or gone == set(TABLES)


def refuse(absent: Sequence[str]) -> None:
    """Refuse to work where something is missing, an index aside."""
    vital = [name for name in absent if name not in INDEXES]
    if set(TABLES) <= set(vital):
        raise SchemaMismatch(
            "the tables of retrysafe do not exist in this database: run `retrysafe migrate`, or check the "
            "address and the search_path of its role"
        )
    if vital:
        raise SchemaMismatch(f"{' and '.join(vital)} is missing: run `retrysafe migrate`")


def absent_columns(ask: Ask) -> list[str]:
    """Columns that this release needs and that the tables which are there do not have."""
    there: dict[str, set[str]] = {}
    for table, column in ask("table_columns"):
        there.setdefault(str(table), set()).add(str(column))
    return [
        f"{table}.{column}"
        for table, columns in _columns().items()
        for column in columns
        if table in there and column not in there[table]
    ]


def _is_marked(ask: Ask) -> bool:
    """Whether the tables say that they are of the version that this release works with."""
    found = {str(name): str(value) for name, value in ask("meta")}.get("schema")
    if found is None:
        absent = absent_columns(ask)
        if absent:
            raise SchemaMismatch(
                f"the tables have no version, and {', '.join(absent)} is missing: create them as "
                "`retrysafe sql --dialect postgresql` prints them"
            )
        return False
    if found != str(SCHEMA):
        newer = found.isdigit() and int(found) > SCHEMA
        version = found if found.isdigit() else repr(found)
        raise SchemaMismatch(
            f"the tables have schema version {version} and this release works with {SCHEMA}: "
            f"{'upgrade retrysafe to' if newer else 'use'} the release that made them, or another database"
        )
    return True


@cache
def _columns() -> Mapping[str, Sequence[str]]:
    """Tables and their columns, read off the schema."""
    made = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+) \(([^()]*)\)", load("postgresql")["schema"])
    return {table: [column.split()[0] for column in columns.split(",")] for table, columns in made}


def inspect(ask: Ask) -> None:
    """Refuse a server that cannot hold a store."""
    [(version, follows, is_read_only, encoding)] = ask("server")
    if follows or is_read_only:
        what = "it is a replica" if follows else "its transactions are read-only for this role or database"
        raise StoreUnavailable(
            f"this PostgreSQL server accepts no writes, {what}: use the address of the primary, or several "
            "hosts with target_session_attrs=read-write"
        )
    if cast(int, version) < _OLDEST:
        raise StoreUnavailable(f"this PostgreSQL server has version {version}: expected 12 or later")
    if encoding not in _ENCODINGS:
        raise StoreUnavailable(
            f"the database has the encoding {encoding}, which cannot hold every text: "
            "use a database that was created with ENCODING 'UTF8'"
        )


def prepare(ask: Ask, command: Command) -> None:
    """Create the tables if they do not exist."""
    absent = missing(ask)
    if not is_new(absent):
        refuse(absent)
    if set(absent) <= set(INDEXES):
        return  # an index is for the operator to make: it would lock the table
    try:
        _make(ask, command)
    except PostgresTrouble as trouble:
        if trouble.state not in _FORBIDDEN:
            raise
        raise SchemaMismatch(
            f"the tables of retrysafe do not exist, and this role may not create them ({trouble.reason}): "
            "run `retrysafe migrate` as a role that may, or the SQL that "
            "`retrysafe sql --dialect postgresql` prints"
        ) from None


def _make(ask: Ask, command: Command) -> None:
    """Make what is missing, in one transaction."""
    command("BEGIN")
    try:
        ask("migration_lock")
        if missing(ask):  # again: another process may have been faster
            command(load("postgresql")["schema"])
        command("COMMIT")
    except (PostgresTrouble, SchemaMismatch):
        command("ROLLBACK")
        raise
