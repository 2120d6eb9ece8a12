"""Our tables: which of them are there, of which version, and what `migrate` would make.

Whoever can run a statement by its name and give its rows can ask.  A service does when it first connects, and
makes what is missing; an operator is told.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

from retrysafe.errors import SchemaMismatch
from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.statements import load

SCHEMA: Final = 1

TABLES: Final = ("retrysafe_records", "retrysafe_meta", "retrysafe_audit", "retrysafe_verdicts")
INDEXES: Final = ("retrysafe_records_expires_at",)

_VITAL = {"retrysafe_records", "retrysafe_meta"}
"""Without the one there are no records, without the other nobody knows what they mean."""

_MARK = f"version {SCHEMA} in retrysafe_meta"
"""Missing where the tables were made by somebody's own migration, such as Alembic's, which has no rows."""

Ask = Callable[[str], Sequence[Row]]
"""Runs a statement by its name."""


def missing(ask: Ask) -> list[str]:
    """What `migrate` would make, by name.  A `SchemaMismatch` is what it could not mend."""
    there = {str(name) for (name,) in ask("tables")}
    absent = [name for name in (*TABLES, *INDEXES) if name not in there]
    if there & set(TABLES):
        vital = sorted(_VITAL - there)
        if vital:
            raise SchemaMismatch(
                f"{' and '.join(vital)} is missing while other tables of retrysafe are there: restore it "
                "from a backup, or drop all of these tables and with them every record"
            )
        if not _is_marked(ask):
            absent.append(_MARK)
    return absent


def is_new(absent: Sequence[str]) -> bool:
    """Whether a service may make what is missing: all of the tables, or their version.

    Where some tables are there and some are not, somebody has removed them, and a person should know.
    """
    return not (gone := set(TABLES) & set(absent)) or gone == set(TABLES)


def refuse(absent: Sequence[str]) -> None:
    """Refuse to work where something is missing, an index aside."""
    vital = [name for name in absent if name not in INDEXES]
    if set(TABLES) <= set(vital):
        raise SchemaMismatch(
            "this database has no tables of retrysafe: `retrysafe migrate` makes them, or the address names "
            "another database, or a role that looks for tables in another schema"
        )
    if vital:
        raise SchemaMismatch(f"{' and '.join(vital)} is missing: `retrysafe migrate` makes what is missing")


def absent_columns(ask: Ask) -> list[str]:
    """Columns that this release needs and that the tables which are there do not have."""
    there: dict[str, set[str]] = {}
    for table, column in ask("layout"):
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
                f"the tables say no version, and {', '.join(absent)} is missing: make them as `retrysafe sql "
                "--dialect postgresql` has them"
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
