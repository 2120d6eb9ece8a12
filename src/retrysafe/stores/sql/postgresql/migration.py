"""Our tables in PostgreSQL: whether they are there and of our version, and how they come to be.

Made in one transaction under a lock that belongs to it, so that any number of processes may try at once,
behind a pooler too: the first makes them, the others find them.  Whoever finds all of it needs no right to
make any.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from retrysafe.errors import SchemaMismatch
from retrysafe.stores.sql.postgresql.desk import SNAPSHOT, WALK, WRITE, Desk, Transaction
from retrysafe.stores.sql.statements import load

SCHEMA: Final = 1

TABLES: Final = ("retrysafe_records", "retrysafe_meta", "retrysafe_audit", "retrysafe_verdicts")
INDEXES: Final = ("retrysafe_records_expires_at",)

_VITAL = {"retrysafe_records", "retrysafe_meta"}
"""Without the one there are no records, without the other nobody knows what they mean."""

_MARK = f"version {SCHEMA} in retrysafe_meta"
"""Missing where the tables were made by somebody's own migration, which has no rows."""


def migrate(desk: Desk) -> list[str]:
    """Make what is missing.  Gives its names."""
    with desk.transaction(SNAPSHOT, desk.deadline) as transaction:
        if not missing(transaction):
            return []
    with desk.transaction(WRITE, WALK) as transaction:
        transaction.query("migration_lock")
        made = missing(transaction)  # for others may have been quicker
        if made:
            for statement in filter(str.strip, load("postgresql")["schema"].split(";")):
                transaction.command(statement)
        return made


def check(desk: Desk) -> None:
    """Refuse to work with tables that are not all there, or not ours to read."""
    with desk.transaction(SNAPSHOT, desk.deadline) as transaction:
        absent = [name for name in missing(transaction) if name not in INDEXES]
    if set(TABLES) <= set(absent):
        raise SchemaMismatch(
            "this database has no tables of retrysafe: `retrysafe migrate` makes them, or the address names "
            "another database, or a role that looks for tables in another schema"
        )
    if absent:
        raise SchemaMismatch(f"{' and '.join(absent)} is missing: `retrysafe migrate` makes what is missing")


def missing(transaction: Transaction) -> list[str]:
    """What `migrate` would make, by name."""
    there = {str(name) for (name,) in transaction.query("tables")}
    absent = [name for name in (*TABLES, *INDEXES) if name not in there]
    if there & set(TABLES):
        vital = sorted(_VITAL - there)
        if vital:
            raise SchemaMismatch(
                f"{' and '.join(vital)} is missing while other tables of retrysafe are there: restore it "
                "from a backup, or drop all of these tables and with them every record"
            )
        if not _is_marked(transaction):
            absent.append(_MARK)
    return absent


def _is_marked(transaction: Transaction) -> bool:
    """Whether the tables say that they are of the version that this release works with."""
    found = {str(name): str(value) for name, value in transaction.query("meta")}.get("schema")
    if found is None:
        _check_layout(transaction)
        return False
    if found != str(SCHEMA):
        newer = found.isdigit() and int(found) > SCHEMA
        version = found if found.isdigit() else repr(found)
        raise SchemaMismatch(
            f"the tables have schema version {version} and this release works with {SCHEMA}: "
            f"{'upgrade retrysafe to' if newer else 'use'} the release that made them, or another database"
        )
    return True


def _check_layout(transaction: Transaction) -> None:
    """Tables without a version are taken for ours only if they have all that ours have."""
    absent = absent_columns(transaction)
    if absent:
        raise SchemaMismatch(
            f"the tables say no version, and {', '.join(absent)} is missing: make them as `retrysafe sql "
            "--dialect postgresql` has them"
        )


def absent_columns(transaction: Transaction) -> list[str]:
    """Columns that this release needs and that the tables which are there do not have."""
    there: dict[str, set[str]] = {}
    for table, column in transaction.query("layout"):
        there.setdefault(str(table), set()).add(str(column))
    return [
        f"{table}.{column}"
        for table, columns in _layout().items()
        for column in columns
        if table in there and column not in there[table]
    ]


@cache
def _layout() -> Mapping[str, Sequence[str]]:
    """Tables and their columns, read off the schema."""
    made = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+) \(([^()]*)\)", load("postgresql")["schema"])
    return {table: [column.split()[0] for column in columns.split(",")] for table, columns in made}
