"""Where a worker can be made to die or to freeze: around every step of the protocol, around the statements
that end a transaction, and in the middle of a handler.

A request asks for it by a header, `Trap: kill before Commit`; its retry leaves the header out.

`retrysafe.testing.traps` says what a trap is.  Its places here are the steps of the driver (`Reserve`, `Run`,
`Commit`, …); `conclude` and `COMMIT`, the statements; and what a handler gives a name to.
A worker writes to the journal before it is interrupted.  No product code knows about this.
"""

import itertools
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

from retrysafe._runtime import drive_async
from retrysafe.asgi.types import App, Connection, Receive, Send
from retrysafe.stores.sql.join import Joint
from retrysafe.testing.traps import Trap, around_steps, set_trap
from retrysafe.testing.traps import place as place
from retrysafe.testing.traps import reach as reach
from tools.crash.journal import Journal

STEPS = drive_async._PERFORM_ASYNC  # pyright: ignore[reportPrivateUsage]  # a trap replaces what is private
"""What the driver does at each step of a flow."""

STORING = frozenset({"Finish", "Release", "Forget"})
"""Steps by which an owner gives the store the outcome of its attempt.  An owner that is interrupted there may
not learn whether the store took it; one that did not get there has stored nothing."""

_serial: ContextVar[str] = ContextVar("serial")


def serial() -> str:
    """The number of the current request, in this worker."""
    return _serial.get()


def install(journal: Journal) -> None:
    """Once, in the process that forks the workers.  Each store knows by itself where its COMMIT is."""

    @contextmanager
    def step(name: str) -> Generator[None]:
        with place(name):
            if name in STORING:
                journal.write("storing", serial())
            yield

    around_steps(step)
    perform_joint, perform_joint_async = Joint.perform, Joint.perform_async

    def performed(self: Joint, operation: Any, *rest: Any) -> Any:
        with _concluding(operation):
            return perform_joint(self, operation, *rest)

    async def performed_async(self: Joint, operation: Any, *rest: Any) -> Any:
        with _concluding(operation):
            return await perform_joint_async(self, operation, *rest)

    replace(Joint, "perform", performed)
    replace(Joint, "perform_async", performed_async)


def _concluding(operation: Any) -> AbstractContextManager[None]:
    """What an operation within a transaction looks up and stores has steps of its own, and so places."""
    within = operation.__name__ in ("look", "store_within")  # which generator it is
    return nullcontext() if within else place("conclude")


def replace(owner: type, name: str, method: Callable[..., object]) -> None:
    setattr(owner, name, method)


class Visits:
    """What a process serves: when each began and ended, and the trap that it brings with it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._serials = itertools.count()

    def begin(self, key: str, trap: str, ending: str, sprung: Callable[[], None] = lambda: None) -> str:
        """In the task or thread that serves it; `sprung` is called when it falls into its trap."""

        @contextmanager
        def falling(trap: Trap) -> Generator[None]:
            sprung()
            self._journal.write("trapped", trap.how, trap.where, ending)
            yield

        set_trap(trap, falling)
        serial = str(next(self._serials))
        _serial.set(serial)
        self._journal.write("arrived", serial, key)
        return serial

    def end(self, serial: str) -> None:
        self._journal.write("left", serial)


class Trapped:
    """Around the application: notes which requests arrive and leave, and sets the trap that one asks for."""

    def __init__(self, app: App, journal: Journal, name: bytes = b"idempotency-key") -> None:
        self._app = app
        self._visits = Visits(journal)
        self._name = name
        """Of the header that has the key."""

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields: dict[bytes, bytes] = dict(scope["headers"])
        key = fields[self._name].decode().strip('"')
        serial = self._visits.begin(
            key, fields.get(b"trap", b"").decode(), fields.get(b"ending", b"").decode()
        )
        try:
            await self._app(scope, receive, send)
        finally:
            self._visits.end(serial)


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


def commits_of_pymysql() -> None:
    from retrysafe.pymysql import JoinedConnection

    really_commit = JoinedConnection.really_commit

    def committed(self: JoinedConnection) -> None:
        with place("COMMIT"):
            really_commit(self)

    replace(JoinedConnection, "really_commit", committed)


def commits_of_psycopg() -> None:
    from psycopg import AsyncTransaction, Transaction
    from psycopg.pq import TransactionStatus

    from retrysafe.stores.sql import cursors

    leave, leave_async = Transaction.__exit__, AsyncTransaction.__aexit__

    def left(self: Transaction, kind: Any, *rest: Any) -> bool:
        if (
            kind is not None
            or self.savepoint_name
            or self.pgconn.transaction_status == TransactionStatus.IDLE
        ):
            return leave(self, kind, *rest)
        with place("COMMIT"):
            return leave(self, kind, *rest)

    async def left_async(self: AsyncTransaction, kind: Any, *rest: Any) -> bool:
        if (
            kind is not None
            or self.savepoint_name
            or self.pgconn.transaction_status == TransactionStatus.IDLE
        ):
            return await leave_async(self, kind, *rest)
        with place("COMMIT"):
            return await leave_async(self, kind, *rest)

    replace(Transaction, "__exit__", left)
    replace(AsyncTransaction, "__aexit__", left_async)
    run_and_commit = cursors.run_and_commit

    def run_and_committed(*rest: Any) -> Generator[Any, Any, Any]:
        with place("COMMIT"):  # which is sent with the completion: both places are around both
            return (yield from run_and_commit(*rest))

    cursors.run_and_commit = run_and_committed  # type: ignore[assignment]  # whatever it takes
