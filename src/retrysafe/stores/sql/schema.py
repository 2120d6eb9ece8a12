"""Our tables: which of them exist, which migrations they have, and what is to be done; in any dialect.

Two numbers are in `retrysafe_meta`.  `schema` changes when an older release could no longer work with the
tables: a release refuses every other number than its own.  `migration` is the last one that was applied.
Tables that have more than a release knows of are fine, because migrations only add.

A service creates tables where there are none, and applies the migrations that are missing, in one
transaction under a lock, so that processes which start together do it once.  Where some tables exist and some
do not, some were removed, and an operator should know.  Indexes that are missing on tables in use are for the
operator to create, because it takes a while.

Everything here is given a function that runs a statement by its name, so it works with any driver.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.admin import Index
from retrysafe.stores.queue import Row
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.migrations import (
    Column,
    Migration,
    column_of,
    columns_of_table,
    index_of,
    keys_of_table,
    migrations,
    table_of,
)
from retrysafe.stores.sql.statements import load

_log = logging.getLogger("retrysafe.store")

SCHEMA: Final = 1

TABLES: Final = (
    "retrysafe_records",
    "retrysafe_meta",
    "retrysafe_audit",
    "retrysafe_verdicts",
    "retrysafe_routes",
)

_VITAL = {"retrysafe_records", "retrysafe_meta"}
"""Without the one there are no records, without the other neither their version nor, in SQLite, the time."""

_OF_USE = {"retrysafe_routes"}
"""Without these a service of this release works all the same, and does less for operators."""

_MARK = f"version {SCHEMA} in retrysafe_meta"
"""Missing where a migration of the application's, such as Alembic's, created the tables: it has no rows."""

_CHOSEN: Mapping[Index, str] = {
    "request-id": "retrysafe_records_request_id",
    "scope": "retrysafe_records_scope",
}
"""Indexes that an operator may choose to have; how each is created is `index_request_id`, `index_scope`."""

Ask = Callable[[str], Sequence[Row]]
"""Runs a statement by its name."""


class Plan(NamedTuple):
    """What brings the tables to where this release needs them."""

    is_new: bool
    """There is none of the tables."""
    tables: Sequence[str]
    """Those that were removed: they are missing, and no migration that is missing creates them."""
    changes: Sequence[str]
    """Migrations to be applied, for people."""
    statements: Sequence[str]
    """To be run in one transaction."""
    indexes: Mapping[str, str]
    """Those that are missing on tables in use, with the statements that create them."""

    @property
    def is_vital(self) -> bool:
        """Whether it is needed, and not only of use: tables and columns are, a function is not."""
        return any(
            column_of(each) or (table_of(each) or "") not in {"", *_OF_USE} for each in self.statements
        )

    @property
    def loss(self) -> str:
        """What is to be said where something is missing that is only of use."""
        made = {table_of(each) for each in self.statements}
        less = ["more slowly"] if any("FUNCTION" in each for each in self.statements) else []
        if "retrysafe_routes" in made:
            less.append("and calls are not counted by route")
        return ", ".join(["everything works", *less])

    @property
    def names(self) -> list[str]:
        """All that would be made, for people."""
        return [*self.tables, *self.changes, *self.indexes]


def latest(dialect: str) -> int:
    return migrations(dialect)[-1].number


@cache
def index_statements(dialect: str) -> Mapping[str, str]:
    """Every index that the migrations create."""
    found: dict[str, str] = {}
    for each in migrations(dialect):
        for statement in each.statements:
            found |= keys_of_table(statement)
            if (name := index_of(statement)) is not None:
                found[name] = statement
    return found


def chosen_indexes(ask: Ask, dialect: str, wanted: Sequence[Index]) -> Mapping[str, str]:
    """Those of the indexes that an operator has chosen which do not exist, and how to create them."""
    there = {str(name) for (name,) in ask("existing_tables")}
    for index in wanted:
        if f"index_{index.replace('-', '_')}" not in load(dialect):
            raise StoreUnavailable(f"there is no index on {index} in {dialect}: lists by it scan the table")
    return {
        _CHOSEN[index]: load(dialect)[f"index_{index.replace('-', '_')}"]
        for index in wanted
        if _CHOSEN[index] not in there
    }


def plan(ask: Ask, dialect: str) -> Plan:
    """What is to be done.  A `SchemaMismatch` is what cannot be."""
    there = {str(name) for (name,) in ask("existing_tables")}
    missing = [table for table in TABLES if table not in there]
    if len(missing) == len(TABLES) or _is_unfinished(ask, dialect, there):
        every = [statement for each in migrations(dialect) for statement in each.statements]
        return Plan(True, [*missing, *index_statements(dialect)], [], every, {})
    if not there >= _VITAL:
        # Again: another service may have made them since.
        there |= {str(name) for (name,) in ask("existing_tables")}
        missing = [table for table in missing if table not in there]
    vital = sorted(_VITAL - there)
    if vital:
        raise SchemaMismatch(
            f"{' and '.join(vital)} is missing while other tables of retrysafe exist: restore it from a "
            "backup, or drop all of these tables and with them every record"
        )
    meta = {str(name): str(value) for name, value in ask("meta")}
    if missing:
        # Again: another service may have made them since, and written its number before we read it.
        there |= {str(name) for (name,) in ask("existing_tables")}
        missing = [table for table in missing if table not in there]
    is_marked = _is_marked(meta)
    applied = _applied(meta) if is_marked else 0
    pending = [each for each in migrations(dialect) if each.number > applied]
    tables = [table for table in missing if _created_by(dialect)[table] <= max(applied, 1)]
    columns = {(str(table), str(column)) for table, column in ask("table_columns")}
    statements = _statements(migrations(dialect) if tables else pending, columns)
    if is_marked:  # to create what is there takes a right, too, on PostgreSQL
        statements = [each for each in statements if table_of(each) not in there]
    _check_columns(dialect, columns, missing, statements, is_marked=is_marked)
    changes = [
        f"migration {each.number} ({each.title})"
        for each in pending
        if (is_marked or _adds(each, columns, there)) and each.number > 1
    ]
    indexes = {name: text for name, text in index_statements(dialect).items() if name not in there}
    return Plan(
        False,
        tables,
        changes if is_marked else [_MARK, *changes],
        statements,
        indexes,
    )


def _is_unfinished(ask: Ask, dialect: str, there: set[str]) -> bool:
    """Whether a creation broke off, where the server commits each change of a table by itself.

    retrysafe_meta is then the first table, and gets its version last.
    """
    created = list(_created_by(dialect))
    return (
        created[0] == "retrysafe_meta"
        and "retrysafe_meta" in there
        and created[-1] not in there
        and not ask("meta")
    )


MIGRATE: Final = "retrysafe migrate"
"""What an operator runs, unless a framework applies the migrations."""


def refuse(plan: Plan, command: str = MIGRATE) -> None:
    """Refuse to work with tables that a service would have to create or to change; an index is none."""
    if plan.is_new:
        raise SchemaMismatch(
            f"this database has no tables of retrysafe: run `{command}`, or check its address, and on "
            "PostgreSQL the search_path of its role"
        )
    refuse_removed(plan, command)
    if plan.is_vital:
        raise SchemaMismatch(
            f"the tables are of an earlier release ({', '.join(plan.changes)} is missing): run `{command}`"
        )


def refuse_unmigrated(plan: Plan, command: str) -> None:
    """The same for a service whose framework applies the migrations."""
    if not is_only_unmarked(plan):
        refuse(plan, command)


def is_for_a_service(plan: Plan, migrated_by: str | None) -> bool:
    """Whether a service does what is to be done, or leaves it to the command that applies the migrations."""
    return migrated_by is None or is_only_unmarked(plan)


def is_only_unmarked(plan: Plan) -> bool:
    """Whether the tables are there, and only say nothing about themselves: Django's `flush` empties all of
    them."""
    return plan.changes == [_MARK]


def refuse_removed(plan: Plan, command: str = MIGRATE) -> None:
    """Refuse tables of which some were removed."""
    if plan.tables and not plan.is_new:
        raise SchemaMismatch(f"{' and '.join(plan.tables)} is missing: run `{command}`")


def done(made: Sequence[str], dialect: str) -> str:
    """What a migration has done, for people."""
    if not made:
        return f"nothing to do: the tables have all migrations up to {latest(dialect)}"
    changes = [name for name in made if name.startswith("migration ")]
    created = [name for name in made if name not in changes]
    parts = [f"created {', '.join(created)}"] if created else []
    return "; ".join([*parts, f"applied {', '.join(changes)}"] if changes else parts)


def _is_marked(meta: Mapping[str, str]) -> bool:
    """Whether the tables say that this release can work with them; if they say nothing, they are new."""
    found = meta.get("schema")
    if found in (None, str(SCHEMA)):
        return found is not None
    newer = found.isdigit() and int(found) > SCHEMA
    version = found if found.isdigit() else repr(found)
    raise SchemaMismatch(
        f"the tables have schema version {version} and this release works with {SCHEMA}: "
        f"{'upgrade retrysafe to' if newer else 'use'} the release that made them, or another database"
    )


def _applied(meta: Mapping[str, str]) -> int:
    found = meta.get("migration", "1")  # the first one did not write its number
    if not found.isdigit():
        raise SchemaMismatch(
            f"retrysafe_meta has the migration {found!r}: expected a number. Restore it from a backup"
        )
    return int(found)


def _statements(of: Sequence[Migration], columns: set[Column]) -> list[str]:
    """What is to be run: no column twice, and indexes apart."""
    every = (statement for each in of for statement in each.statements)
    return [each for each in every if index_of(each) is None and column_of(each) not in columns]


def _adds(migration: Migration, columns: set[Column], tables: set[str]) -> bool:
    """Whether it creates a column or a table that is not there."""
    added = {column_of(statement) for statement in migration.statements} - {None} - columns
    created = {table_of(statement) for statement in migration.statements} - {None} - tables
    return bool(added or created)


@cache
def _created_by(dialect: str) -> Mapping[str, int]:
    """The migration that creates each table."""
    every = (
        (table_of(statement), each.number) for each in migrations(dialect) for statement in each.statements
    )
    return {table: number for table, number in every if table is not None}


def _check_columns(
    dialect: str, there: set[Column], tables: Sequence[str], statements: Sequence[str], *, is_marked: bool
) -> None:
    """Refuse tables that lack a column which no migration is about to add."""
    added = {column_of(statement) for statement in statements}
    absent = [
        f"{table}.{column}"
        for table, column in _columns(dialect)
        if table not in tables and (table, column) not in there | added
    ]
    if absent:
        says = f"say that they have migration {latest(dialect)}" if is_marked else "have no version"
        raise SchemaMismatch(
            f"the tables {says}, and {', '.join(absent)} is missing: create what is missing as "
            f"`retrysafe sql --dialect {dialect}` prints it"
        )


@cache
def _columns(dialect: str) -> Sequence[Column]:
    """Every column that this release needs, read off the migrations."""
    found: list[Column] = []
    for migration in migrations(dialect):
        for statement in migration.statements:
            found += columns_of_table(statement)
            column = column_of(statement)
            if column is not None:
                found.append(column)
    return found


def prepare(
    ask: Ask,
    dialect: str,
    apply: Callable[[], object],
    may_not: Callable[[Trouble], bool],
    migrated_by: str | None = None,
) -> None:
    """Create the tables if they do not exist, and apply the migrations that they lack; for a service on a
    server.

    `apply` does what is to be done, `may_not` recognises trouble that is a lack of rights, and `migrated_by`
    is the command that migrates, where a service does not.
    """
    found = plan(ask, dialect)
    if migrated_by is not None:
        refuse_unmigrated(found, migrated_by)
    refuse_removed(found)
    if not found.statements:
        return
    lacking = ", ".join(found.changes)
    if not is_for_a_service(found, migrated_by):
        _log.warning("the database lacks %s (run `%s`): %s", lacking, migrated_by, found.loss)
        return
    try:
        apply()
    except Trouble as trouble:
        if not may_not(trouble):
            raise
        if not found.is_vital:
            _log.warning(
                "the database lacks %s, and this role may not apply it (%s): %s",
                lacking,
                trouble.reason,
                found.loss,
            )
            return
        what = "do not exist" if found.is_new else f"lack {lacking}"
        raise SchemaMismatch(
            f"the tables of retrysafe {what}, and this role may not create them ({trouble.reason}): "
            "run `retrysafe migrate` as a role that may, or the SQL that "
            f"`retrysafe sql --dialect {dialect}` prints"
        ) from None
