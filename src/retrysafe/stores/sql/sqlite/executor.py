"""Runs batches on a connection to SQLite, each as one transaction: in a thread, or for an event loop.

An event loop waits for no lock, no flush, and no connection to be opened: a thread of the executor's own
does, and runs the whole batch.  Statements on the loop's thread, with only the commit elsewhere, were
measured and gained nothing in a server; a batch of a hundred would hold the loop up for milliseconds.

There is one write lock for the whole file, so a batch that finds it taken is not taken apart: it waits for
most of the time that it has, whatever patience there is for a locked row.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.queue import Batch, Outcome
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.sqlite.connection import Connection
from retrysafe.stores.sql.sqlite.readers import Readers

if TYPE_CHECKING:
    import asyncio  # importing it takes longer than all of this library, and threads have no use for it

T = TypeVar("T")

Open = Callable[[], Connection]

Ending = WeakSet[threading.Thread]
"""Threads that end when they have done what they were given."""

_SHARE = 0.8
"""Of the time that is left, to wait for another writer: the rest is for the commit."""

_READS = frozenset({"record_exists", "look", "rights_on_routes"})
"""Statements that need no transaction: a process that has just begun replays while another one is writing."""

_GRACE = 0.05
"""Seconds that a batch may take beyond its deadline: its callers have left by then, each with a reason."""


class SQLiteExecutor:
    """For one thread at a time."""

    def __init__(self, open: Open) -> None:
        self._open = open
        self._connection: Connection | None = None

    def run(
        self,
        calls: Batch,
        until: float,
        patience: float,  # noqa: ARG002 - there are no locked rows
    ) -> Sequence[Outcome]:
        calls.postpone()
        connection = self._connection
        if connection is None:
            self._connection = connection = self._open()
        try:
            if _READS.issuperset(name for name, _ in calls):
                return connection.read(calls)
            return connection.run(calls, (until - monotonic()) * _SHARE)
        finally:
            if connection.suspect:  # the next batch opens another
                self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class AsyncSQLiteExecutor:
    """For the coroutines of one event loop."""

    def __init__(self, open: Open, readers: Readers, ending: Ending) -> None:
        self._open = open
        self._readers = readers
        self._ending = ending
        self._executor = SQLiteExecutor(open)
        self._worker = Worker()

    async def run(self, calls: Batch, until: float, patience: float) -> Sequence[Outcome]:
        return await self._worker.perform(partial(self._run, self._executor, calls, until, patience), until)

    def _run(
        self, executor: SQLiteExecutor, calls: Batch, until: float, patience: float
    ) -> Sequence[Outcome]:
        outcomes = executor.run(calls, until, patience)
        self._readers.have_one()
        return outcomes

    def close(self) -> None:
        # What its thread is doing goes on to its end; then the connection is closed.
        executor, self._executor = self._executor, SQLiteExecutor(self._open)
        worker, self._worker = self._worker, Worker()
        if (thread := worker.stop(executor.close)) is not None:
            self._ending.add(thread)


Work = Callable[[], object]


class Worker:
    """A thread that does what the coroutines of an event loop would have to wait for, one after the other.

    Not one of the loop's own: all of those may be busy with handlers that wait for the lock which we hold.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def perform(self, work: Callable[[], T], until: float) -> T:
        """Its result.  It goes on to its end if the caller is cancelled, or its time is over."""
        from asyncio import get_running_loop  # there is one, so it is loaded

        loop = get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            self._thread = _start(self._queue)
        self._queue.put(partial(_work, work, done, loop))
        timer = loop.call_later(until - monotonic() + _GRACE, _expire, done)
        try:
            return await done
        finally:
            timer.cancel()

    def stop(self, last: Work) -> threading.Thread | None:
        """End the thread after what it was given, and this.  It is not used any more."""
        if self._thread is not None:
            self._queue.put(last)
            self._queue.put(None)
        return self._thread


def _start(queue: "SimpleQueue[Work | None]") -> threading.Thread:
    thread = threading.Thread(target=_serve, args=(queue,), name="retrysafe-sqlite", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the machine's limit, or the end of the interpreter
        raise StoreUnavailable(f"cannot start a thread: {error}") from error
    return thread


def _serve(queue: "SimpleQueue[Work | None]") -> None:
    while (work := queue.get()) is not None:
        work()
        del work  # and with it what it refers to


def _work(work: Work, done: "asyncio.Future[Any]", loop: "asyncio.AbstractEventLoop") -> None:
    result: object = None
    failure: Exception | None = None
    try:
        result = work()
    except (StoreError, Trouble) as error:
        failure = error
    except BaseException as error:  # noqa: BLE001 - the thread serves the next caller
        failure = StoreUnavailable(f"the thread failed with {type(error).__name__}; the outcome is not known")
        failure.__cause__ = error
    try:
        loop.call_soon_threadsafe(_resolve, done, result, failure)
    except RuntimeError:  # the loop was closed, and its coroutines with it
        return


def _resolve(done: "asyncio.Future[Any]", result: object, failure: Exception | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(result)
    else:
        done.set_exception(failure)


def _expire(done: "asyncio.Future[Any]") -> None:
    _resolve(done, None, StoreUnavailable("the store timed out; whether it was done is not known"))
