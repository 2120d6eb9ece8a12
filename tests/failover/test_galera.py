"""MariaDB Galera: one winner per key whatever the node, and what happens when a node is gone."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from retrysafe._core.model import Found, Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.contract import Store
from retrysafe.testing import galera as galera_servers
from retrysafe.testing.galera import GaleraCluster
from retrysafe.testing.stores import a_claim, an_outcome
from tests.servers import missing
from tools.failover import galera, galera_nodes
from tools.failover.traffic import Outcome

KEYS = 100


@pytest.fixture(autouse=True)
def _installed() -> None:
    if not galera_servers.is_available():
        missing("Galera is not installed: run `make services`")


@pytest.fixture(scope="module")
def three() -> Iterator[GaleraCluster]:
    with GaleraCluster() as cluster:
        yield cluster


def test_the_same_key_at_two_nodes() -> None:
    """I2: each key has one winner, though neither node knows of the other's transaction until it commits."""
    with GaleraCluster(nodes=2) as cluster:
        races = galera_nodes.races(cluster, KEYS)
    assert races == (KEYS, KEYS, 0)


@pytest.mark.full
def test_reads_at_another_node(three: GaleraCluster) -> None:
    """With `wsrep_sync_wait`, what one node has acknowledged the others show."""
    with galera_nodes.synchronous_reads(three):
        assert galera_nodes.reads(three, KEYS).stale == 0


@pytest.mark.full
def test_a_node_that_is_behind(three: GaleraCluster) -> None:
    """What makes a read stale: a node shows nothing of what it was sent and has not executed.  It lets
    no caller reserve the key either, and with `wsrep_sync_wait` it shows nothing at all."""
    database = three.new_database()
    with galera_nodes.opened(three, database) as nodes:
        claim = a_claim()
        nodes[0].reserve(a_claim("makes the tables"))
        until_seen(nodes[1], a_claim("makes the tables").id)
        with three.nodes[1].paused():
            nodes[0].reserve(claim)
            nodes[0].finish(claim, an_outcome())
            assert nodes[1].look(claim.id) is None
            with (
                galera_nodes.synchronous_reads(three),
                galera_nodes.opened(three, database) as waiting,
                pytest.raises(StoreUnavailable),
            ):
                waiting[1].look(claim.id)
            with pytest.raises(StoreUnavailable):
                nodes[1].reserve(a_claim())
        until_seen(nodes[1], claim.id)
        assert isinstance(nodes[1].reserve(a_claim()), Found)


@pytest.mark.full
def test_a_node_without_a_majority(three: GaleraCluster) -> None:
    """I12: it reserves nothing; the others go on; and when it is back it has what they have."""
    with galera_nodes.opened(three, three.new_database()) as nodes:
        assert nodes[0].reserve(a_claim("before")) == Reserved(1)
        three.isolate(three.nodes[2])
        with pytest.raises(StoreUnavailable):
            nodes[2].reserve(a_claim("alone"))
        assert nodes[0].reserve(a_claim("meanwhile")) == Reserved(1)
        three.rejoin(three.nodes[2])
        until_seen(nodes[2], a_claim("meanwhile").id)
        assert nodes[2].reserve(a_claim("alone")) == Reserved(1)


@pytest.mark.full
def test_the_node_that_takes_the_writes_is_killed() -> None:
    """F16: what it had acknowledged the others have, and nothing is executed twice."""
    outcome: Outcome = asyncio.run(galera.node_killed(KEYS))
    assert outcome.acknowledged >= 2 * KEYS
    assert (outcome.lost, outcome.contradicted, outcome.repeated) == (0, 0, 0)
    assert not outcome.unexpected


def until_seen(store: Store, id: bytes) -> None:
    until = time.monotonic() + 30
    while store.look(id) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
