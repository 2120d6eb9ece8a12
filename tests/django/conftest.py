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


@pytest.fixture(params=["sqlite", "postgresql"])
def each_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Django's default database of each kind, one after the other."""
    if request.param == "sqlite":
        yield "sqlite"
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
