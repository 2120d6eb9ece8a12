"""What stands on servers."""

from collections.abc import Iterator

import pytest

from tests.stores.admins import Books
from tests.stores.halves import both, halves, opened

__all__ = ["books", "both", "halves", "opened"]


@pytest.fixture
def books(database: str) -> Iterator[Books]:
    """The tables in an empty database, with an operator's end."""
    books = Books(database)
    yield books
    books.close()
