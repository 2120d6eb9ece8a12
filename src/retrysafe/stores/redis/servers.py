"""Which server has which records: one has them all, or the nodes of a cluster share them by slots.

A node that does not know a slot says which one does, so what is remembered here may be wrong for a moment,
and is put right by the first reply.
"""

import random
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, cast

from redis.crc import key_slot

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.redis.address import Address, Node
from retrysafe.stores.redis.executor import Conversation, Sent
from retrysafe.stores.redis.replies import Refusal
from retrysafe.stores.redis.scripts import Layout, pack
from retrysafe.stores.retry import Trouble

_SLOTS = pack("CLUSTER", "SLOTS")

_WITHIN = 0.5
"""Seconds for a node to say who has which slots: the next one is asked while its callers still wait."""

_OFTEN = 0.05
"""Seconds between two such questions: a cluster elects for longer, and its callers ask all the time."""


class Single:
    """One server."""

    is_alone = True

    def __init__(self, address: Address) -> None:
        [self._node] = address.nodes

    def node_of(self, bucket: int) -> Node:  # noqa: ARG002 - as in a cluster
        return self._node

    def redirected(self, refusal: Refusal) -> Node:  # noqa: ARG002
        return self._node

    def lost(self, node: Node) -> None:
        """There is no other."""

    def prepare(self) -> Conversation[None]:
        yield from ()

    def nodes(self) -> Sequence[Node]:
        return (self._node,)


class Cluster:
    """Several, of which each has some of the slots."""

    is_alone = False

    def __init__(self, address: Address, layout: Layout) -> None:
        self._seeds = address.nodes
        self._slots = [key_slot(bucket.armed) for bucket in layout.all]
        self._nodes = [address.nodes[0]] * len(self._slots)
        """Of each bucket; the first of the address until it is known better."""
        self._is_known = False
        self._asked_at = 0.0

    def node_of(self, bucket: int) -> Node:
        return self._nodes[bucket]

    def nodes(self) -> Sequence[Node]:
        """All that have a bucket."""
        return list(dict.fromkeys(self._nodes))

    def redirected(self, refusal: Refusal) -> Node:
        """The node that a refusal names; one that says that a slot has moved is believed from now on."""
        slot, _, place = refusal.text.partition(" ")
        host, _, port = place.rpartition(":")
        node = Node(host.strip("[]") or self._seeds[0].host, int(port))
        if refusal.code == "MOVED":
            for bucket, found in enumerate(self._slots):
                if found == int(slot):
                    self._nodes[bucket] = node
            self._is_known = False
        return node

    def lost(self, node: Node) -> None:  # noqa: ARG002 - whichever it is, another may have its slots by now
        self._is_known = False

    def prepare(self) -> Conversation[None]:
        """Ask who has which slots, if it is not known."""
        if self._is_known or (self._asked_at and monotonic() < self._asked_at + _OFTEN):
            return
        self._asked_at = monotonic()
        known = list(dict.fromkeys([*self._nodes, *self._seeds]))
        random.shuffle(known)  # so that not all processes ask one node, or wait for the one that is down
        trouble: Trouble | StoreError | None = None
        for node in known:
            reply = (yield {node: Sent(_SLOTS, 1, _WITHIN)})[node]
            if isinstance(reply, list) and isinstance(reply[0], list):
                found = dict(primaries(cast("Sequence[Any]", reply[0]), node))
                self._nodes = [
                    found.get(slot, before) for slot, before in zip(self._slots, self._nodes, strict=True)
                ]
                self._is_known = True
                return
            if isinstance(reply, Trouble | StoreError):
                trouble = reply
        if isinstance(trouble, StoreUnavailable):
            raise StoreUnavailable(f"no node of the cluster could be asked for its slots: {trouble}")
        if trouble is not None:
            raise trouble


def primaries(ranges: Sequence[Any], asked: Node) -> Iterator[tuple[int, Node]]:
    """Each slot, and the node that accepts writes for it."""
    for first, last, primary, *_ in ranges:
        host, port = primary[:2]
        node = Node((host or b"").decode() or asked.host, port or asked.port)
        for slot in range(first, last + 1):
            yield slot, node
