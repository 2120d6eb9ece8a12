"""Valkey: the server is killed and started again, or a replica takes over.

A proxy stands for the address that clients have, which leads to the new primary when there is one.
"""

from retrysafe import stores
from retrysafe.stores.contract import Store
from retrysafe.testing.conversations.redis import RedisConversation
from retrysafe.testing.proxy import Proxy
from retrysafe.testing.valkey import ValkeyServer, arm
from retrysafe.testing.valkey_replication import ValkeyReplication
from tools.failover.traffic import CLIENTS, DEADLINE, Outcome, Traffic, outside


async def restarted(keys: int, *, is_empty: bool = False, **settings: str) -> Outcome:
    """Killed and started again: `appendonly` and `appendfsync` say what is on the disk.

    `is_empty`: nothing is, so the store refuses everything until an operator arms it again.
    """
    with ValkeyServer(**settings) as server:
        store = armed(server.new_database())

        def fault(traffic: Traffic) -> None:
            server.kill()
            server.start()
            if is_empty:
                traffic.wait_for_refused(2 * CLIENTS)
                arm(store)

        return await outside(store, fault, keys)


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

        url = address.through(servers.primary.url(0)) + ("?wait=1" if wait else "")
        return await outside(armed(url), fault, keys)


def armed(url: str) -> Store:
    """A store that is ready."""
    store = stores.open(url, deadline=DEADLINE)
    arm(store)
    return store
