"""Traps: where a process can be made to die or to freeze, around every step that a driver performs.

    kill | stop                SIGKILL; or SIGSTOP, until another process sends SIGCONT
    before | inside | after    `inside` lets the thing begin, and strikes within two milliseconds
    place                      a step of a driver (`Reserve`, `Run`, `Commit`, …), or what a program that sets
                               traps calls a place

So every gap between two operations of a store can be hit exactly.  No product code knows about this:
`around_steps` puts it around the tables from which the drivers take what performs a step.
"""

import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, NamedTuple

from retrysafe._runtime import drive_async, drive_sync

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Trap(NamedTuple):
    how: str
    where: str
    """Moment and place."""
    falling: "Callable[[Trap], AbstractContextManager[None]]"
    """Entered around the signal: what is to be noted first, and what must not be under way."""

    def spring(self) -> None:
        with self.falling(self):
            # To this thread, and not to the process: it must not go on before the signal has arrived.
            signal.pthread_kill(threading.get_ident(), _SIGNALS[self.how])

    def spring_soon(self) -> None:
        time.sleep(random.uniform(0, 0.002))
        self.spring()


_trap: ContextVar[Trap | None] = ContextVar("trap", default=None)
"""Of the request that is served here; the tasks and threads that serve it inherit it."""


def set_trap(
    text: str, falling: Callable[[Trap], AbstractContextManager[None]] = lambda _: nullcontext()
) -> None:
    """Set one for the request that is served here, such as `kill before Commit`; an empty text sets none."""
    how, _, where = text.partition(" ")
    _trap.set(Trap(how, where, falling) if text else None)


def trap_set() -> Trap | None:
    """The one that is set here and that the request has not reached yet."""
    return _trap.get()


def reach(moment: str, place: str) -> None:
    """Fall, if there is a trap here."""
    trap = _trap.get()
    if trap is None or trap.where != f"{moment} {place}":
        return
    _trap.set(None)
    if moment == "inside":
        threading.Thread(target=trap.spring_soon, daemon=True).start()
    else:
        trap.spring()


@contextmanager
def place(name: str) -> Generator[None]:
    """A place with its three moments."""
    reach("before", name)
    reach("inside", name)
    yield
    reach("after", name)


def around_steps(enter: Callable[[str], AbstractContextManager[None]] = place) -> None:
    """Enter something around each step by its name, in both drivers, from now on in this process."""
    blocking: dict[Any, Any] = drive_sync._PERFORM  # pyright: ignore[reportPrivateUsage, reportAssignmentType]
    awaiting: dict[Any, Any] = drive_async._PERFORM_ASYNC  # pyright: ignore[reportPrivateUsage, reportAssignmentType]
    for table in (blocking, awaiting):
        for step, perform in list(table.items()):
            table[step] = _around(step.__name__, perform, enter)


def _around(
    name: str, perform: Callable[..., object], enter: Callable[[str], AbstractContextManager[None]]
) -> Callable[..., object]:
    """What performs a step may be done when it returns, or be awaited: the place ends with it either way."""

    def performed(*arguments: object) -> object:
        with ExitStack() as entered:
            entered.enter_context(enter(name))
            result = perform(*arguments)
            if not isawaitable(result):
                return result
            rest = entered.pop_all()
        return _awaited(result, rest)

    return performed


async def _awaited(result: Awaitable[object], entered: ExitStack) -> object:
    with entered:
        return await result
