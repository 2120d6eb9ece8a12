"""What one process has of the database: a queue for its threads, and one for each event loop."""

import weakref
from functools import partial

from retrysafe._runtime import fork
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Executor
from retrysafe.stores.queue_loop import LoopQueue, LoopQueues
from retrysafe.stores.queue_threads import ThreadQueue
from retrysafe.stores.sql.mysql.connect import Address
from retrysafe.stores.sql.mysql.executor import (
    AsyncMySQLExecutor,
    MySQLExecutor,
    PyMySQLAdminConnection,
    opened,
    opened_async,
    prepare,
)
from retrysafe.stores.sql.mysql.session import AsyncMySQLSession, MySQLSession


class Database:
    """Runs operations, for threads and for coroutines."""

    def __init__(self, address: Address, deadline: float, migrated_by: str | None = None) -> None:
        self._address = address
        self._deadline = deadline
        self._migrated_by = migrated_by
        self._begin()
        fork.watch(self)

    def _begin(self) -> None:
        """With nothing: at first, in a child process, and after it was closed."""
        self._resources = Resources(self._address, self._deadline, self._migrated_by)
        # A store that is dropped without being closed must not leave connections and threads behind.
        self._dropped = weakref.finalize(self, self._resources.close)

    def forked(self) -> None:
        # The connections are the parent's, and the executors leave them alone.
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
        return MySQLExecutor(self._resources.open)

    def operator(self) -> PyMySQLAdminConnection:
        """An operator's connection, which any server gives that responds."""
        return PyMySQLAdminConnection(self._address, self._deadline)


class Resources:
    """Everything that has to be given back."""

    def __init__(self, address: Address, deadline: float, migrated_by: str | None) -> None:
        self._address = address
        self._settled = address
        """Says whether the server had TLS the last time, where the address leaves it open: asyncmy has to
        know."""
        self._deadline = deadline
        self._prepare = partial(prepare, migrated_by=migrated_by)
        self._are_tables_there = False
        self.threads = ThreadQueue(partial(MySQLExecutor, self.open), deadline)
        self.loops = LoopQueues(lambda _: partial(AsyncMySQLExecutor, self.open_async), deadline)

    def close(self) -> None:
        self.threads.close()
        self.loops.close()

    def open(self) -> MySQLSession:
        # One that was refused leaves what is known: asyncmy cannot find out by itself whether there is TLS.
        session = opened(self._address, self._deadline, None if self._are_tables_there else self._prepare)
        self._are_tables_there = True
        self._settled = self._address.settled(has_tls=session.has_tls)
        return session

    async def open_async(self) -> AsyncMySQLSession:
        try:
            return await opened_async(
                lambda: self._settled, None if self._are_tables_there else self._look_at_tables
            )
        except StoreUnavailable:
            # The next one asks again what server this is, and whether it has TLS.
            self._are_tables_there = False
            raise

    def _look_at_tables(self) -> None:
        """By a connection that blocks: it is done once per process, and once more after each refusal."""
        self.open().close()
