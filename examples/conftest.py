"""The databases that examples are tried with."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrysafe.testing import mariadb, postgres
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty one."""
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path}/example.db"
        case "postgresql":
            if not postgres.is_available():
                _missing("PostgreSQL is not installed: pip install 'retrysafe[testing]'")
            with PostgresServer() as server:
                yield server.new_database().replace("postgresql:", "postgresql+psycopg:")
        case "mariadb":
            if not mariadb.is_available():
                _missing("MariaDB is not installed: run `make services`, or install Debian's mariadb-server")
            with MariaDBServer() as server:
                yield server.new_database().replace("mysql:", "mysql+pymysql:")
        case other:
            raise AssertionError(other)


def _missing(reason: str) -> None:
    pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
