"""The operator's end of a database server: a session of its own, which reads in snapshots and writes in
turns.

It checks before it uses: tables of another version, or none, are a `SchemaMismatch`, and only `migrate`
creates any.

Every wait is bounded.  In each transaction the server is told how long a statement may take and how long it
may wait for another transaction's lock.  And a connection cuts itself when the server says nothing at all.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Operation, Row
from retrysafe.stores.sql.admin import SQLAdmin
from retrysafe.stores.sql.admin_operations import PurgeStep
from retrysafe.stores.sql.backend import AdminConnection
from retrysafe.stores.sql.schema import plan, refuse

T = TypeVar("T")

Begin = Sequence[str]
"""What begins a transaction."""

_REST = 4
"""A purge rests for so many times as long as a step took, so it has a fifth of a processor and of the disk's
time, however slow they are."""

_TURN = 0.002
"""Seconds of rest in any case."""

WALK: Final = 60.0
"""Seconds for one walk through the table.  That is some ten million records.  An operator waits no longer,
and the server should not either: it cannot clean up behind an older snapshot."""

_GRACE = 1.0
"""Seconds by which a server that has something to say is quicker than the cut."""


class Locked(StoreUnavailable):
    """A lock was not to be had in time."""


class Transaction:
    """What runs in it is committed together, or not at all."""

    def __init__(self, connection: AdminConnection, seconds: float, patience: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._patience = patience

    def query(self, name: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
        """Run a statement by its name."""
        told = {"patience": self._patience, **(arguments or {})}
        return self._connection.query(name, told, self._seconds + _GRACE)

    def command(self, sql: str) -> None:
        self._connection.command(sql, self._seconds + _GRACE)

    def perform(self, operation: Operation[T]) -> T:
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(self.query(name, arguments))
        except StopIteration as answer:
            result: T = answer.value
            return result


class AdminSession:
    """Opens its connection when it is first used, and again after an error."""

    def __init__(self, connect: Callable[[], AdminConnection], deadline: float) -> None:
        self.deadline = deadline
        self._connect = connect
        self._connection: AdminConnection | None = None
        self._in_use = threading.Lock()

    @contextlib.contextmanager
    def transaction(self, begin: Begin, seconds: float) -> Generator[Transaction]:
        """Each statement in it has so many seconds, and waits for a lock no longer than the deadline."""
        with self._in_use:
            transaction = Transaction(self._connected(), seconds, self.deadline)
            try:
                for command in begin:
                    transaction.command(command)
                transaction.query("set_timeouts", {"seconds": seconds})
                yield transaction
                transaction.command("COMMIT")
            except BaseException:
                # Closed and not rolled back: on a connection in trouble a ROLLBACK might be the next thing to
                # wait for.  The server undoes what a session leaves unfinished.
                self._shut()
                raise

    def run(self, commands: Sequence[str], seconds: float) -> None:
        """Run SQL outside of a transaction, each within so many seconds."""
        with self._in_use:
            connection = self._connected()
            try:
                for command in commands:
                    connection.command(command, seconds)
            except BaseException:
                self._shut()
                raise

    def close(self) -> None:
        with self._in_use:
            self._shut()

    def _connected(self) -> AdminConnection:
        if self._connection is not None and not self._connection.usable:
            self._shut()  # the server, or something between, has closed it meanwhile
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _shut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class ServerAdmin(SQLAdmin):
    """`connect` opens a connection for exclusive use."""

    step = 500  # requests do not wait for them, but for one that is their own, until its commit
    begin_write: ClassVar[Begin]
    begin_snapshot: ClassVar[Begin]

    def __init__(self, connect: Callable[[], AdminConnection], deadline: float) -> None:
        self._connect = connect
        self._deadline = deadline
        self._session = AdminSession(connect, deadline)
        self._known = False

    def _purge_step(self, operation: Operation[PurgeStep]) -> tuple[PurgeStep, float]:
        began = time.monotonic()
        return self._write(operation), time.monotonic() - began

    def _rest(self, took: float) -> None:
        time.sleep(_TURN + took * _REST)

    def close(self) -> None:
        self._session.close()
        self._known = False

    def _read(self, operation: Operation[T]) -> T:
        return self._perform(operation, self.begin_snapshot)

    def _write(self, operation: Operation[T]) -> T:
        return self._perform(operation, self.begin_write)

    def _perform(self, operation: Operation[T], begin: Begin) -> T:
        if not self._known:
            with self._session.transaction(self.begin_snapshot, self._deadline) as transaction:
                refuse(plan(transaction.query, self.dialect))
            self._known = True
        with self._session.transaction(begin, WALK) as transaction:
            return transaction.perform(operation)
