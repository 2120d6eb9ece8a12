"""What one process has of the database: a queue for its threads, and one for each event loop."""

import asyncio
import weakref
from collections.abc import Callable
from functools import partial
from typing import Protocol

from retrysafe._runtime import fork
from retrysafe.stores.queue import Executor
from retrysafe.stores.queue_loop import LoopQueue, LoopQueues
from retrysafe.stores.queue_threads import ThreadQueue
from retrysafe.stores.sql.postgresql.connect import Source
from retrysafe.stores.sql.postgresql.executor import (
    AsyncPostgresExecutor,
    PostgresExecutor,
    PsycopgAdminConnection,
    opened,
    prepare,
)
from retrysafe.stores.sql.postgresql.listen import Listener, Wake
from retrysafe.stores.sql.postgresql.session import Session


class ApplicationPool(Protocol):
    """Whose connections one half of the store uses: see `application_pool.py`."""

    def serves(self, loop: asyncio.AbstractEventLoop | None) -> bool: ...
    def open(self) -> Session: ...


class Database:
    """Runs operations, for threads and for coroutines."""

    def __init__(
        self,
        source: Source,
        deadline: float,
        own_pool: ApplicationPool | None = None,
        migrated_by: str | None = None,
    ) -> None:
        self._source = source
        self._migrated_by = migrated_by
        self._deadline = deadline
        self._own_pool = own_pool
        self._begin()
        fork.watch(self)

    def _begin(self) -> None:
        """With nothing: at first, in a child process, and after it was closed."""
        self._resources = Resources(self._source, self._deadline, self._own_pool, self._migrated_by)
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

    def executor(self) -> Executor:
        """A blocking connection beside the queues."""
        return PostgresExecutor(self._resources.open_beside)

    def operator(self) -> PsycopgAdminConnection:
        """An operator's connection, which any server gives that responds."""
        return PsycopgAdminConnection(self._source)

    def subscribe(self, id: bytes, wake: Wake) -> Callable[[], None]:
        return self._resources.listener.subscribe(id, wake)


class Resources:
    """Everything that has to be given back."""

    def __init__(
        self, source: Source, deadline: float, own_pool: ApplicationPool | None, migrated_by: str | None
    ) -> None:
        self._prepare = partial(prepare, migrated_by=migrated_by)
        self._source = source
        self._deadline = deadline
        self._own_pool = own_pool
        self._are_tables_there = False
        self.threads = ThreadQueue(partial(PostgresExecutor, self.opener(None)), deadline)
        self.loops = LoopQueues(lambda loop: partial(AsyncPostgresExecutor, self.opener(loop)), deadline)
        self.listener = Listener(source)

    def close(self) -> None:
        self.listener.close()
        self.threads.close()
        self.loops.close()

    def opener(self, loop: asyncio.AbstractEventLoop | None) -> Callable[[], Session]:
        """How connections are opened for this loop, or for threads."""
        if self._own_pool is not None and self._own_pool.serves(loop):
            own_pool = self._own_pool
            return lambda: self._opened(own_pool.open)
        return self.open_beside

    def open_beside(self) -> Session:
        """A connection that is not of the application's pool."""
        return self._opened(self._source.open)

    def _opened(self, open: Callable[[], Session]) -> Session:
        session = opened(open, self._deadline, None if self._are_tables_there else self._prepare)
        self._are_tables_there = True
        return session
