"""The Redis store passes the suite, on a server of Valkey."""

from collections.abc import Iterator

import pytest
import redis

from retrysafe.stores.contract import Store
from retrysafe.testing import StoreSuite
from retrysafe.testing.stores.harness import Elapse, LoseLease
from retrysafe.testing.valkey import ValkeyServer
from tests.stores.redis_clock import Client, Keys


@pytest.fixture(scope="module")
def place(valkey: ValkeyServer) -> Iterator[tuple[str, Client]]:
    """One database for the whole suite, and a connection to it from behind the stores' backs."""
    url = valkey.new_database()
    with redis.Redis.from_url(url) as client:
        yield url, client


class TestRedis(StoreSuite):
    @pytest.fixture
    def keys(self, place: tuple[str, Client]) -> Keys:
        return Keys(*place)

    @pytest.fixture
    def store(self, keys: Keys) -> Iterator[Store]:
        store = keys.store()
        yield store
        store.close()

    @pytest.fixture
    def elapse(self, keys: Keys) -> Elapse:
        return keys.elapse

    @pytest.fixture
    def lose_lease(self, keys: Keys) -> LoseLease:
        return keys.lose_lease
