"""Where a worker can be made to die or to freeze: around every step of the protocol, around the statements
that end a transaction, and in the middle of a handler.

A request asks for it by a header, `Trap: kill before Commit`; its retry leaves the header out.

    kill | stop                SIGKILL; or SIGSTOP, until somebody sends SIGCONT
    before | inside | after    `inside` lets the thing begin, and strikes within two milliseconds
    place                      a step of the driver (`Reserve`, `Run`, `Commit`, …); `conclude` or `COMMIT`,
                               the statements; or what a handler calls a place

Whoever falls writes `<pid> <trap>` into the file that `FALLS` names.  No product code knows about this.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from sqlalchemy.engine.default import DefaultDialect

from retrysafe import drive
from retrysafe import sqlite3 as joined_sqlite
from retrysafe.asgi.types import App, Connection, Receive, Send
from retrysafe.stores.sql.joint import Joint

FALLS = "RETRYSAFE_FALLS"

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

_trap: ContextVar[str] = ContextVar("trap", default="")
"""Of the request that is served here; the tasks and threads that serve it inherit it."""


def _fall(how: str, where: str) -> None:
    with open(os.environ[FALLS], "a") as file:
        file.write(f"{os.getpid()} {how} {where}\n")
    os.kill(os.getpid(), SIGNALS[how])
    time.sleep(0.1)  # another thread may be the one that is told, and this one must not go on meanwhile


def reach(moment: str, place: str) -> None:
    """Fall, if there is a trap here."""
    how, _, where = _trap.get().partition(" ")
    if where != f"{moment} {place}":
        return
    _trap.set("")
    if moment == "inside":
        threading.Thread(target=_fall_soon, args=(how, where), daemon=True).start()
    else:
        _fall(how, where)


def _fall_soon(how: str, where: str) -> None:
    time.sleep(random.uniform(0, 0.002))
    _fall(how, where)


@contextmanager
def place(name: str) -> Generator[None]:
    """A place with its three moments."""
    reach("before", name)
    reach("inside", name)
    yield
    reach("after", name)


def _around_step(name: str, perform: Callable[[Any, Any, Any], Awaitable[object]]) -> Any:
    async def performed(step: Any, engine: Any, hands: Any) -> object:
        with place(name):
            return await perform(step, engine, hands)

    return performed


def install() -> None:
    """Once, in the process that forks the workers."""
    table = drive._PERFORM_ASYNC
    for step, perform in list(table.items()):
        table[step] = _around_step(step.__name__, perform)
    _around_conclude()
    _around_commit()


def _around_conclude() -> None:
    perform, perform_async = Joint.perform, Joint.perform_async

    def performed(self: Joint, *rest: Any) -> Any:
        with place("conclude"):
            return perform(self, *rest)

    async def performed_async(self: Joint, *rest: Any) -> Any:
        with place("conclude"):
            return await perform_async(self, *rest)

    _replace(Joint, "perform", performed)
    _replace(Joint, "perform_async", performed_async)


def _around_commit() -> None:
    really_commit = joined_sqlite.JoinedConnection.really_commit
    leave, leave_async = psycopg.Transaction.__exit__, psycopg.AsyncTransaction.__aexit__

    def committed(self: joined_sqlite.JoinedConnection) -> None:
        with place("COMMIT"):
            really_commit(self)

    def left(self: psycopg.Transaction, kind: Any, *rest: Any) -> bool:
        if kind is not None or self.savepoint_name:
            return leave(self, kind, *rest)
        with place("COMMIT"):
            return leave(self, kind, *rest)

    async def left_async(self: psycopg.AsyncTransaction, kind: Any, *rest: Any) -> bool:
        if kind is not None or self.savepoint_name:
            return await leave_async(self, kind, *rest)
        with place("COMMIT"):
            return await leave_async(self, kind, *rest)

    do_commit: Callable[..., None] = DefaultDialect.do_commit

    def done(self: DefaultDialect, dbapi_connection: Any) -> None:
        with place("COMMIT"):
            do_commit(self, dbapi_connection)

    _replace(DefaultDialect, "do_commit", done)
    _replace(joined_sqlite.JoinedConnection, "really_commit", committed)
    _replace(psycopg.Transaction, "__exit__", left)
    _replace(psycopg.AsyncTransaction, "__aexit__", left_async)


def _replace(owner: type, name: str, method: Callable[..., object]) -> None:
    """That is what a trapdoor is."""
    setattr(owner, name, method)


class Trapped:
    """Around everything: sees which trap a request asks for."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked = [value for name, value in scope["headers"] if name == b"trap"]
            _trap.set(asked[0].decode() if asked else "")
        await self._app(scope, receive, send)
