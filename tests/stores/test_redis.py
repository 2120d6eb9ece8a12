"""The Redis store passes the suite, on a server of Valkey."""

from collections.abc import Iterator

import pytest

from retrysafe.stores.contract import Store
from retrysafe.testing import StoreSuite
from retrysafe.testing.stores.harness import Elapse, LoseLease
from retrysafe.testing.valkey import ValkeyServer
from tests.stores.redis_clock import Keys


class TestRedis(StoreSuite):
    @pytest.fixture
    def keys(self, valkey: ValkeyServer) -> Iterator[Keys]:
        keys = Keys(valkey.new_database())
        yield keys
        keys.close()

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
