"""The one thread of a process that writes, and commits for all callers.

Whatever was queued while a commit was flushed goes into the next one: under load a flush is shared by many,
and a lone job does not wait.  The jobs of one commit see each other's changes, so two equal keys among
them are not both fresh.  Results are returned after the commit, never before.

No caller hangs because of this thread.  The first job starts it; callers wait no longer than their deadline;
if it ends, they get an error, and the next job starts another.
"""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.sql.jobs import Job, deliver
from retrysafe.stores.sql.sqlite.cleanup import Cleanup
from retrysafe.stores.sql.sqlite.connection import Clock, Connection
from retrysafe.stores.sql.sqlite.file import DatabaseFile
from retrysafe.stores.sql.sqlite.schema import open_database

BATCH = 256
"""Jobs in one commit at most.  The flush is then shared so widely that more jobs would hardly make it
cheaper, and would only make the first of them wait."""

Queue = SimpleQueue[Job[object] | None]


class Writer:
    """Takes jobs, and starts the thread that does them."""

    def __init__(self, file: DatabaseFile, clock: Clock, deadline: float) -> None:
        self.ready = False
        """The database was opened once, so that readers may rely on its tables and its clock."""
        self._file = file
        self._clock = clock
        self._deadline = deadline
        self._lock = threading.Lock()
        self._queue: Queue = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Job[object]) -> None:
        with self._lock:
            if self._thread is None:
                self._start()
            self._queue.put(job)

    def stop(self) -> threading.Thread | None:
        """End the thread after what is queued."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
            return thread

    def close(self) -> None:
        thread = self.stop()
        if thread is not None:
            # What is queued ends with its callers' deadline, what is being done with the connection's.
            thread.join(2 * self._deadline)

    def _start(self) -> None:
        queue: Queue = SimpleQueue()
        thread = threading.Thread(
            target=self._work, args=(queue,), name="retrysafe-sqlite-writer", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise StoreUnavailable(f"cannot start a thread: {error}") from error
        self._queue, self._thread = queue, thread

    def _work(self, queue: Queue) -> None:
        loop = WriterLoop(queue, self._open, Cleanup(self._clock))
        try:
            loop.work()
        finally:
            with self._lock:
                if self._queue is queue:
                    self._thread = None
            loop.end()  # no job can be put into this queue any more

    def _open(self) -> Connection:
        connection = open_database(self._file.path, "writer", self._clock, self._deadline, self._file)
        self.ready = True
        return connection


class WriterLoop:
    """One life of the thread: a queue, a connection, and what is done with them."""

    def __init__(self, queue: Queue, open: Callable[[], Connection], cleanup: Cleanup) -> None:
        self._queue = queue
        self._open = open
        self._chores = cleanup
        self._connection: Connection | None = None
        self._failed: list[Job[object]] = []

    def work(self) -> None:
        while (job := self._queue.get()) is not None:
            if not job.claimed:  # else its caller has given up
                self._serve(job)

    def end(self) -> None:
        self._discard()
        left = [job for job in self._queued(self._queue.qsize()) if job.claim()]
        _fail([*self._failed, *left], StoreUnavailable("the writer thread ended; nothing was done"))

    def _serve(self, first: Job[object]) -> None:
        """Do this job, and with it whatever else has come until the write lock is ours."""
        jobs: list[Job[object]] = []
        try:
            if self._connection is None:
                self._connection = self._open()
            if first.operation is not None:
                with self._connection.transaction():
                    jobs = [job for job in self._gather(first) if job.claim()]
                    self._perform(self._connection, jobs)
            elif first.claim():
                jobs = [first]
        except BaseException as error:
            failed = jobs or [job for job in [first] if job.claim()]
            if not isinstance(error, Exception):
                # This thread ends.  The callers get their error at its end, when the next job starts another
                # one.
                self._failed = failed
                raise
            _fail(failed, error)
            self._chores.undone()
        else:
            deliver(jobs)
            self._chores.review()
        if self._connection is not None and self._connection.suspect:
            self._discard()

    def _perform(self, connection: Connection, jobs: list[Job[object]]) -> None:
        for job in [*jobs, *self._chores.due(len(jobs))]:
            job.perform(connection)
            if not connection.in_transaction:
                # Out of space or out of memory: SQLite has undone everything, not this job alone.
                raise StoreUnavailable("SQLite rolled the whole transaction back; nothing was done")

    def _gather(self, first: Job[object]) -> Iterator[Job[object]]:
        yield first
        yield from self._queued(min(self._queue.qsize(), BATCH - 1))

    def _queued(self, count: int) -> Iterator[Job[object]]:
        # This thread alone takes from the queue, so what it counted is there.
        for _ in range(count):
            job = self._queue.get()
            if job is None:
                self._queue.put(None)  # the end comes after this batch
                return
            yield job

    def _discard(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _fail(jobs: list[Job[object]], error: Exception) -> None:
    for job in jobs:
        # An exception of its own for each: they are raised in different threads.
        if isinstance(error, StoreError):
            told = type(error)(*error.args)
        else:
            told = StoreUnavailable(f"the writer failed with {type(error).__name__}")
        told.__cause__ = error
        job.fail(told)
    deliver(jobs)
