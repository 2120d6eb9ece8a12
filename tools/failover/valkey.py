"""Valkey: the server is killed and started again, or a replica takes over.

A proxy stands for the address that clients have, which leads to the new primary when there is one.
"""

from retrysafe import stores
from retrysafe.testing.conversations.redis import RedisConversation
from retrysafe.testing.proxy import Proxy
from retrysafe.testing.valkey import ValkeyServer
from retrysafe.testing.valkey_replication import ValkeyReplication
from tools.failover.traffic import CLIENTS, DEADLINE, Outcome, Traffic, outside

CREATE = "?create=1"


async def restarted(keys: int, **settings: str) -> Outcome:
    """Killed and started again: `appendonly` and `appendfsync` say what is on the disk."""
    with ValkeyServer(**settings) as server:

        def fault(_: Traffic) -> None:
            server.kill()
            server.start()

        return await outside(stores.open(server.new_database() + CREATE, deadline=DEADLINE), fault, keys)


async def promoted(keys: int, *, wait: bool, behind: bool = False) -> Outcome:
    """The primary of two replicas is killed, and the one promoted that has received most.

    `wait`: nothing is acknowledged that no replica has.  `behind`: the replicas are cut off for a while
    before.
    """
    with (
        ValkeyReplication(replicas=2) as servers,
        Proxy(servers.primary.port, RedisConversation) as address,
    ):

        def fault(traffic: Traffic) -> None:
            if behind:
                servers.cut()
                if wait:
                    traffic.wait_for_refused(2 * CLIENTS)
                else:
                    traffic.wait_for_acknowledged(keys)
            address.refuse()
            address.cut()
            address.lead_to(servers.fail_over().port)
            address.accept()

        url = address.through(servers.primary.url(0)) + CREATE + ("&wait=1" if wait else "")
        return await outside(stores.open(url, deadline=DEADLINE), fault, keys)
