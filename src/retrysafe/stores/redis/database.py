"""What one process has of the servers: for each a queue for its threads, and one for each event loop.

So a node of a cluster that does not respond holds up nothing that concerns the others.
"""

import weakref
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Generic, TypeVar

from retrysafe._runtime import fork
from retrysafe.stores.queue import Operation
from retrysafe.stores.queue_loop import LoopQueues
from retrysafe.stores.queue_threads import ThreadQueue
from retrysafe.stores.queued import AsyncQueue, Queue
from retrysafe.stores.redis.address import Address, Node
from retrysafe.stores.redis.connect import open_session
from retrysafe.stores.redis.executor import AsyncRedisExecutor, Pipeline, RedisExecutor
from retrysafe.stores.redis.scripts import Layout, Scripts, number_of
from retrysafe.stores.redis.servers import Cluster, Single
from retrysafe.stores.redis.session import Session

T = TypeVar("T")
Q = TypeVar("Q", ThreadQueue, LoopQueues)


class Database:
    """Runs operations, for threads and for coroutines."""

    def __init__(self, address: Address, layout: Layout, scripts: Scripts, deadline: float) -> None:
        self.address = address
        self.scripts = scripts
        self._layout = layout
        self._deadline = deadline
        self._begin()
        fork.watch(self)

    def _begin(self) -> None:
        """With nothing: at first, in a child process, and after it was closed."""
        self._resources = Resources(self.address, self._layout, self.scripts, self._deadline)
        # A store that is dropped without being closed must not leave connections and threads behind.
        self._dropped = weakref.finalize(self, self._resources.close)

    def forked(self) -> None:
        # The connections are the parent's; `session.py` has seen to that.
        self._dropped.detach()
        self._begin()

    def close(self) -> None:
        resources = self._resources
        self._dropped.detach()
        self._begin()
        resources.close()

    @property
    def queue(self) -> Queue:
        return self._resources.queue

    @property
    def async_queue(self) -> AsyncQueue:
        return self._resources.async_queue()

    @property
    def pipeline(self) -> Pipeline:
        return self._resources.pipeline

    @property
    def servers(self) -> Single | Cluster:
        return self._resources.servers

    def executor(self) -> RedisExecutor:
        """Blocking connections beside the queues."""
        return RedisExecutor(self._resources.pipeline, self._resources.open)


class Resources:
    """Everything that has to be given back."""

    def __init__(self, address: Address, layout: Layout, scripts: Scripts, deadline: float) -> None:
        self._address = address
        self._scripts = scripts
        self._deadline = deadline
        timeout = address.wait_timeout or deadline / 2
        self.servers = Cluster(address, layout) if address.is_cluster else Single(address)
        self.pipeline = Pipeline(
            self.servers, layout, scripts, address.wait, timeout, creates=address.creates
        )
        threads = _PerNode(lambda: ThreadQueue(partial(RedisExecutor, self.pipeline, self.open), deadline))
        loops = _PerNode(
            lambda: LoopQueues(lambda _: partial(AsyncRedisExecutor, self.pipeline, self.open), deadline)
        )
        self._all = threads, loops
        if isinstance(self.servers, Cluster):
            self.queue: Queue = _ClusterQueue(self.servers, threads)
            cluster_loops = _AsyncClusterQueue(self.servers, loops)
            self.async_queue: Callable[[], AsyncQueue] = lambda: cluster_loops
        else:
            [node] = self.servers.nodes()
            self.queue = threads.of(node)
            self.async_queue = loops.of(node).here

    def open(self, node: Node) -> Session:
        return open_session(self._address, node, self._scripts, self._deadline)

    def close(self) -> None:
        for queues in self._all:
            queues.close()


class _PerNode(Generic[Q]):
    """A queue, or those of all event loops, for each server that was asked for."""

    def __init__(self, make: Callable[[], Q]) -> None:
        self._make: Callable[[], Q] = make
        self._of: dict[Node, Q] = {}
        self._lock = Lock()

    def of(self, node: Node) -> Q:
        try:
            return self._of[node]
        except KeyError:
            with self._lock:
                return self._of.setdefault(node, self._make())

    def close(self) -> None:
        for queue in list(self._of.values()):
            queue.close()


class _ClusterQueue:
    """For threads: that of the node which has the record, as far as is known."""

    def __init__(self, servers: Cluster, queues: _PerNode[ThreadQueue]) -> None:
        self._servers = servers
        self._queues = queues

    def perform(self, operation: Operation[T], id: bytes, *, size: int = 0, urgent: bool = False) -> T:
        queue = self._queues.of(self._servers.node_of(number_of(id)))
        return queue.perform(operation, id, size=size, urgent=urgent)


class _AsyncClusterQueue:
    """For coroutines."""

    def __init__(self, servers: Cluster, queues: _PerNode[LoopQueues]) -> None:
        self._servers = servers
        self._queues = queues

    async def perform(self, operation: Operation[T], id: bytes, *, size: int = 0, urgent: bool = False) -> T:
        queue = self._queues.of(self._servers.node_of(number_of(id))).here()
        return await queue.perform(operation, id, size=size, urgent=urgent)
