"""Guards for operations, on each store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from retrysafe import Guard, scopes, stores
from retrysafe.stores.memory import MemoryStore
from tests.any_store import ON_SERVERS, STORES, new_on_server
from tests.stores.engines import DRIVERS, engine_for
from tests.transactions.conftest import database, kept_database

__all__ = ["database", "guard", "kept_database", "memory"]


_ENGINES = [pytest.param(driver, marks=pytest.mark.full) for driver in ("aiosqlite", "pysqlite", *DRIVERS)]


@pytest.fixture(params=[*STORES, *_ENGINES])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guard]:
    """Of a service whose keys are its own."""
    if request.param == "memory":
        guard = Guard(MemoryStore(), scope=scopes.service("billing"))
    elif request.param == "sqlite":
        guard = Guard(f"sqlite:///{tmp_path}/keys.db", scope=scopes.service("billing"))
    elif request.param in ON_SERVERS:
        guard = Guard(new_on_server(request, request.param), scope=scopes.service("billing"))
    else:
        in_file = request.param.endswith("sqlite")
        url = f"sqlite:///{tmp_path}/keys.db" if in_file else request.getfixturevalue("database")
        guard = Guard(stores.from_engine(engine_for(url, request.param)), scope=scopes.service("billing"))
    yield guard
    guard.close()


@pytest.fixture
def memory() -> Iterator[Guard]:
    """Where any store will do."""
    guard = Guard(MemoryStore(), scope=scopes.service("billing"))
    yield guard
    guard.close()
