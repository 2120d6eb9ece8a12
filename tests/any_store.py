"""An empty store of every kind, by its address: for promises that no store is excused from.

    @pytest.mark.parametrize("address", STORES, indirect=True)
    def test_something(address: str) -> None: ...

Each stands on the server that the tests of this process share (`tests/servers.py`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.valkey import ValkeyServer

ON_SERVERS = ("postgresql",)

SHARED = ("sqlite", *ON_SERVERS)
"""Those that several processes can use."""

STORES = ("memory", *SHARED)


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of the store that the test's parameter names."""
    match request.param:
        case "memory":
            yield "memory:"
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'keys.db'}"
        case "postgresql":
            yield request.getfixturevalue("database")
        case "mariadb":
            mariadb: MariaDBServer = request.getfixturevalue("mariadb")
            url = mariadb.new_database()
            yield url
            mariadb.drop_database(url)
        case "valkey":
            valkey: ValkeyServer = request.getfixturevalue("valkey")
            yield valkey.new_database()
        case other:
            raise AssertionError(f"{other} is not one of {STORES}")
