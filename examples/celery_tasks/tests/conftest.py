"""The shop, with a Valkey server as its broker."""

from collections.abc import Iterator

import pytest

from examples.celery_tasks.tests.running import Shop
from retrysafe.testing.valkey import ValkeyServer
from tests.servers import valkey

__all__ = ["valkey"]


@pytest.fixture(scope="module")
def shop(valkey: ValkeyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One for all tests, because to start a worker takes longer than most of them."""
    with Shop(valkey.new_database(), tmp_path_factory.mktemp("shop")) as shop:
        shop.start_worker(processes=4)
        yield shop
