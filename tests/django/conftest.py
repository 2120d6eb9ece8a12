"""The project of `project.py`, its client, and one database of each kind."""

import shutil
from collections.abc import Iterator

import pytest

from tests.django import project

project.configure()

from django.core.management import call_command  # noqa: E402 - Django has its settings now
from django.db import connections  # noqa: E402
from django.test import AsyncClient, Client, override_settings  # noqa: E402

from retrysafe.django.models import AuditEntry, Record  # noqa: E402
from retrysafe.django.settings import close_guards  # noqa: E402
from retrysafe.testing.mariadb import MariaDBServer  # noqa: E402
from retrysafe.testing.postgres import PostgresServer  # noqa: E402
from tests.django.shop.models import Order  # noqa: E402


@pytest.fixture(scope="session")
def migrated() -> None:
    for alias in ("default", "second"):
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
    connections.close_all()
    shutil.copy(connections["default"].settings_dict["NAME"], project.folder() / project.TEMPLATE)


@pytest.fixture(scope="session")
def template(postgres: PostgresServer) -> str:
    """A database of PostgreSQL's with all tables, to be copied."""
    url = postgres.new_database()
    with project.database("default", project.postgresql(url)):
        connections["default"].ensure_connection()
    return url


@pytest.fixture
def database(postgres: PostgresServer, template: str) -> Iterator[str]:
    """The address of a database that was migrated, and that no other test has used."""
    url = postgres.new_database(template)
    yield url
    postgres.drop_database(url)


@pytest.fixture(autouse=True)
def clean(migrated: None) -> Iterator[None]:
    """No records and no orders, and no connection is left open."""
    yield
    close_guards()
    for model in (Record, AuditEntry, Order):
        model.objects.all().delete()
    Order.objects.using("second").delete()
    connections.close_all()


@pytest.fixture(scope="session")
def kept_on_mariadb(mariadb: MariaDBServer) -> Iterator[str]:
    """One for all tests: to make its tables takes longer than most of them."""
    url = mariadb.new_database()
    yield url
    mariadb.drop_database(url)


@pytest.fixture
def on_mariadb(kept_on_mariadb: str) -> Iterator[None]:
    """Django's default database is MariaDB, without records and orders."""
    with project.database("default", project.mysql(kept_on_mariadb)):
        _empty()
        connections["default"].close()
        yield


def _empty() -> None:
    """Of all that tests write.  What Django makes with the tables stays."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        for table in connections["default"].introspection.table_names(cursor):
            if table not in _MADE_WITH_TABLES:
                cursor.execute(f"DELETE FROM {table}")


_MADE_WITH_TABLES = frozenset(
    {"auth_permission", "django_content_type", "django_migrations", "retrysafe_meta"}
)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def each_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Django's default database of each kind, one after the other."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    if request.param == "mariadb":
        request.getfixturevalue("on_mariadb")
        yield "mariadb"
        return
    url: str = request.getfixturevalue("database")
    with project.database("default", project.postgresql(url)):
        yield "postgresql"


@pytest.fixture
def on_postgresql(database: str) -> Iterator[None]:
    """Django's default database is PostgreSQL."""
    with project.database("default", project.postgresql(database)):
        yield


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client for the `urlpatterns` of the test's module, as alice."""
    with override_settings(ROOT_URLCONF=request.module):
        yield Client(raise_request_exception=False, headers={"Authorization": "Bearer alice"})


@pytest.fixture
def async_client(request: pytest.FixtureRequest) -> Iterator[AsyncClient]:
    with override_settings(ROOT_URLCONF=request.module):
        yield AsyncClient(raise_request_exception=False)  # it takes no headers for all of its requests
