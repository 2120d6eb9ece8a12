"""MariaDB Galera: the node that takes the writes is killed, and another one takes them.

A proxy stands for the address that clients have, which leads to one node at a time.
"""

from retrysafe import stores
from retrysafe.testing.conversations.mysql import MySQLConversation
from retrysafe.testing.galera import GaleraCluster
from retrysafe.testing.proxy import Proxy
from tools.failover.traffic import DEADLINE, Outcome, Traffic, outside


async def node_killed(keys: int) -> Outcome:
    with GaleraCluster() as cluster, Proxy(cluster.nodes[0].port, MySQLConversation) as address:
        first, second, _ = cluster.nodes

        def fault(_: Traffic) -> None:
            first.kill()
            cluster.wait_until_whole()
            address.lead_to(second.port)

        url = address.through(first.url(cluster.new_database()))
        return await outside(stores.open(url, deadline=DEADLINE), fault, keys)
