"""What one process has of the servers: a queue for its threads, and one for each event loop."""

import weakref
from functools import partial

from retrysafe._runtime import fork
from retrysafe.stores.queue_loop import LoopQueue, LoopQueues
from retrysafe.stores.queue_threads import ThreadQueue
from retrysafe.stores.redis.address import Address, Node
from retrysafe.stores.redis.connect import open_session
from retrysafe.stores.redis.executor import AsyncRedisExecutor, Pipeline, RedisExecutor
from retrysafe.stores.redis.scripts import Layout, Scripts
from retrysafe.stores.redis.servers import Single
from retrysafe.stores.redis.session import Session


class Database:
    """Runs operations, for threads and for coroutines."""

    def __init__(self, address: Address, layout: Layout, scripts: Scripts, deadline: float) -> None:
        self.address = address
        self._layout = layout
        self._scripts = scripts
        self._deadline = deadline
        self._begin()
        fork.watch(self)

    def _begin(self) -> None:
        """With nothing: at first, in a child process, and after it was closed."""
        self._resources = Resources(self.address, self._layout, self._scripts, self._deadline)
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
    def queue(self) -> ThreadQueue:
        return self._resources.threads

    @property
    def async_queue(self) -> LoopQueue:
        return self._resources.loops.here()

    @property
    def pipeline(self) -> Pipeline:
        return self._resources.pipeline

    def executor(self) -> RedisExecutor:
        """A blocking connection beside the queues."""
        return RedisExecutor(self._resources.pipeline, self._resources.open)


class Resources:
    """Everything that has to be given back."""

    def __init__(self, address: Address, layout: Layout, scripts: Scripts, deadline: float) -> None:
        self._address = address
        self._scripts = scripts
        self._deadline = deadline
        timeout = address.wait_timeout or deadline / 2
        self.servers = Single(address)
        self.pipeline = Pipeline(
            self.servers, layout, scripts, address.wait, timeout, creates=address.creates
        )
        self.threads = ThreadQueue(partial(RedisExecutor, self.pipeline, self.open), deadline)
        self.loops = LoopQueues(lambda _: partial(AsyncRedisExecutor, self.pipeline, self.open), deadline)

    def open(self, node: Node) -> Session:
        return open_session(self._address, node, self._scripts, self._deadline)

    def close(self) -> None:
        self.threads.close()
        self.loops.close()
