"""Servers and what stands on them."""

from collections.abc import Iterator

import pytest

from tests.servers import database, postgres
from tests.stores.desks import Books

__all__ = ["books", "database", "postgres"]


@pytest.fixture
def books(database: str) -> Iterator[Books]:
    """The tables in an empty database, with a desk in front of them."""
    books = Books(database)
    yield books
    books.close()
