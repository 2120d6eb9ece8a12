"""The Valkey Cluster whose nodes tests kill, and whose slots they move.

Tests of fail-overs use them in `make test`.
"""

import pytest
import redis

from retrysafe.testing.valkey import ValkeyServer
from retrysafe.testing.valkey_cluster import SLOTS, ValkeyCluster


@pytest.mark.full
def test_a_slot_moves_and_a_node_dies(valkey: ValkeyServer) -> None:
    """Keys go with their slot, a replica takes over from its primary, and the primary comes back as one."""
    del valkey  # only where there is one
    with ValkeyCluster() as cluster:
        first = cluster.nodes[0]
        assert cluster.primary_of(0) is first
        assert cluster.primary_of(SLOTS - 1) is cluster.nodes[2]
        slot = cluster.slot("{tag}")
        source = cluster.primary_of(slot)
        target = next(node for node in cluster.nodes[:3] if node is not source)
        with redis.RedisCluster.from_url(first.url(0)) as client:
            for number in range(200):  # more than one round of them
                client.set(b"{tag}%d\xff" % number, number)  # keys need not be text
            cluster.move(slot, target)
            assert cluster.primary_of(slot) is target
            assert client.get(b"{tag}7\xff") == b"7"
            client.execute_command("WAIT", 1, 60_000, target_nodes=client.get_node("127.0.0.1", target.port))
            target.kill()
            cluster.wait_until_whole()
            successor = cluster.primary_of(slot)
            assert successor not in cluster.nodes[:3]
            assert client.get(b"{tag}7\xff") == b"7"
            target.start()
            cluster.wait_until_whole()
            assert cluster.primary_of(slot) is successor
