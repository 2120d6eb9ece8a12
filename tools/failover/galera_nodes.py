"""MariaDB Galera with writes to several nodes: who wins a race for a key, and what the others see."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from threading import Barrier
from typing import NamedTuple

from retrysafe import stores
from retrysafe._core.model import Reservation, Reserved
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.contract import Store
from retrysafe.testing.galera import GaleraCluster
from retrysafe.testing.stores import a_claim, an_outcome


class Races(NamedTuple):
    keys: int
    won_once: int
    """Of them.  Each of the others was reserved by no caller, or by two."""
    refused: int
    """Callers that were told that the store is unavailable."""


class Reads(NamedTuple):
    keys: int
    stale: int
    """Completed at one node, and not so, or not there at all, when another one was asked next."""


@contextmanager
def opened(cluster: GaleraCluster, database: str) -> Generator[list[Store]]:
    """A store per node."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(stores.open(node.url(database), deadline=5.0)))
            for node in cluster.nodes
        ]


def races(cluster: GaleraCluster, keys: int) -> Races:
    """The same key, at two nodes at once."""
    won = refused = 0
    together = Barrier(2)

    def reserve(store: Store, key: str) -> Reservation | None:
        together.wait()
        try:
            return store.reserve(a_claim(key))
        except StoreUnavailable:
            return None

    with (
        opened(cluster, cluster.new_database()) as nodes,
        ThreadPoolExecutor(2) as threads,
    ):
        nodes[0].reserve(a_claim("makes the tables"))
        for number in range(keys):
            found = list(threads.map(reserve, nodes[:2], [f"key {number}"] * 2))
            won += sum(isinstance(one, Reserved) for one in found) == 1
            refused += found.count(None)
    return Races(keys, won, refused)


@contextmanager
def synchronous_reads(cluster: GaleraCluster) -> Generator[None]:
    """Let sessions that begin now read nothing before all is executed that the node was sent until then."""
    _set_sync_wait(cluster, 1)
    yield
    _set_sync_wait(cluster, 0)


def _set_sync_wait(cluster: GaleraCluster, value: int) -> None:
    for node in cluster.nodes:
        node.execute(f"SET GLOBAL wsrep_sync_wait = {value}")


def reads(cluster: GaleraCluster, keys: int) -> Reads:
    """Completed at one node, then looked up at another."""
    stale = 0
    with opened(cluster, cluster.new_database()) as nodes:
        nodes[0].reserve(a_claim("makes the tables"))
        for number in range(keys):
            claim = a_claim(f"key {number}")
            nodes[0].reserve(claim)
            nodes[0].finish(claim, an_outcome())
            found = nodes[1].look(claim.id)
            stale += found is None or found.record.response is None
    return Reads(keys, stale)
