"""Workers that handle stored payloads, beside the processes that take deliveries: which process is one, and
where it can be interrupted.

All are children of one process, and are killed and frozen alike.  A process that is started takes the place
of a worker if one is free.  That is known from locks on files, which end with their process, however it ends.
"""

# Workers are watched from inside, and what a process does is replaced:
# pyright: reportPrivateUsage=false

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retrysafe._core.steps import Flow, Result
from retrysafe.callbacks import Receipts
from retrysafe.callbacks.worker import Worker, _Work
from retrysafe.testing.reference import serve as serving
from tools.crash.handlers import Handlers
from tools.crash.journal import Journal
from tools.crash.traps import Visits, replace, serial

WORKERS = 2
"""So that one is left that takes over when the other is frozen."""

CONCURRENCY = 3
POLL = 0.1
"""Seconds: a fifth of the usual lease."""


def have_some_work(receipts: Receipts[Any], handlers: Handlers, journal: Journal, folder: Path) -> None:
    """Once, in the process that forks the others."""
    _watch(journal, folder)

    class Process(serving._Server):
        def run(self, sockets: list[socket.socket] | None = None) -> None:
            if _takes_place(folder):
                asyncio.run(_work(receipts, handlers, self._ready))
            else:
                super().run(sockets)

    setattr(serving, "_Server", Process)  # noqa: B010 - a class is not assigned to


def _takes_place(folder: Path) -> bool:
    """Whether this process is a worker from now on; the lock is its own until it ends."""
    for number in range(WORKERS):
        place = os.open(folder / f"worker-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(place)
        else:
            return True
    return False


async def _work(receipts: Receipts[Any], handlers: Handlers, ready: Callable[[], None]) -> None:
    """As `retrysafe work` does, until it is killed."""
    worker = Worker(receipts, concurrency=CONCURRENCY, poll=POLL)
    async with handlers.lifespan():
        ready()
        await (worker.run_async() if worker.is_async else asyncio.to_thread(worker.run))


def _watch(journal: Journal, folder: Path) -> None:
    """Note what workers handle, and set the trap that a payload asks for: once, because it stays as it is."""
    visits = Visits(journal)
    flow = _Work.flow

    def begun(self: _Work) -> Flow[Result]:
        event, key = self._event, self._due.record.key or ""
        sprung = folder / f"{key}.sprung"
        trap = "" if sprung.exists() else event["trap"]
        visits.begin(key, trap, event["ending"], sprung.touch)
        return flow(self)

    def ended(_: _Work) -> None:
        visits.end(serial())

    replace(_Work, "flow", begun)
    replace(_Work, "close", ended)
