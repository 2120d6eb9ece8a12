"""Django's migrations, made of the numbered statements of the store.

    operations = [Statements("tables", [migrations.CreateModel(...)])]

The statements of each dialect are in `stores/sql/<dialect>/migrations`; a Django migration runs those with
its title, if the dialect has them, and what it says of models is for Django's own bookkeeping.
"""

from collections.abc import Sequence
from typing import Any

from django.db import router
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from retrysafe.stores.sql.migrations import Migration, column_of, columns_of_table, index_of, migrations

_DIALECTS = {"mysql": "mysql", "postgresql": "postgresql", "sqlite": "sqlite"}


class Statements(SeparateDatabaseAndState):
    """The statements of one migration of the store's."""

    reversible = True

    def __init__(self, title: str, models: Sequence[Operation] = ()) -> None:
        super().__init__(state_operations=list(models))
        self.title = title
        self.models = models

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return (type(self).__qualname__, [self.title, list(self.models)], {})

    def describe(self) -> str:
        return f"Run the store's migration {self.title!r}"

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - as Django has it
        to_state: ProjectState,  # noqa: ARG002 - as Django has it
    ) -> None:
        found = self._migration(app_label, schema_editor)
        if found is None:
            return
        # The tables may be there already, of a service that made them before it was Django's.
        there = set[tuple[str, str]]() if schema_editor.collect_sql else _columns(schema_editor)
        for statement in found.statements:
            if column_of(statement) not in there:
                # By the editor, which only collects them for `sqlmigrate`.
                schema_editor.execute(statement, params=None)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - as Django has it
        to_state: ProjectState,  # noqa: ARG002 - as Django has it
    ) -> None:
        found = self._migration(app_label, schema_editor)
        if found is None:
            return
        dialect = _DIALECTS[schema_editor.connection.vendor]
        for statement in _backwards(found, dialect):
            schema_editor.execute(statement, params=None)

    def _migration(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor) -> Migration | None:
        """The statements, where the records are in this database."""
        from retrysafe.django.settings import database

        alias = schema_editor.connection.alias
        dialect = _DIALECTS.get(schema_editor.connection.vendor)
        if dialect is None or alias != database() or not router.allow_migrate(alias, app_label):
            return None
        return next((one for one in migrations(dialect) if one.title == self.title), None)


def _columns(schema_editor: BaseDatabaseSchemaEditor) -> set[tuple[str, str]]:
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        tables = [
            name for name in connection.introspection.table_names(cursor) if name.startswith("retrysafe_")
        ]
        return {
            (table, column.name)
            for table in tables
            for column in connection.introspection.get_table_description(cursor, table)
        }


def _backwards(migration: Migration, dialect: str) -> list[str]:
    """What undoes a migration: its indexes, columns and tables are dropped, and with them what is in them."""
    found: list[str] = []
    for statement in reversed(migration.statements):
        if (index := index_of(statement)) is not None:
            found.append(f"DROP INDEX IF EXISTS {index}")
        elif (column := column_of(statement)) is not None:
            found.append(f"ALTER TABLE {column[0]} DROP COLUMN {column[1]}")
        elif columns := columns_of_table(statement):
            found.append(f"DROP TABLE IF EXISTS {columns[0][0]}")
        elif (function := function_of(statement)) is not None:
            before = _function_before(function, migration, dialect)
            found.append(f"DROP FUNCTION IF EXISTS {function}" if before is None else before)
    if migration.number > 1:
        number = migration.number - 1
        found.append(f"UPDATE retrysafe_meta SET value = '{number}' WHERE name = 'migration'")  # noqa: S608 - a number of ours
    return found


def _function_before(function: str, migration: Migration, dialect: str) -> str | None:
    """The statement that made a function as it was before a migration replaced it."""
    found: str | None = None
    for one in migrations(dialect)[: migration.number - 1]:
        for statement in one.statements:
            if function_of(statement) == function:
                found = statement
    return found


def function_of(statement: str) -> str | None:
    """The function that a statement makes."""
    words = statement.split("(", 1)[0].split()
    return words[-1] if words[:4] == ["CREATE", "OR", "REPLACE", "FUNCTION"] else None
