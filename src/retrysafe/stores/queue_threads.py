"""The queue for the threads of a process: the one that finds it idle performs the next batch by itself.

So a lone thread hands nothing over, and no other thread is started.  When its own operation is done, the
thread passes the lead to one of those that wait: to the youngest, which has most of its time left.
"""

import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, TypeVar

from retrysafe._runtime import fork
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import (
    Counts,
    Executor,
    Executors,
    Job,
    Operation,
    Pending,
    Plan,
    T_co,
    perform_sync,
    run_alone,
    run_batch,
)

T = TypeVar("T")


class ThreadJob(Job[T_co]):
    """Its caller is a thread, which sleeps until it is done, or is to be run alone, or the thread leads."""

    __slots__ = ("leads", "woken")

    def __init__(self, operation: Operation[T_co], id: bytes, until: float, size: int, urgent: bool) -> None:
        self.leads = False
        self.woken = threading.Lock()
        self.woken.acquire()
        super().__init__(operation, id, until, size, urgent)


class ThreadQueue:
    def __init__(self, open: Callable[[], Executor], deadline: float) -> None:
        self._open = open
        self._deadline = deadline
        self.counts = Counts()
        self.forked()
        fork.watch(self)

    def forked(self) -> None:
        """Begin anew: at first, and in a child process, to which no thread came along."""
        self._lock = threading.Lock()
        self._pending: Pending[ThreadJob[Any]] = Pending()
        self._is_led = False
        self._first = threading.Lock()
        self._again = threading.Lock()
        self._executors: Executors[Executor] = Executors(self._open)

    def perform(self, operation: Operation[T], id: bytes, *, size: int = 0, urgent: bool = False) -> T:
        job: ThreadJob[T] = ThreadJob(operation, id, monotonic() + self._deadline, size, urgent)
        with self._lock:
            self._pending.add(job)
            job.leads, self._is_led = not self._is_led, True
        while not job.done:
            if job.leads:
                self._lead(job)
            elif job.alone:
                self._run_alone(job)
            else:
                self._wait(job)
        return job.result()

    def close(self) -> None:
        with self._lock:
            executors, self._executors = self._executors, Executors(self._open)
        executors.shut()

    def _wait(self, job: ThreadJob[Any]) -> None:
        woken = False
        try:
            woken = job.woken.acquire(timeout=max(job.until - monotonic(), 0.0))
        finally:
            if not woken:  # too late, or interrupted
                self._leave(job)
        if not woken and not job.done:
            # Its operation is left alone: another thread may be carrying it on in this moment.
            raise job.timed_out(self._deadline)

    def _leave(self, job: ThreadJob[Any]) -> None:
        with self._lock:
            job.abandoned = True
            if job.leads:
                self._pass_on()

    def _lead(self, job: ThreadJob[Any]) -> None:
        try:
            while not job.done and not job.alone:
                with self._lock:
                    batch = self._pending.take()
                    executors = self._executors
                if monotonic() < job.until:
                    self._run(batch, executors, job)
                else:
                    job.fail(job.timed_out(self._deadline))
                self._wake(batch, job)
        finally:
            with self._lock:
                job.leads = False
                self._pass_on()

    def _run(
        self, batch: list[ThreadJob[Any]], executors: Executors[Executor], leader: ThreadJob[Any]
    ) -> None:
        for job in batch:
            job.begun = True
        executor = executors.take()
        try:
            perform_sync(run_batch(batch, self.counts), executor, leader.until)
        except BaseException:
            executor.close()
            for job in batch:
                job.fail(StoreUnavailable("the thread that ran it was interrupted; the outcome is not known"))
            self._wake(batch, leader)
            raise
        finally:
            executors.give(executor)

    def _wake(self, batch: list[ThreadJob[Any]], leader: ThreadJob[Any]) -> None:
        with self._lock:
            for job in reversed(batch):
                if not job.done and not job.alone:
                    self._pending.put_back(job)
                elif job is not leader:
                    job.woken.release()

    def _pass_on(self) -> None:
        successor = self._pending.youngest()
        self._is_led = successor is not None
        if successor is not None:
            successor.leads = True
            successor.woken.release()

    def _run_alone(self, job: ThreadJob[Any]) -> None:
        self.counts.alone += 1
        plan = run_alone(job)
        pause = self._perform(plan, self._first, job)
        while pause is not None:
            sleep(pause)
            pause = self._perform(plan, self._again, job)

    def _perform(self, plan: Plan, turn: threading.Lock, job: ThreadJob[Any]) -> float | None:
        """Until it pauses or to its end; the seconds of the pause, or `None`."""
        if not turn.acquire(timeout=max(job.until - monotonic(), 0.0)):
            job.fail(job.timed_out(self._deadline))
            return None
        executors = self._executors
        try:
            executor = executors.take()
            try:
                return perform_sync(plan, executor, job.until)
            except BaseException:
                executor.close()
                raise
            finally:
                executors.give(executor)
        finally:
            turn.release()
