"""Cuts into asynchronous code at any of its suspensions, exactly and repeatably.

Every task that is started under a scalpel runs a coroutine that counts: each time it suspends, the count
goes up, and when it reaches the number that was asked for, the cut is made.  Counting from 1 until nothing
is cut any more covers every `await` there is, those of the library's own tasks included.

Two moments are worth cutting at: while the awaited thing is pending, and when it has just come about but the
task has not been told.  The second is the one that loses results: the operation happened, and whoever asked
for it is told that it was cancelled.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Literal

import pytest

from retrysafe._runtime import drive_async

Moment = Literal["pending", "done"]


class Scalpel:
    """Counts suspensions, and cuts at one of them."""

    def __init__(self, at: int, moment: Moment, cut: Callable[[], object]) -> None:
        self._at = at
        self._moment = moment
        self._cut = cut
        self.count = 0
        self.used = False
        """Whether there were enough suspensions for the cut to be made."""

    def suspended(self, awaited: object) -> None:
        self.count += 1
        if self.count == self._at:
            if self._moment == "done" and asyncio.isfuture(awaited):
                # Before the task adds its own callback, and so called before it.
                awaited.add_done_callback(lambda _: self._make())
            else:
                asyncio.get_running_loop().call_soon(self._make)

    def _make(self) -> None:
        self.used = True
        self._cut()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Count in every task that this event loop starts from now on."""
        asyncio.get_running_loop().set_task_factory(self._factory)
        start = getattr(drive_async, "_start", None)
        if start is not None:
            patch.setattr(drive_async, "_start", lambda loop, work: start(loop, _Counted(work, self)))

    def _factory(self, loop: asyncio.AbstractEventLoop, work: Any, **rest: Any) -> "asyncio.Task[Any]":
        counted = work if isinstance(work, _Counted) else _Counted(work, self)
        return asyncio.Task(counted, loop=loop, **rest)


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells its suspensions."""

    def __init__(self, work: Coroutine[Any, Any, Any], scalpel: Scalpel) -> None:
        self._work = work
        self._scalpel = scalpel

    def send(self, value: Any) -> Any:
        awaited = self._work.send(value)
        self._scalpel.suspended(awaited)
        return awaited

    def throw(self, *error: Any) -> Any:
        awaited = self._work.throw(*error)
        self._scalpel.suspended(awaited)
        return awaited

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError("a task drives it, nobody awaits it")
