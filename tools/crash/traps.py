"""Where a worker can be made to die or to freeze: around every step of the protocol, around the statements
that end a transaction, and in the middle of a handler.

A request asks for it by a header, `Trap: kill before Commit`; its retry leaves the header out.

    kill | stop                SIGKILL; or SIGSTOP, until the harness sends SIGCONT
    before | inside | after    `inside` begins the step, and sends the signal within two milliseconds
    place                      a step of the driver (`Reserve`, `Run`, `Commit`, …); `conclude` or `COMMIT`,
                               the statements; or the name that a handler gives to a place

A worker writes to the journal before it is interrupted.  No product code knows about this.
"""

import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from sqlalchemy.engine.default import DefaultDialect

from retrysafe._core.steps import Finish, Forget, Release
from retrysafe._runtime import drive_async
from retrysafe.asgi.types import App, Connection, Receive, Send
from retrysafe.stores.sql.join import Joint
from tools.crash.journal import Journal

STEPS = drive_async._PERFORM_ASYNC  # pyright: ignore[reportPrivateUsage]  # a trap replaces what is private
"""What the driver does at each step of a flow."""

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


STORING = frozenset({Finish, Release, Forget})
"""Steps by which an owner gives the store the outcome of its attempt.  An owner that is interrupted there may
not learn whether the store took it; one that did not get there has stored nothing."""


class _Trap(NamedTuple):
    how: str
    where: str
    ending: str
    journal: Journal

    def spring(self) -> None:
        self.journal.write("trapped", self.how, self.where, self.ending)
        os.kill(os.getpid(), SIGNALS[self.how])
        time.sleep(0.1)  # another thread may be the one that gets the signal, and this one must not go on

    def spring_soon(self) -> None:
        time.sleep(random.uniform(0, 0.002))
        self.spring()


_trap: ContextVar[_Trap | None] = ContextVar("trap", default=None)
"""Of the current request; the tasks and threads that serve it inherit it."""

_serial: ContextVar[str] = ContextVar("serial")


def serial() -> str:
    """The number of the current request, in this worker."""
    return _serial.get()


def reach(moment: str, place: str) -> None:
    """Be interrupted, if the current request has its trap here."""
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


def _around_step(kind: type, perform: Callable[[Any, Any, Any], Any], journal: Journal) -> Any:
    async def performed(step: Any, runtime: Any, performer: Any) -> object:
        with place(kind.__name__):
            if kind in STORING:
                journal.write("storing", serial())
            found = perform(step, runtime, performer)
            return await found if isinstance(found, Awaitable) else found

    return performed


def install(journal: Journal) -> None:
    """Once, in the process that forks the workers.  Each store knows by itself where its COMMIT is."""
    for step, perform in list(STEPS.items()):
        STEPS[step] = _around_step(step, perform, journal)
    perform_joint, perform_joint_async = Joint.perform, Joint.perform_async

    def performed(self: Joint, *rest: Any) -> Any:
        with place("conclude"):
            return perform_joint(self, *rest)

    async def performed_async(self: Joint, *rest: Any) -> Any:
        with place("conclude"):
            return await perform_joint_async(self, *rest)

    replace(Joint, "perform", performed)
    replace(Joint, "perform_async", performed_async)


def replace(owner: type, name: str, method: Callable[..., object]) -> None:
    setattr(owner, name, method)


class Trapped:
    """Around the application: notes which requests arrive and leave, and sets the trap that one asks for."""

    def __init__(self, app: App, journal: Journal) -> None:
        self._app = app
        self._journal = journal
        self._serials = itertools.count()

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields: dict[bytes, bytes] = dict(scope["headers"])
        how, _, where = fields.get(b"trap", b"").decode().partition(" ")
        ending = fields.get(b"ending", b"").decode()
        _trap.set(_Trap(how, where, ending, self._journal) if how else None)
        serial = str(next(self._serials))
        _serial.set(serial)
        self._journal.write("arrived", serial, fields[b"idempotency-key"].decode().strip('"'))
        try:
            await self._app(scope, receive, send)
        finally:
            self._journal.write("left", serial)


# --- the place called COMMIT, in every driver: around the statement that ends a transaction


def commits_of_sqlalchemy() -> None:
    do_commit: Callable[..., None] = DefaultDialect.do_commit

    def done(self: DefaultDialect, dbapi_connection: object) -> None:
        with place("COMMIT"):
            do_commit(self, dbapi_connection)

    replace(DefaultDialect, "do_commit", done)


def commits_of_sqlite3() -> None:
    from retrysafe.sqlite3 import JoinedConnection

    really_commit = JoinedConnection.really_commit

    def committed(self: JoinedConnection) -> None:
        with place("COMMIT"):
            really_commit(self)

    replace(JoinedConnection, "really_commit", committed)


def commits_of_psycopg() -> None:
    from psycopg import AsyncTransaction, Transaction

    leave, leave_async = Transaction.__exit__, AsyncTransaction.__aexit__

    def left(self: Transaction, kind: Any, *rest: Any) -> bool:
        if kind is not None or self.savepoint_name:
            return leave(self, kind, *rest)
        with place("COMMIT"):
            return leave(self, kind, *rest)

    async def left_async(self: AsyncTransaction, kind: Any, *rest: Any) -> bool:
        if kind is not None or self.savepoint_name:
            return await leave_async(self, kind, *rest)
        with place("COMMIT"):
            return await leave_async(self, kind, *rest)

    replace(Transaction, "__exit__", left)
    replace(AsyncTransaction, "__aexit__", left_async)
