"""Which server has which records: one has them all, or the nodes of a cluster share them by slots."""

from collections.abc import Sequence

from retrysafe.stores.redis.address import Address, Node
from retrysafe.stores.redis.executor import Conversation
from retrysafe.stores.redis.replies import Refusal
from retrysafe.stores.redis.scripts import pack

_SLOTS = pack("CLUSTER", "SLOTS")


class Single:
    """One server."""

    is_alone = True

    def __init__(self, address: Address) -> None:
        [self._node] = address.nodes

    def node_of(self, bucket: int) -> Node:  # noqa: ARG002
        return self._node

    def redirected(self, refusal: Refusal) -> Node:  # noqa: ARG002
        return self._node

    def lost(self, node: Node) -> None:
        """There is no other."""

    def prepare(self) -> Conversation[None]:
        yield from ()

    def nodes(self) -> Sequence[Node]:
        return (self._node,)
