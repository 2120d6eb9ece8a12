"""A Valkey Cluster: three primaries, each with a replica that takes over when it is killed.

    with ValkeyCluster() as cluster:
        store = stores.open(cluster.url)
        cluster.primary_of(cluster.slot("key")).kill()

It starts in about two seconds.  A failed node is noticed within the node timeout, which is short here.
"""

import contextlib
import secrets
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Self

import redis
from redis.crc import key_slot

from retrysafe.testing.ports import free_port
from retrysafe.testing.valkey import ValkeyServer
from retrysafe.testing.valkey_replication import ask, client, is_following, wait

SLOTS = 16384
PRIMARIES = 3

NODE_TIMEOUT = 1000
"""Milliseconds; the default of 15,000 would be what a test of a fail-over waits for."""


class ValkeyCluster:
    """Settings are those of `ValkeyServer`, for each node."""

    def __init__(self, **settings: str) -> None:
        self._password = secrets.token_hex(16)
        self._settings = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": str(NODE_TIMEOUT),
            "cluster_replica_validity_factor": "0",  # however long it was without its primary
            "repl_diskless_sync_delay": "0",
            "requirepass": self._password,
            "masterauth": self._password,
            **settings,
        }
        self.nodes: list[ValkeyServer] = []
        self._ports: list[str] = []
        try:
            for _ in range(2 * PRIMARIES):
                # The default, the port and 10,000, is beyond the last one for half of all free ports.
                port = str(free_port())
                self.nodes.append(ValkeyServer(**self._settings, cluster_port=port))
                self._ports.append(port)
            self._form()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    @property
    def url(self) -> str:
        """By all of its nodes: the first that responds tells a client about the others."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://:{self._password}@{hosts}"

    def slot(self, key: str) -> int:
        return key_slot(key.encode())

    @property
    def running(self) -> list[ValkeyServer]:
        return [node for node in self.nodes if node.is_running]

    def primary_of(self, slot: int) -> ValkeyServer:
        """The node that has it, once all nodes that run agree."""
        first = self.running[0]
        wait(first, lambda _: len({_owner(node, slot) for node in self.running}) == 1)
        port = _owner(first, slot)
        return next(node for node in self.nodes if node.port == port)

    def wait_until_whole(self) -> None:
        """Until each node that runs sees every slot at a primary that runs, and accepts commands."""
        alive = {node.port for node in self.running}
        for node in self.running:
            wait(node, lambda one: _slots(one, alive) == SLOTS and _is_ok(one))

    def move(self, slot: int, target: ValkeyServer) -> None:
        """Move a slot, and the keys in it, while clients use them: as `valkey-cli --cluster reshard` does."""
        source = self.primary_of(slot)
        number = str(slot)
        ask(target, "CLUSTER", "SETSLOT", number, "IMPORTING", _id(source))
        ask(source, "CLUSTER", "SETSLOT", number, "MIGRATING", _id(target))
        with client(source) as connection:
            # In two words: for the one that redis-py knows, it would take the keys for text.
            while keys := connection.execute_command("CLUSTER", "GETKEYSINSLOT", number, 100):
                connection.execute_command(
                    "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "AUTH", self._password, "KEYS", *keys
                )
        # The target first, or the slot would have no owner for a moment; the others would learn it later.
        others = [node for node in self.running if node not in (target, source) and _is_primary(node)]
        for node in (target, source, *others):
            ask(node, "CLUSTER", "SETSLOT", number, "NODE", _id(target))
        for node in self.running:
            wait(node, lambda one: _owner(one, slot) == target.port)

    def _form(self) -> None:
        primaries, replicas = self.nodes[:PRIMARIES], self.nodes[PRIMARIES:]
        for number, node in enumerate(primaries):
            first, end = (SLOTS * part // PRIMARIES for part in (number, number + 1))
            ask(node, "CLUSTER", "ADDSLOTSRANGE", str(first), str(end - 1))
            ask(node, "CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        for node in self.nodes[1:]:
            ask(node, "CLUSTER", "MEET", "127.0.0.1", str(self.nodes[0].port), self._ports[0])
        for node in self.nodes:
            wait(node, lambda one: len(ask(one, "CLUSTER NODES")) == len(self.nodes))
        for primary, replica in zip(primaries, replicas, strict=True):
            wait(replica, partial(_follow, primary=_id(primary)))
        for replica in replicas:
            wait(replica, is_following)
        self.wait_until_whole()


def _primaries(node: ValkeyServer) -> Iterator[tuple[int, list[range]]]:
    """The ports of the primaries that a node believes in, and their slots."""
    for address, seen in ask(node, "CLUSTER NODES").items():
        if "master" in seen["flags"] and "fail" not in seen["flags"]:
            # A slot that stands alone is given once.
            slots = [range(int(bounds[0]), int(bounds[-1]) + 1) for bounds in seen["slots"]]
            yield int(address.rpartition(":")[2]), slots


def _owner(node: ValkeyServer, slot: int) -> int | None:
    owners = [port for port, slots in _primaries(node) if any(slot in part for part in slots)]
    return owners[0] if owners else None


def _slots(node: ValkeyServer, alive: set[int]) -> int:
    return sum(len(part) for port, slots in _primaries(node) if port in alive for part in slots)


def _is_primary(node: ValkeyServer) -> bool:
    return bool(ask(node, "INFO", "replication")["role"] == "master")


def _is_ok(node: ValkeyServer) -> bool:
    return "cluster_state:ok" in ask(node, "CLUSTER", "INFO")


def _follow(replica: ValkeyServer, primary: str) -> bool:
    with contextlib.suppress(redis.ResponseError):  # it has not heard of the primary yet
        ask(replica, "CLUSTER", "REPLICATE", primary)
        return True
    return False


def _id(node: ValkeyServer) -> str:
    return str(ask(node, "CLUSTER", "MYID"))
