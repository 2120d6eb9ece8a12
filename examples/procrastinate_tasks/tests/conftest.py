"""The shop, on a PostgreSQL server."""

from collections.abc import Iterator

import pytest

from examples.procrastinate_tasks.tests.running import Shop
from retrysafe.testing.postgres import PostgresServer
from tests.servers import postgres

__all__ = ["postgres"]


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One for all tests, because to start a worker takes longer than most of them."""
    with Shop(postgres.new_database(), tmp_path_factory.mktemp("shop")) as shop:
        shop.start_worker()
        yield shop
