"""Stores with records in them, for the tests of the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.records import PostgresShop, Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """An empty store, to be filled."""
    shop = Shop(tmp_path / "keys.db")
    yield shop
    shop.close()


@pytest.fixture
def bank(database: str) -> Iterator[PostgresShop]:
    """The same in PostgreSQL."""
    bank = PostgresShop(database)
    yield bank
    bank.close()
