"""The databases that examples are tried with."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrysafe.testing.postgres import PostgresServer, is_available


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty one."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/example.db"
        return
    if not is_available():
        missing = "PostgreSQL is not installed: pip install 'retrysafe[testing]'"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with PostgresServer() as server:
        yield server.new_database().replace("postgresql:", "postgresql+psycopg:")
