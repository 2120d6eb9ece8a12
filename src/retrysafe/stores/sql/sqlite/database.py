"""What one process has of the database: a queue for its threads, one for each event loop, and readers."""

import sqlite3
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from retrysafe._runtime import fork
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Executor, Operation
from retrysafe.stores.queue_threads import ThreadQueue
from retrysafe.stores.sql.sqlite.clock import HostClock
from retrysafe.stores.sql.sqlite.connection import Clock, Connection, Role
from retrysafe.stores.sql.sqlite.executor import AsyncSQLiteExecutor, Ending, SQLiteExecutor
from retrysafe.stores.sql.sqlite.file import DatabaseFile
from retrysafe.stores.sql.sqlite.readers import Readers
from retrysafe.stores.sql.sqlite.schema import open_database

if TYPE_CHECKING:
    from retrysafe.stores.queue_loop import LoopQueue, LoopQueues

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)


class Database:
    """Reads here and writes there, for threads and for coroutines."""

    def __init__(
        self, path: str, deadline: float, clock: Clock | None, migrated_by: str | None = None
    ) -> None:
        self.clock: Clock = clock or HostClock()
        self.file = DatabaseFile(path)
        self._deadline = deadline
        self._migrated_by = migrated_by
        self._begin()
        fork.watch(self)

    def _begin(self) -> None:
        """With nothing: at first, in a child process, and after it was closed."""
        self._resources = Resources(self.file, self.clock, self._deadline, self._migrated_by)
        # A store that is dropped without being closed must not leave connections and threads behind.
        self._dropped = weakref.finalize(self, self._resources.close)
        self._dropped.atexit = False

    def forked(self) -> None:
        # `forking.py` has closed the connections.
        self._dropped.detach()
        self._begin()

    def close(self) -> None:
        resources = self._resources
        self._dropped.detach()
        self._begin()
        # What is under way ends with its deadline, or with that of the connection.
        resources.close(2 * self._deadline)
        self.file.forget()

    @property
    def queue(self) -> ThreadQueue:
        return self._resources.threads

    @property
    def async_queue(self) -> "LoopQueue":
        return self._resources.loops().here()

    def read(self, operation: Callable[[], Operation[T]], id: bytes) -> T:
        """By a reader, past any lock; by the queue if there is none yet, or if it is in trouble.

        The very first read of a process opens the database, and may take a deadline for that.
        """
        if self.file.is_known:
            try:
                return self._resources.readers.perform(operation())
            except StoreUnavailable:
                pass
        return self.queue.perform(operation(), id)

    async def read_async(self, operation: Callable[[], Operation[T]], id: bytes) -> T:
        # Not opened here: that would hold up the event loop.
        readers = self._resources.readers
        if (reader := readers.take_open()) is not None:
            try:
                return readers.perform(operation(), reader)
            except StoreUnavailable:
                pass
        return await self.async_queue.perform(operation(), id)

    def executor(self) -> Executor:
        """For the lease keeper."""
        return SQLiteExecutor(partial(self._resources.open, "renewer"))

    def connect(self, connect: Callable[[str], C]) -> C:
        connection, _ = self.file.connect(connect, create=True)
        return connection


class Resources:
    """Everything that has to be given back."""

    def __init__(self, file: DatabaseFile, clock: Clock, deadline: float, migrated_by: str | None) -> None:
        self._migrated_by = migrated_by
        self._file = file
        self._clock = clock
        self._deadline = deadline
        self._writers: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._ending: Ending = weakref.WeakSet()
        self.readers = Readers(file, clock)
        self._open_writer = partial(self.open, "writer")
        self.threads = ThreadQueue(partial(SQLiteExecutor, self._open_writer), deadline)
        self._lock = threading.Lock()
        self._loops: LoopQueues | None = None

    def loops(self) -> "LoopQueues":
        """The queues of event loops."""
        if self._loops is None:
            # Here and not above: it imports asyncio, for which threads have no use.
            from retrysafe.stores.queue_loop import LoopQueues

            executor = partial(AsyncSQLiteExecutor, self._open_writer, self.readers, self._ending)
            with self._lock:
                if self._loops is None:
                    self._loops = LoopQueues(lambda _: executor, self._deadline)
        return self._loops

    def open(self, role: Role) -> Connection:
        connection = open_database(
            self._file.path, role, self._clock, self._deadline, self._file, self._migrated_by
        )
        if role == "writer":
            self._writers.add(connection)
        return connection

    def close(self, patience: float = 0.0) -> None:
        # Writers last: the last connection to go checkpoints, and they do it under the lock.
        self.readers.close()
        self.threads.close()
        if self._loops is not None:
            self._loops.close()
        for connection in list(self._writers):
            connection.close(patience)
        for thread in list(self._ending):
            if thread is not threading.current_thread():  # a store may be dropped in any of them
                thread.join(patience)
