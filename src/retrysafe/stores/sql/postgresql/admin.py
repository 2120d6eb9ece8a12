"""The operator's end of PostgreSQL: a session of its own, which reads in snapshots and writes in turns.

It checks before it uses: tables of another version, or none, are a `SchemaMismatch`, and only `migrate`
creates any.

Every wait is bounded.  Inside of each transaction the server is told how long a statement may take and how
long it may wait for another transaction's lock; these settings end with the transaction, so they work behind
a pooler too.  And a connection cuts itself when the server says nothing at all.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, TypeVar

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.admin import Finding, Index
from retrysafe.stores.queue import Operation, Row
from retrysafe.stores.retry import TookTooLong
from retrysafe.stores.sql.admin import SQLAdmin
from retrysafe.stores.sql.admin_operations import PurgeStep
from retrysafe.stores.sql.backend import AdminConnection
from retrysafe.stores.sql.postgresql import schema
from retrysafe.stores.sql.postgresql.retry import PostgresTrouble
from retrysafe.stores.sql.schema import Plan, chosen_indexes, plan, refuse

T = TypeVar("T")

_REST = 4
"""A purge rests for so many times as long as a step took, so it has a fifth of a processor and of the disk's
time, however slow they are."""

_AGAIN = 0.5
"""Seconds between two tries to change a table."""

_TRIES = 10
"""Deadlines for which they go on."""

_TURN = 0.002
"""Seconds of rest in any case."""

WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Said in full: a server may have other defaults, and a change that waited for a row must then see it as it
is."""

SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""All statements see the same moment, no writer waits for it, and a replica can do it too."""

WALK: Final = 60.0
"""Seconds for one walk through the table.  That is some ten million records.  An operator waits no longer,
and a vacuum should not either: it cannot clean up behind an older snapshot."""

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
    def transaction(self, begin: str, seconds: float) -> Generator[Transaction]:
        """Each statement in it has so many seconds, and waits for a lock no longer than the deadline."""
        with self._in_use:
            if self._connection is None:
                self._connection = self._connect()
            transaction = Transaction(self._connection, seconds, self.deadline)
            try:
                transaction.command(begin)
                transaction.query("set_timeouts", {"seconds": seconds})
                yield transaction
                transaction.command("COMMIT")
            except BaseException:
                # Closed and not rolled back: on a connection in trouble a ROLLBACK might be the next thing to
                # wait for.  The server undoes what a session leaves unfinished.
                self._shut()
                raise

    def build_index(self, name: str, statement: str, seconds: float) -> None:
        """Create an index while the table is used: outside of a transaction, and from the beginning, should
        an earlier try have broken off in the middle."""
        with self._in_use:
            if self._connection is None:
                self._connection = self._connect()
            try:
                self._connection.command(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", seconds)
                concurrently = statement.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1)
                self._connection.command(concurrently, seconds)
            except BaseException:
                self._shut()
                raise

    def close(self) -> None:
        with self._in_use:
            self._shut()

    def _shut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class PostgresAdmin(SQLAdmin):
    """`connect` opens a connection for exclusive use."""

    dialect = schema.DIALECT
    step = 500  # requests do not wait for them, but for one that is their own, until its commit

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

    def diagnose(self) -> Sequence[Finding]:
        # Here and not above: services never ask, and need not load what it looks at.
        from retrysafe.stores.sql.postgresql.doctor import examine

        return examine(self._connect, self._deadline)

    def _migrate(self, indexes: Sequence[Index]) -> Sequence[str]:
        made = [*self._make_missing(), *self._make_indexes(indexes)]
        self._known = True
        return made

    def _make_missing(self) -> Sequence[str]:
        """Any number of processes may try at once, behind a pooler too: the lock belongs to the transaction.
        A role that finds everything there needs no right to create any of it."""
        with self._session.transaction(SNAPSHOT, self._deadline) as transaction:
            if not plan(transaction.query, schema.DIALECT).names:
                return ()
        found = self._apply_migrations(time.monotonic() + _TRIES * self._deadline)
        for name, statement in found.indexes.items():
            self._session.build_index(name, statement, WALK)
        return found.names

    def _make_indexes(self, wanted: Sequence[Index]) -> Sequence[str]:
        """Those that were asked for."""
        with self._session.transaction(SNAPSHOT, self._deadline) as transaction:
            missing = chosen_indexes(transaction.query, schema.DIALECT, wanted)
        for name, statement in missing.items():
            self._session.build_index(name, statement, WALK)
        return list(missing)

    def _apply_migrations(self, until: float) -> Plan:
        """A change of a table waits for every transaction that uses it, and others wait behind it: so each
        try is short, and there are many."""
        while True:
            try:
                with self._session.transaction(WRITE, WALK) as transaction:
                    transaction.query("migration_lock")
                    found = plan(transaction.query, schema.DIALECT)  # another process may have been faster
                    transaction.command(schema.BRIEFLY)
                    for statement in found.statements:
                        transaction.command(statement)
                    return found
            except Locked:
                if time.monotonic() >= until:
                    raise
                time.sleep(_AGAIN)

    def close(self) -> None:
        self._session.close()
        self._known = False

    def _read(self, operation: Operation[T]) -> T:
        return self._perform(operation, SNAPSHOT)

    def _write(self, operation: Operation[T]) -> T:
        return self._perform(operation, WRITE)

    def _perform(self, operation: Operation[T], begin: str) -> T:
        if not self._known:
            with self._session.transaction(SNAPSHOT, self._deadline) as transaction:
                refuse(plan(transaction.query, schema.DIALECT))
            self._known = True
        with self._session.transaction(begin, WALK) as transaction:
            return transaction.perform(operation)


@contextlib.contextmanager
def explained() -> Generator[None]:
    try:
        yield
    except PostgresTrouble as trouble:
        raise _explanation(trouble) from None


def _explanation(trouble: PostgresTrouble) -> StoreError:
    said = trouble.reason
    match trouble.state:
        case "57014":
            return TookTooLong(
                f"PostgreSQL cancelled the statement, which took too long ({said}); nothing was done"
            )
        case "55P03":
            return Locked(
                f"a row or table is locked by another transaction: timed out ({said}); nothing was done"
            )
        case "42501":
            return StoreUnavailable(
                f"this role lacks a permission ({said}): `retrysafe doctor` lists the permissions that it "
                "needs, and `retrysafe sql --dialect postgresql` prints what a role that may create tables "
                "can run"
            )
        case "25006":
            return StoreUnavailable(f"this server accepts no writes ({said}): use the address of the primary")
        case _:
            return trouble.as_error()
