"""The shop, on a database of `examples/conftest.py`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.orders.tests.running import Shop, running


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    """A shop with two servers."""
    with running(database, tmp_path) as shop:
        shop.start()
        shop.start()
        yield shop
