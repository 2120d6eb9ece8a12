"""An empty store of every kind, by its address: for promises that no store is excused from.

    @pytest.mark.parametrize("address", STORES, indirect=True)
    def test_something(address: str) -> None: ...

Each stands on the server that the tests of this process share (`tests/servers.py`).
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe import stores
from retrysafe.testing import valkey
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.valkey import ValkeyServer

ON_SERVERS = {"postgresql": "postgres", "mariadb": "mariadb", "valkey": "valkey"}
"""And the fixtures of their servers."""

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
        case name:
            url = new_on_server(request, name)
            yield url
            if name != "valkey":  # one of ten thousand, and empty ones cost nothing
                server: PostgresServer | MariaDBServer = request.getfixturevalue(ON_SERVERS[name])
                server.drop_database(url)


def new_on_server(request: pytest.FixtureRequest, name: str) -> str:
    """The address of an empty store on the server that the tests of this process share."""
    server: PostgresServer | MariaDBServer | ValkeyServer = request.getfixturevalue(ON_SERVERS[name])
    url = server.new_database()
    if name == "valkey":
        arm(url)
    return url


def arm(url: str) -> None:
    with closing(stores.open(url)) as store:
        valkey.arm(store)
