"""A few threads for drivers that block: each has a connection of its own, and works for whoever waits.

Nobody hangs on a thread that hangs on a server.  Callers wait no longer than the deadline.  A thread that has
been at one operation for longer loses its place to another one, and its connection is cut; when it wakes up,
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
from retrysafe.stores.sql.postgresql.retry import Trials, Trouble
from retrysafe.stores.sql.sqlalchemy.connection import Line
from retrysafe.stores.sql.sqlalchemy.timeouts import LATE, NOT_LET_IN, patience

T = TypeVar("T")

_MOST_LOST = 64
"""Threads that wait for a server which does not answer, before no more are started.  At a few in every
deadline this is half a minute of silence; each of them costs little but its stack."""

Open = Callable[[], Line]
Queue = SimpleQueue[Job[object] | None]

_NAME = "retrysafe-postgresql"


class Crew:
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
        self._roster = Roster(self._open, self._size, self._deadline)
        # A store that is dropped without being closed must not leave its threads behind.
        self._dropped = weakref.finalize(self, self._roster.dismiss)
        self._dropped.atexit = False

    def run(self, make: Callable[[], Operation[T]]) -> T:
        job = BlockingJob(make())
        self._roster.submit(job)
        return job.wait(self._deadline)

    async def run_async(self, make: Callable[[], Operation[T]]) -> T:
        job = AwaitedJob(make())
        self._roster.submit(job)
        return await job.wait(self._deadline)

    def close(self) -> None:
        roster = self._roster
        self._dropped.detach()
        self._begin_anew()
        for hand in roster.dismiss():
            hand.leave(self._deadline)


class Roster:
    """Who works, and what is to be done."""

    def __init__(self, open: Open, size: int, deadline: float) -> None:
        self._open = open
        self._size = size
        self._deadline = deadline
        self._lock = threading.Lock()
        self._queue: Queue = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._hands: list[Hand] = []
        self._lost: list[Hand] = []

    def submit(self, job: Job[object]) -> None:
        with self._lock:
            self._replace_the_lost()
            somebody_waits = self._queue.qsize() > 0
            if not self._idle.acquire(blocking=False) or somebody_waits:
                self._hire()
            self._queue.put(job)

    def dismiss(self) -> "list[Hand]":
        """Let everybody finish what is queued and then end.  Gives those who were there."""
        with self._lock:
            hands, self._hands = self._hands, []
        for _ in hands:
            self._queue.put(None)
        return hands

    def _replace_the_lost(self) -> None:
        self._lost = [hand for hand in self._lost if hand.thread.is_alive()]
        late = time.monotonic() - self._deadline
        for hand in [hand for hand in self._hands if hand.since is not None and hand.since < late]:
            self._hands.remove(hand)
            self._lost.append(hand)
            hand.abandon()
        self._hands = [hand for hand in self._hands if hand.thread.is_alive()]

    def _hire(self) -> None:
        if len(self._hands) >= self._size:
            return
        if len(self._lost) >= _MOST_LOST:
            if not self._hands:
                raise StoreUnavailable(
                    f"{_MOST_LOST} threads are waiting for a server that does not answer; nothing was done"
                )
            return
        hand = Hand(self._queue, self._idle, self._open, self._deadline)
        try:
            hand.thread.start()
        except RuntimeError as error:
            raise StoreUnavailable(f"no thread can be started: {error}") from error
        self._hands.append(hand)


class Hand:
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
        self._line: Line | None = None
        self._abandoned = False

    def abandon(self) -> None:
        """It took too long: nobody waits for it any more, and it is not to take anything else up."""
        self._abandoned = True
        if (line := self._line) is not None:
            line.cut()

    def leave(self, patience: float) -> None:
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
            job.fail(StoreUnavailable("its thread was ended; it is not known whether it was done"))
            raise
        finally:
            deliver([job])

    def perform(self, operation: Operation[T]) -> T:
        until = time.monotonic() + self._deadline
        trials = Trials(until)
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(self._run(self._statements[name], arguments, trials, until))
        except StopIteration as answer:
            result: T = answer.value
            return result

    def _run(self, sql: str, arguments: Mapping[str, object], trials: Trials, until: float) -> Sequence[Row]:
        """A statement may be repeated, and on another connection too: nothing but its answer is kept."""
        while True:
            seasoned = False
            try:
                line = self._ready_line()
                seasoned = line.seasoned
                rows = line.execute(sql, {"patience": patience(until), **arguments})
                line.seasoned = True
                return rows
            except Trouble as trouble:
                if self._abandoned:
                    raise StoreUnavailable(LATE) from None
                pause = trials.after(trouble, seasoned=seasoned)
                if trouble.ends_session:
                    self._discard()
            time.sleep(pause)

    def _ready_line(self) -> Line:
        if self._line is not None and not self._line.usable:
            self._discard()
        if self._line is None:
            self._line = self._open()
        if self._abandoned:
            raise StoreUnavailable(NOT_LET_IN)
        return self._line

    def _discard(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
