"""Jobs that callers give to a worker thread, and how they get the result back.

A job is done at most once and belongs to the first that claims it: the thread, to do it, or its caller, to
give it up.  A caller that gave up in time knows that nothing was done; one that was too late knows only that
the thread may be in the middle of it.
"""

import contextlib
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.queue import Operation

if TYPE_CHECKING:
    import asyncio  # importing it takes longer than all of this library, and threads have no use for it

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Performer(Protocol):
    """Whatever runs operations: a connection."""

    def perform(self, operation: Operation[T]) -> T: ...


class Job(Generic[T_co]):
    """An operation on its way.  One without an operation asks only that the database be open."""

    __slots__ = ("_error", "_result", "_turn", "operation")

    def __init__(self, operation: Operation[T_co] | None) -> None:
        self.operation = operation
        self._turn = Lock()
        self._result: T_co | None = None
        self._error: StoreError | None = None

    def claim(self) -> bool:
        """True for the first caller only, which may then do the job or give it up."""
        return self._turn.acquire(blocking=False)

    @property
    def claimed(self) -> bool:
        return self._turn.locked()

    def perform(self, connection: Performer) -> None:
        """Do it, and hold the result or the error.  An error is this job's alone."""
        if self.operation is None:
            return
        try:
            self._result = connection.perform(self.operation)
        except StoreError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this caller's alone
            # By its name only: the message may quote what a client has sent.
            self._error = StoreUnavailable(f"the operation failed with {type(error).__name__}")
            self._error.__cause__ = error

    def fail(self, error: StoreError) -> None:
        self._error = error

    def answer(self) -> T_co:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # what `perform` put there

    def _given_up(self, deadline: float) -> StoreUnavailable:
        outcome = "nothing was done" if self.claim() else "whether it was done is not known"
        return StoreUnavailable(f"the store timed out after {deadline:g} s; {outcome}")


class BlockingJob(Job[T_co]):
    """The caller is a thread, and sleeps."""

    __slots__ = ("done",)

    def __init__(self, operation: Operation[T_co] | None) -> None:
        super().__init__(operation)
        self.done = Lock()
        self.done.acquire()

    def wait(self, deadline: float) -> T_co:
        try:
            answered = self.done.acquire(timeout=deadline)
        except BaseException:
            self.claim()  # interrupted: the caller has left
            raise
        if not answered:
            raise self._given_up(deadline)
        return self.answer()


class AwaitedJob(Job[T_co]):
    """The caller is a coroutine."""

    __slots__ = ("future", "loop")

    def __init__(self, operation: Operation[T_co] | None) -> None:
        super().__init__(operation)
        from asyncio import get_running_loop  # there is one, so it is loaded

        self.loop = get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    async def wait(self, deadline: float) -> T_co:
        timer = self.loop.call_later(deadline, self._expire, deadline)
        try:
            await self.future
        finally:
            timer.cancel()
            self.claim()  # cancelled: withdrawn if it was not begun; otherwise this changes nothing
        return self.answer()

    def _expire(self, deadline: float) -> None:
        if not self.future.done():
            self.future.set_exception(self._given_up(deadline))

    def resolve(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def deliver(jobs: Iterable[Job[object]]) -> None:
    """Wake the callers: each thread, and each event loop once for all of its coroutines."""
    by_loop: dict[asyncio.AbstractEventLoop, list[AwaitedJob[object]]] = {}
    for job in jobs:
        if isinstance(job, AwaitedJob):
            by_loop.setdefault(job.loop, []).append(job)
        elif isinstance(job, BlockingJob):
            job.done.release()
    for loop, awaited in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed, and its coroutines with it
            loop.call_soon_threadsafe(_resolve, awaited)


def _resolve(jobs: list[AwaitedJob[object]]) -> None:
    for job in jobs:
        job.resolve()
