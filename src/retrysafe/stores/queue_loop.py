"""The queue for the coroutines of one event loop.

A batch runs in a task of the queue's own: a caller that is cancelled stops waiting, and what was asked goes
on to its end, so that its connection is used again only after its result was read.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from retrysafe._runtime import fork
from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.queue import (
    AsyncExecutor,
    Counts,
    Executors,
    Job,
    Operation,
    Pending,
    Plan,
    Run,
    T_co,
    run_alone,
    run_batch,
)
from retrysafe.stores.retry import Trouble

T = TypeVar("T")

_GRACE = 0.01
"""Seconds that a caller waits beyond its deadline: a batch that began with it is given up first."""


class LoopJob(Job[T_co]):
    """Its caller is a coroutine, and awaits the future."""

    __slots__ = ("future",)

    def __init__(
        self,
        operation: Operation[T_co],
        id: bytes,
        until: float,
        size: int,
        urgent: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.future: asyncio.Future[None] = loop.create_future()
        super().__init__(operation, id, until, size, urgent)

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def interrupt(self) -> None:
        what = "whether it was done is not known" if self.begun else "nothing was done"
        self.fail(StoreUnavailable(f"the event loop ended; {what}"))
        self.wake()


class LoopQueue:
    """Used by its loop's thread alone."""

    def __init__(
        self, open: Callable[[], AsyncExecutor], deadline: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._loop = loop
        self._deadline = deadline
        self.counts = Counts()
        self._pending: Pending[LoopJob[Any]] = Pending()
        self._waiting: deque[LoopJob[Any]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._open = open
        self._executors: Executors[AsyncExecutor] = Executors(open)
        self._first = asyncio.Semaphore()
        self._again = asyncio.Semaphore()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_running = False

    async def perform(self, operation: Operation[T], id: bytes, *, size: int = 0, urgent: bool = False) -> T:
        job: LoopJob[T] = LoopJob(operation, id, monotonic() + self._deadline, size, urgent, self._loop)
        self._pending.add(job)
        self._waiting.append(job)
        if self._timer is None:
            self._timer = self._loop.call_later(self._deadline + _GRACE, self._expire)
        if not self._is_running:
            self._is_running = True
            # After the coroutines that are ready now: what they ask for goes into the same batch.
            self._loop.call_soon(self._begin)
        try:
            await job.future
        finally:
            job.abandoned = True
        return job.result()

    def close(self) -> None:
        executors, self._executors = self._executors, Executors(self._open)
        executors.shut()

    def _begin(self) -> None:
        self._start(self._run_batches(), self._interrupted)

    def _start(self, work: Coroutine[Any, Any, None], interrupted: Callable[[], None]) -> None:
        """Begin a task; `interrupted` is called if it was cancelled, perhaps before its first step."""
        # No task factory of the application's is asked: this task is ours.
        task = asyncio.Task(work, loop=self._loop)
        self._tasks.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled() or task.exception() is not None:
                interrupted()

        task.add_done_callback(ended)

    async def _run_batches(self) -> None:
        while batch := self._pending.take():
            await self._run(batch)
            while self._waiting and self._waiting[0].done:
                self._waiting.popleft()
        self._is_running = False

    def _interrupted(self) -> None:
        """All tasks were cancelled, as at the end of an event loop."""
        self._is_running = False
        for job in self._pending.clear():
            job.interrupt()

    async def _run(self, batch: list[LoopJob[Any]]) -> None:
        for job in batch:
            job.begun = True
        try:
            await self._perform(run_batch(batch, self.counts), monotonic() + self._deadline)
        finally:
            for job in reversed(batch):
                if job.alone and not job.done:
                    self._start(self._run_alone(job), job.interrupt)
                elif not job.done:
                    self._pending.put_back(job)
                else:
                    job.wake()

    async def _run_alone(self, job: LoopJob[Any]) -> None:
        self.counts.alone += 1
        plan = run_alone(job)
        async with self._first:
            pause = await self._perform(plan, job.until)
        while pause is not None:
            await asyncio.sleep(pause)
            async with self._again:
                pause = await self._perform(plan, job.until)
        job.wake()

    async def _perform(self, plan: Plan, until: float) -> float | None:
        """Until it pauses or to its end; the seconds of the pause, or `None`."""
        executors = self._executors
        executor = executors.take()
        try:
            step = next(plan)
            while isinstance(step, Run):
                try:
                    outcomes = await executor.run(step.calls, until, step.patience)
                except (Trouble, StoreError) as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(outcomes)
        except StopIteration:
            return None
        except BaseException:
            executor.close()
            raise
        finally:
            executors.give(executor)
        return step

    def _expire(self) -> None:
        """Wake those whose time is over; all have the same deadline, so they stand in that order."""
        now = monotonic() - _GRACE
        while self._waiting and (self._waiting[0].done or self._waiting[0].until <= now):
            job = self._waiting.popleft()
            job.abandoned = True
            if not job.future.done():
                job.future.set_exception(job.timed_out(self._deadline))
        self._timer = None
        if self._waiting:
            self._timer = self._loop.call_later(self._waiting[0].until - now, self._expire)


_inherited: list[object] = []
"""What children have of their parents: it stays, because its end would reach into the parent's loops."""


class LoopQueues:
    """The queues of a process: one for each event loop, made when it is first asked for.

    A loop that is shut down, as by `asyncio.run`, closes its queue.
    """

    def __init__(
        self, opener: Callable[[asyncio.AbstractEventLoop], Callable[[], AsyncExecutor]], deadline: float
    ) -> None:
        self._opener = opener
        """Gives, for an event loop, what makes its executors."""
        self._deadline = deadline
        self._lock = threading.Lock()
        self._queues: dict[asyncio.AbstractEventLoop, tuple[LoopQueue, AsyncGenerator[None]]] = {}
        fork.watch(self)

    def forked(self) -> None:
        _inherited.append(self._queues)
        self._lock = threading.Lock()
        self._queues = {}

    def here(self) -> LoopQueue:
        """That of the running event loop."""
        loop = asyncio.get_running_loop()
        try:
            return self._queues[loop][0]
        except KeyError:
            pass
        with self._lock:
            for other in [other for other in self._queues if other.is_closed()]:
                self._queues.pop(other)[0].close()
            queue = LoopQueue(self._opener(loop), self._deadline, loop)
            self._queues[loop] = queue, _begun(_close_at_end(queue))
            return queue

    def close(self) -> None:
        with self._lock:
            queues, self._queues = self._queues, {}
        for loop, (queue, _) in queues.items():
            if loop.is_running() and loop is not _running_loop():
                loop.call_soon_threadsafe(queue.close)
            else:
                queue.close()


async def _close_at_end(queue: LoopQueue) -> AsyncGenerator[None]:
    # A loop that is shut down closes all generators that have begun.
    try:
        yield
    finally:
        queue.close()
        await asyncio.sleep(0)  # in which asyncio closes the sockets of transports


def _begun(generator: AsyncGenerator[None]) -> AsyncGenerator[None]:
    with suppress(StopIteration):  # it waits for nothing on its way to its first value
        generator.__anext__().__await__().send(None)
    return generator


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
