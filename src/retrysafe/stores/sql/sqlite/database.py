"""What one process has of the database: a writer, some readers, a clock.

A fork takes the writer's thread away from the child, which therefore begins with another writer; connections
are closed by `forking.py`.
"""

import sqlite3
import weakref
from collections.abc import Callable
from typing import TypeVar

from retrysafe._runtime import fork
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql.jobs import AwaitedJob, BlockingJob
from retrysafe.stores.sql.join import Joint
from retrysafe.stores.sql.sqlite.admin import SQLiteAdmin
from retrysafe.stores.sql.sqlite.clock import HostClock
from retrysafe.stores.sql.sqlite.connection import Clock
from retrysafe.stores.sql.sqlite.file import DatabaseFile
from retrysafe.stores.sql.sqlite.keeper import SQLiteRenewer
from retrysafe.stores.sql.sqlite.readers import Readers
from retrysafe.stores.sql.sqlite.writer import Writer

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)


class Database:
    """Reads here and writes there, for threads and for coroutines."""

    def __init__(self, path: str, deadline: float, clock: Clock | None) -> None:
        self.path = path
        self.deadline = deadline
        self._clock: Clock = clock or HostClock()
        self.joint = Joint("sqlite", self._clock)
        self._file = DatabaseFile(path)
        self._readers = Readers(self._file, self._clock)
        self._start_writer()
        fork.watch(self)

    def _start_writer(self) -> None:
        self._writer = Writer(self._file, self._clock, self.deadline)
        # A store that is dropped without being closed must not leave its thread behind.
        self._dropped = weakref.finalize(self, _close, self._readers, self._writer)
        self._dropped.atexit = False

    def forked(self) -> None:
        self._dropped.detach()
        self._start_writer()

    def write(self, operation: Operation[T] | None) -> T:
        job = BlockingJob(operation)
        self._writer.submit(job)
        return job.wait(self.deadline)

    async def write_async(self, operation: Operation[T] | None) -> T:
        job = AwaitedJob(operation)
        self._writer.submit(job)
        return await job.wait(self.deadline)

    def read(self, operation: Operation[T], otherwise: Operation[T]) -> T:
        """Respond from a reader; should it be in trouble, the writer does what is to be done otherwise.

        The very first read of a process has the writer open the database, and may take a deadline for that.
        """
        if not self._writer.ready:
            self.write(None)
        try:
            return self._readers.perform(operation)
        except StoreUnavailable:
            return self.write(otherwise)

    async def read_async(self, operation: Operation[T], otherwise: Operation[T]) -> T:
        if not self._writer.ready:
            await self.write_async(None)
        try:
            return self._readers.perform(operation)
        except StoreUnavailable:
            return await self.write_async(otherwise)

    def renewer(self) -> SQLiteRenewer:
        return SQLiteRenewer(self._file, self._clock, self.deadline)

    def admin(self) -> SQLiteAdmin:
        return SQLiteAdmin(self.path, self._clock, self.deadline)

    def close(self) -> None:
        # The writer last: the last connection to go checkpoints, and the writer does it under the lock.
        self._readers.close()
        self._writer.close()
        self._file.forget()

    def connect(self, connect: Callable[[str], C]) -> C:
        connection, _ = self._file.connect(connect, create=True)
        return connection

    def verify_file(self) -> None:
        self._file.verify()


def _close(readers: Readers, writer: Writer) -> None:
    readers.close()
    writer.stop()
