"""The reference application with trapdoors: a request may say where its worker is to die or to freeze.

    python tests/faults/launcher.py FRAMEWORK --store URL --port N …

A request with the header `Trap: kill before Finish` is served until the driver is about to perform its
`Finish`; then the process kills itself.  `retrysafe.testing.traps` explains what a trap says; places are the
steps of the driver (`Reserve`, `Run`, `Checkpoint`, `Finish`, `Release`, …), the `Effect` of the handler, the
`Commit` of its `Finish`, and `Send`, when the response leaves.

The header is not part of a request's fingerprint: its retry just leaves it out.  A process that falls writes
a line `<pid> <trap>` into the file that `RETRYSAFE_TRAPS` names, so that a test can wait for it.
"""

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from retrysafe import Guard
from retrysafe.asgi.types import App, Message, Receive, Send
from retrysafe.asgi.types import Connection as Scope
from retrysafe.stores.queue import Row
from retrysafe.stores.sql.sqlite.connection import Connection
from retrysafe.stores.sql.sqlite.filelock import FileLock
from retrysafe.testing.reference import __main__ as reference
from retrysafe.testing.reference.ledger import Ledger
from retrysafe.testing.reference.service import Service
from retrysafe.testing.traps import Trap, around_steps, place, reach, set_trap, trap_set

_armed: list[Trap] = []

_writers: set[FileLock] = set()
"""Whoever in this process holds the write lock: its writer, or the keeper that renews leases beside it."""

_writers_change = threading.Lock()


@contextmanager
def _falling(trap: Trap) -> Generator[None]:
    with open(os.environ["RETRYSAFE_TRAPS"], "a") as file:
        file.write(f"{os.getpid()} {trap.how} {trap.where}\n")
    if trap.how == "kill" or trap.where.endswith(" Commit"):
        yield
        return
    # With the write lock in any thread of this process, all other processes would be prevented from writing,
    # which is what `Commit` is for.  The keeper takes it whenever a lease is due, and knows of no traps.
    while True:
        with _writers_change:
            if not _writers:
                yield
                return
        time.sleep(0.001)


def _around_write_locks() -> None:
    try_acquire, release, close = FileLock.try_acquire, FileLock.release, FileLock.close

    def tried(self: FileLock) -> bool:
        with _writers_change:
            if taken := try_acquire(self):
                _writers.add(self)
            return taken

    def released(self: FileLock) -> None:
        release(self)
        _writers.discard(self)

    def closed(self: FileLock) -> None:
        close(self)
        _writers.discard(self)

    FileLock.try_acquire = tried  # type: ignore[method-assign]  # that is what a trapdoor is
    FileLock.release = released  # type: ignore[method-assign]  # that is what a trapdoor is
    FileLock.close = closed  # type: ignore[method-assign]  # that is what a trapdoor is


@contextmanager
def _step(name: str) -> Generator[None]:
    with place(name):
        trap = trap_set()
        if name == "Finish" and trap is not None and trap.where.endswith(" Commit"):
            _armed.append(trap)
            set_trap("")  # once: a `Finish` whose commit was frozen for too long is tried again
        yield


def _around_commits() -> None:
    """Commits happen in the writer's thread, which serves everybody: the next one after a `Finish` it is."""
    execute = Connection.execute

    def executed(self: Connection, sql: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
        if sql == "COMMIT" and _armed:
            trap = _armed.pop()
            set_trap(f"{trap.how} {trap.where}", _falling)
            reach("before", "Commit")
        return execute(self, sql, arguments)

    Connection.execute = executed  # type: ignore[method-assign]  # that is what a trapdoor is


def _around_effects() -> None:
    add = Ledger.add

    def added(self: Ledger, label: str) -> int:
        with place("Effect"):
            return add(self, label)

    Ledger.add = added  # type: ignore[method-assign]  # that is what a trapdoor is


class Trapped:
    """Around everything: sees which trap a request asks for, and the answer on its way out."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked = [value for name, value in scope["headers"] if name == b"trap"]
            set_trap(asked[0].decode() if asked else "", _falling)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                reach("before", "Send")
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                reach("after", "Send")

        await self._app(scope, receive, sent)


def main() -> None:
    around_steps(_step)
    _around_effects()
    _around_commits()
    _around_write_locks()
    framework = importlib.import_module(f"retrysafe.testing.reference.{sys.argv[1]}")
    build: Callable[[Service, Guard], App] = framework.build

    def build_trapped(service: Service, guard: Guard) -> App:
        return Trapped(build(service, guard))

    setattr(framework, "build", build_trapped)  # noqa: B010 - whichever module it is
    reference.main()


if __name__ == "__main__":
    main()
