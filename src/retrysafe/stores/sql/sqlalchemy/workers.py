"""A few threads for drivers that block: each has a connection of its own.

No caller hangs because a thread hangs.  Callers wait no longer than the deadline.  A thread that has
been at one operation for longer is replaced by another one, and its connection is cut; when it wakes up,
it ends.
"""

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from retrysafe._runtime import fork
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql import statements
from retrysafe.stores.sql.jobs import AwaitedJob, BlockingJob, Job, deliver
from retrysafe.stores.sql.operations import Operation, Row
from retrysafe.stores.sql.postgresql.retry import Retries, Trouble
from retrysafe.stores.sql.sqlalchemy.connection import StoreConnection
from retrysafe.stores.sql.sqlalchemy.timeouts import CONNECT_TIMED_OUT, TIMED_OUT, patience

T = TypeVar("T")

_MOST_STUCK = 64
"""Threads that wait for a server which does not answer, before no more are started.  At a few in every
deadline this is half a minute of silence; each of them costs little but its stack."""

Open = Callable[[], StoreConnection]
Queue = SimpleQueue[Job[object] | None]

_NAME = "retrysafe-postgresql"


class WorkerExecutor:
    """Performs operations with at most `size` connections."""

    def __init__(self, open: Open, size: int, deadline: float) -> None:
        self._open = open
        self._size = size
        self._deadline = deadline
        self._begin_anew()
        fork.watch(self)

    def forked(self) -> None:
        """A child process, to which no thread came along, has to open its own connections.

        The parent's are left as they are: to close them properly would close them for the parent.
        """
        self._dropped.detach()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._workers = Workers(self._open, self._size, self._deadline)
        # A store that is dropped without being closed must not join its threads behind.
        self._dropped = weakref.finalize(self, self._workers.stop)
        self._dropped.atexit = False

    def run(self, make: Callable[[], Operation[T]]) -> T:
        job = BlockingJob(make())
        self._workers.submit(job)
        return job.wait(self._deadline)

    async def run_async(self, make: Callable[[], Operation[T]]) -> T:
        job = AwaitedJob(make())
        self._workers.submit(job)
        return await job.wait(self._deadline)

    def close(self) -> None:
        workers = self._workers
        self._dropped.detach()
        self._begin_anew()
        for worker in workers.stop():
            worker.join(self._deadline)


class Workers:
    """The workers and their queue."""

    def __init__(self, open: Open, size: int, deadline: float) -> None:
        self._open = open
        self._size = size
        self._deadline = deadline
        self._lock = threading.Lock()
        self._queue: Queue = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._workers: list[Worker] = []
        self._stuck: list[Worker] = []

    def submit(self, job: Job[object]) -> None:
        with self._lock:
            self._replace_stuck()
            is_queued = self._queue.qsize() > 0
            if not self._idle.acquire(blocking=False) or is_queued:
                self._add_worker()
            self._queue.put(job)

    def stop(self) -> "list[Worker]":
        """End all workers after what is queued, and return them."""
        with self._lock:
            workers, self._workers = self._workers, []
        for _ in workers:
            self._queue.put(None)
        return workers

    def _replace_stuck(self) -> None:
        self._stuck = [worker for worker in self._stuck if worker.thread.is_alive()]
        late = time.monotonic() - self._deadline
        for worker in [
            worker for worker in self._workers if worker.since is not None and worker.since < late
        ]:
            self._workers.remove(worker)
            self._stuck.append(worker)
            worker.abandon()
        self._workers = [worker for worker in self._workers if worker.thread.is_alive()]

    def _add_worker(self) -> None:
        if len(self._workers) >= self._size:
            return
        if len(self._stuck) >= _MOST_STUCK:
            if not self._workers:
                raise StoreUnavailable(
                    f"{_MOST_STUCK} threads are waiting for a server that does not respond; nothing was done"
                )
            return
        worker = Worker(self._queue, self._idle, self._open, self._deadline)
        try:
            worker.thread.start()
        except RuntimeError as error:
            raise StoreUnavailable(f"cannot start a thread: {error}") from error
        self._workers.append(worker)


class Worker:
    """One thread and its connection."""

    def __init__(self, queue: Queue, idle: threading.Semaphore, open: Open, deadline: float) -> None:
        self.since: float | None = None
        """When it began with what it is doing."""
        self.thread = threading.Thread(target=self._work, name=_NAME, daemon=True)
        self._queue = queue
        self._idle = idle
        self._open = open
        self._deadline = deadline
        self._statements = statements.load("postgresql")
        self._connection: StoreConnection | None = None
        self._abandoned = False

    def abandon(self) -> None:
        """It took too long: its caller has left, and it takes no other job."""
        self._abandoned = True
        if (connection := self._connection) is not None:
            connection.cut()

    def join(self, patience: float) -> None:
        self.thread.join(patience)
        if self.thread.is_alive():
            self.abandon()
            self.thread.join(patience)

    def _work(self) -> None:
        try:
            while not self._abandoned and (job := self._next()) is not None:
                if job.claim():  # else its caller has given up
                    self.since = time.monotonic()
                    self._serve(job)
                    self.since = None
        finally:
            self._discard()

    def _next(self) -> Job[object] | None:
        try:
            return self._queue.get_nowait()
        except Empty:
            self._idle.release()
            return self._queue.get()

    def _serve(self, job: Job[object]) -> None:
        try:
            job.perform(self)
        except BaseException:
            job.fail(StoreUnavailable("the worker thread ended; whether it was done is not known"))
            raise
        finally:
            deliver([job])

    def perform(self, operation: Operation[T]) -> T:
        until = time.monotonic() + self._deadline
        retries = Retries(until)
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(self._run(self._statements[name], arguments, retries, until))
        except StopIteration as answer:
            result: T = answer.value
            return result

    def _run(
        self, sql: str, arguments: Mapping[str, object], retries: Retries, until: float
    ) -> Sequence[Row]:
        """A statement may be repeated, and on another connection too: nothing but its answer is kept."""
        while True:
            has_worked = False
            try:
                connection = self._ready_connection()
                has_worked = connection.has_worked
                rows = connection.execute(sql, {"patience": patience(until), **arguments})
                connection.has_worked = True
                return rows
            except Trouble as trouble:
                if self._abandoned:
                    raise StoreUnavailable(TIMED_OUT) from None
                pause = retries.after(trouble, has_worked=has_worked)
                if trouble.ends_session:
                    self._discard()
            time.sleep(pause)

    def _ready_connection(self) -> StoreConnection:
        if self._connection is not None and not self._connection.usable:
            self._discard()
        if self._connection is None:
            self._connection = self._open()
        if self._abandoned:
            raise StoreUnavailable(CONNECT_TIMED_OUT)
        return self._connection

    def _discard(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
