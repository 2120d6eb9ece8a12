"""The reference application with trapdoors: a request may say where its worker is to die or to freeze.

    python tests/faults/launcher.py asgi --store URL --port N …

A request with the header `Trap: kill before Finish` is served until the driver is about to perform its
`Finish`; then the process kills itself.  So every gap between two operations of the store can be hit exactly.

    kill | stop     SIGKILL, or SIGSTOP until somebody sends SIGCONT
    before | after  the place
    place           a step of the driver (`Reserve`, `Run`, `Checkpoint`, `Finish`, `Release`, …), the
                    `Effect` of the handler, the `Commit` of its `Finish`, or `Send`, the answer's way out

The header is no part of a request's fingerprint: its retry just leaves it out.  Whoever falls through writes
a line `<pid> <trap>` into the file that `RETRYSAFE_TRAPS` names, so that a test can wait for it.

No product code knows about this: it is put around the driver's table, the ledger and the application.
"""

import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from retrysafe import Guard
from retrysafe._core import steps
from retrysafe._runtime import drive_async
from retrysafe.asgi.types import App, Message, Receive, Send
from retrysafe.asgi.types import Connection as Scope
from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.sqlite.connection import Connection
from retrysafe.stores.sql.sqlite.filelock import FileLock
from retrysafe.testing.reference import __main__ as reference
from retrysafe.testing.reference import asgi
from retrysafe.testing.reference.ledger import Ledger
from retrysafe.testing.reference.service import Service

_trap: ContextVar[str] = ContextVar("trap", default="")
"""Of the request that is being served here; tasks and threads started for it inherit it."""

_armed: list[str] = []

_writers: set[FileLock] = set()
"""Whoever in this process holds the write lock: its writer, or the keeper that renews leases beside it."""

_writers_change = threading.Lock()


def reach(moment: str, place: str) -> None:
    """Fall, if there is a trap here."""
    how, _, where = _trap.get().partition(" ")
    if where != f"{moment} {place}":
        return
    _trap.set("")
    with open(os.environ["RETRYSAFE_TRAPS"], "a") as file:
        file.write(f"{os.getpid()} {how} {where}\n")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif place == "Commit":
        _freeze()
    else:
        _freeze_between_writes()


def _freeze() -> None:
    # By this thread to itself, and so it does not go on before the whole process has been woken up.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _freeze_between_writes() -> None:
    """With the write lock in any thread's performer, everybody else would be kept from writing, which is what
    `Commit` is for.  The keeper takes it whenever a lease is due, and knows of no traps."""
    while True:
        with _writers_change:
            if not _writers:
                _freeze()
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


def _around_step(place: str, perform: Callable[[Any, Any, Any], Awaitable[object]]) -> Any:
    async def performed(step: Any, runtime: Any, performer: Any) -> object:
        reach("before", place)
        if place == "Finish" and _trap.get().endswith(" Commit"):
            _armed.append(_trap.get())
        answer = await perform(step, runtime, performer)
        reach("after", place)
        return answer

    return performed


def _around_commits() -> None:
    """Commits happen in the writer's thread, which serves everybody: the next one after a `Finish` it is."""
    execute = Connection.execute

    def executed(self: Connection, sql: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
        if sql == "COMMIT" and _armed:
            _trap.set(_armed.pop())
            reach("before", "Commit")
        return execute(self, sql, arguments)

    Connection.execute = executed  # type: ignore[method-assign]  # that is what a trapdoor is


def _around_effects() -> None:
    add = Ledger.add

    def added(self: Ledger, label: str) -> int:
        reach("before", "Effect")
        count = add(self, label)
        reach("after", "Effect")
        return count

    Ledger.add = added  # type: ignore[method-assign]  # that is what a trapdoor is


class Trapped:
    """Around everything: sees which trap a request asks for, and the answer on its way out."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked = [value for name, value in scope["headers"] if name == b"trap"]
            _trap.set(asked[0].decode() if asked else "")

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                reach("before", "Send")
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                reach("after", "Send")

        await self._app(scope, receive, sent)


def main() -> None:
    table = drive_async._PERFORM_ASYNC
    for step, perform in list(table.items()):
        assert getattr(steps, step.__name__) is step
        table[step] = _around_step(step.__name__, perform)
    _around_effects()
    _around_commits()
    _around_write_locks()
    build = asgi.build

    def build_trapped(service: Service, guard: Guard) -> App:
        return Trapped(build(service, guard))

    asgi.build = build_trapped
    reference.main()


if __name__ == "__main__":
    main()
