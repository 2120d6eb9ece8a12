"""Django's migrations: the store's own tables, reversible, and as the models say."""

import re
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.test import Client, override_settings
from django.urls import path

from retrysafe import stores
from retrysafe.django import idempotent
from retrysafe.django.models import Record
from retrysafe.stores.sql.migrations import migrations
from retrysafe.stores.sql.schema import TABLES, latest
from retrysafe.testing.mariadb import MariaDBServer
from tests.django import project
from tests.django.cases import KEYED, create

urlpatterns = [path("create/", idempotent(create.__wrapped__))]  # type: ignore[attr-defined]  # what was decorated


MOMENT = timedelta(milliseconds=1)
"""More than is lost between SQLite's seconds and a time of Python's."""

MODELLED = set(TABLES) - {"retrysafe_meta"}


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that was migrated, and nothing else has used; its address."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'app.db'}"
        said: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "app.db")}
    elif request.param == "mariadb":
        url = request.getfixturevalue("new_on_mariadb")
        said = project.mysql(url)
    else:
        url = request.getfixturevalue("database")
        said = project.postgresql(url)
    with project.database("default", said):
        yield url


@pytest.fixture
def new_on_mariadb(mariadb: MariaDBServer) -> Iterator[str]:
    """The address of an empty database."""
    url = mariadb.new_database()
    yield url
    mariadb.drop_database(url)


def columns() -> dict[str, dict[str, tuple[str, bool]]]:
    """Every column of our tables, its kind, and whether it may be NULL.

    Not of `retrysafe_meta`: what the store knows about itself is no model, and `flush` leaves it alone.
    """
    with connection.cursor() as cursor:
        introspection: Any = connection.introspection
        return {
            table: {
                column.name: (
                    _kind(introspection.get_field_type(column.type_code, column)),
                    bool(column.null_ok),
                )
                for column in introspection.get_table_description(cursor, table)
            }
            for table in sorted(introspection.table_names(cursor))
            if table.startswith("retrysafe_") and table != "retrysafe_meta"
        }


def _kind(found: object) -> str:
    """What a column holds, as far as Django tells column types apart."""
    name = found[0] if isinstance(found, tuple) else str(found)
    kinds = {"BigAutoField": "number", "AutoField": "number", "FloatField": "time", "DateTimeField": "time"}
    return _on_mysql(kinds.get(name, "number" if name.endswith("IntegerField") else name))


def _on_mysql(kind: str) -> str:
    """Django reads bytes and short texts of MySQL's as text."""
    is_text = connection.vendor == "mysql" and kind in ("BinaryField", "CharField", "TextField")
    return "TextField" if is_text else kind


def test_models_are_what_is_there(empty_database: str) -> None:
    """Names, kinds, NULLs and primary keys, read from the database itself."""
    there = columns()
    assert set(there) == MODELLED
    for model in apps.get_app_config("retrysafe").get_models():
        said = {
            field.column: (_model_kind(field), field.null)
            for field in model._meta.local_fields
            if field.column is not None
        }
        assert said == there[model._meta.db_table], model
        with connection.cursor() as cursor:
            keys = connection.introspection.get_primary_key_columns(cursor, model._meta.db_table)
        assert keys == [field.column for field in model._meta.pk_fields]


def _model_kind(field: Any) -> str:
    if type(field).__name__ == "MomentField":
        return "time"
    found = field.get_internal_type()
    return _on_mysql("number" if found.endswith(("IntegerField", "AutoField")) else str(found))


def test_no_migration_is_missing() -> None:
    """Django would make none of the models as they are."""
    printed = StringIO()
    call_command("makemigrations", "retrysafe", check=True, dry_run=True, stdout=printed)
    assert "No changes" in printed.getvalue()


def test_every_migration_of_the_store_is_one_of_djangos() -> None:
    """By its title, in each dialect, in the same order."""
    folder = Path(apps.get_app_config("retrysafe").path, "migrations")
    titles = [path.stem[5:].replace("_", " ") for path in sorted(folder.glob("0*.py"))]
    for dialect in ("sqlite", "postgresql", "mysql"):
        of_store = [migration.title for migration in migrations(dialect)]
        assert of_store == [title for title in titles if title in of_store]


def test_the_same_tables_as_without_django(empty_database: str, tmp_path: Path) -> None:
    """A store that is opened by the address finds nothing to do."""
    store = stores.open(empty_database)
    try:
        admin = store.open_admin()
        assert admin.migrate() == f"nothing to do: the tables have all migrations up to {latest(_dialect())}"
        assert all(finding.level != "problem" for finding in admin.diagnose() if finding.check == "schema")
        admin.close()
    finally:
        store.close()


def _dialect() -> str:
    return connection.vendor


def test_there_and_back(empty_database: str) -> None:
    """Each step is undone by itself, nothing is left of the first, and all are done again."""
    before = columns()
    for name in ("0004", "0003", "0002", "0001", "zero"):
        call_command("migrate", "retrysafe", name, verbosity=0)
    assert columns() == {}
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_proc WHERE proname LIKE 'retrysafe%'")
            assert cursor.fetchone() == (0,)
    call_command("migrate", "retrysafe", verbosity=0)
    assert columns() == before


def test_tables_that_were_there_before_django(tmp_path: Path) -> None:
    """A service that used the store's own migrations moves to Django's, with its records."""
    file = tmp_path / "before.db"
    store = stores.open(f"sqlite:///{file}")
    store.look(bytes(32))  # makes the tables
    store.close()
    with project.database("default", {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}):
        assert set(columns()) == MODELLED


def test_a_database_that_is_not_migrated(tmp_path: Path) -> None:
    """503, the view has not run, and the log names the command."""
    said = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "app.db")}
    with project.database("default", said), override_settings(ROOT_URLCONF=__name__):
        call_command("migrate", "retrysafe", "zero", verbosity=0)
        response = Client(raise_request_exception=False).post("/create/", headers=KEYED)
        assert response.status_code == 503
        assert response.json()["code"] == "store-unavailable"
        call_command("migrate", "retrysafe", verbosity=0)


def test_other_databases_have_none(tmp_path: Path) -> None:
    """Only the one that `RETRYSAFE["DATABASE"]` names."""
    with project.database("other", {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "o.db")}):
        from django.db import connections

        with connections["other"].cursor() as cursor:
            names = connections["other"].introspection.table_names(cursor)
        assert not [name for name in names if re.match("retrysafe_", name)]


def test_records_by_the_orm(empty_database: str) -> None:
    """Read, filtered by their times and digits, and deleted."""
    with override_settings(ROOT_URLCONF=__name__):
        Client().post("/create/", headers=KEYED)
    record = Record.objects.get()
    assert re.fullmatch("[0-9a-f]{64}", record.pk)
    assert Record.objects.filter(pk=record.pk, created_at__lte=record.created_at + MOMENT).exists()
    assert not Record.objects.filter(created_at__gt=record.created_at + MOMENT).exists()
    assert record.scope_parts == {"user": "alice"}
    assert record.expires_at > record.created_at
    assert str(record).startswith(record.pk[:8])
