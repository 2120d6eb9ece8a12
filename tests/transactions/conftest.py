"""Databases of servers for those who ask for one."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine

from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer
from tests.transactions.ledgers import InFile, Place, connect_mysql, on_server

__all__ = ["audit", "database", "kept_database", "kept_mariadb_database", "mariadb_database", "path", "place"]

TABLES = "items, retrysafe_records, retrysafe_meta, retrysafe_audit, retrysafe_verdicts, retrysafe_routes"


@pytest.fixture(scope="session")
def kept_database(postgres: PostgresServer) -> Iterator[str]:
    """One for all tests: to make one takes longer than most of them."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def database(kept_database: str) -> str:
    """The address of an empty database."""
    with psycopg.connect(kept_database) as db:
        db.execute(f"DROP TABLE IF EXISTS {TABLES}".encode())
    return kept_database


@pytest.fixture(scope="session")
def kept_mariadb_database(mariadb: MariaDBServer) -> Iterator[str]:
    """The same on MariaDB."""
    url = mariadb.new_database()
    yield url
    mariadb.drop_database(url)


@pytest.fixture
def mariadb_database(kept_mariadb_database: str) -> str:
    """The address of an empty database."""
    with closing(connect_mysql(kept_mariadb_database)) as db, db.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLES}")
    return kept_mariadb_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def audit(path: Path) -> InFile:
    return InFile(path)


@pytest.fixture(params=["pysqlite", "psycopg", "pg8000"])
def place(request: pytest.FixtureRequest, path: Path) -> Iterator[Place]:
    """An engine of the application's, with each driver that sessions are tried on."""
    if request.param == "pysqlite":
        place = Place(create_engine(f"sqlite:///{path}"), InFile(path))
    else:
        place = on_server(request.getfixturevalue("database"), request.param)
    yield place
    place.engine.dispose()
