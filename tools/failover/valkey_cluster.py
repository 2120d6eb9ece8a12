"""Valkey Cluster: a node is killed, or slots move to another one."""

import redis

from retrysafe.testing.valkey_cluster import SLOTS, ValkeyCluster
from tools.failover.traffic import Fault, Outcome, Traffic, outside
from tools.failover.valkey import armed

MOVED = 8
"""Slots that have records in them."""


async def node_killed(keys: int, *, wait: bool = False) -> Outcome:
    """One of three primaries is killed, and its replica takes over.

    `wait`: nothing is acknowledged that no replica has, so the node has to come back, as a replica.
    """

    def fault(_: Traffic) -> None:
        cluster.nodes[0].kill()
        cluster.wait_until_whole()
        if wait:
            cluster.nodes[0].start()
            cluster.wait_until_whole()

    with ValkeyCluster() as cluster:
        return await _outside(cluster, fault, keys, "?wait=1" if wait else "")


async def slots_moved(keys: int) -> Outcome:
    """Slots move, one by one, while their records are in use."""

    def fault(_: Traffic) -> None:
        source, target, _third = cluster.nodes[:3]
        for slot in _used(source.url(0)):
            cluster.move(slot, target)

    with ValkeyCluster() as cluster:
        return await _outside(cluster, fault, keys)


async def _outside(cluster: ValkeyCluster, fault: Fault, keys: int, query: str = "") -> Outcome:
    return await outside(armed(cluster.url + query), fault, keys)


def _used(url: str) -> list[int]:
    with redis.Redis.from_url(url) as client, client.pipeline(transaction=False) as pipeline:
        for slot in range(SLOTS):
            pipeline.execute_command("CLUSTER COUNTKEYSINSLOT", slot)
        counts = pipeline.execute()
    return [slot for slot, count in enumerate(counts) if count][:MOVED]
