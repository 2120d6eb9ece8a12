"""The transaction of one guarded view on Django's connection: `atomic()`, whose end is the guard's.

Around it stand the blocks that `ATOMIC_REQUESTS` asks for in other databases.  They are committed after it,
and undone with it: exactly once is the promise for the database of the records alone.

What the view does with Django is as always: blocks inside are savepoints, `set_rollback` and errors of the
database mark all of it for rollback, and `transaction.on_commit` waits for the commit.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError, Error, InterfaceError, OperationalError

from retrysafe._core.attempt import Attempt, running
from retrysafe._core.model import Claim, Final, Found
from retrysafe._runtime.transactions import BeginLock, CallTransaction, Previous, begin_with_calls
from retrysafe.django.guarded.atomic import check_blocks
from retrysafe.errors import CommitRefused, NotDone, NotJoined, StoreUnavailable
from retrysafe.events import log
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.django import DjangoStore
from retrysafe.stores.sql.django.own_connection import fetcher, is_of_driver, reported
from retrysafe.stores.sql.drivers import holder_of_socket
from retrysafe.stores.sql.join import Joint, NotCommitted, connection_lost, refused
from retrysafe.stores.sql.mysql.endings import ends_transaction
from retrysafe.stores.sql.mysql.join import DEADLOCKED, MARK, RESTORE, rolls_back

T = TypeVar("T")

_MARKED = (
    "the transaction of a guarded view was marked for rollback, by set_rollback() or by an error of the "
    "database that was caught outside of a block of its own, and the view responded with success: let the "
    "error leave the view, or put what may fail into `with transaction.atomic():`"
)
_CLOSED = "a guarded view closed Django's connection in its transaction, so nothing of it was committed"
_OPEN = (
    "a block of atomic() was still open when a guarded view returned: leave every block before that, and "
    "begin them with `with`"
)
_UNDONE = "the exception of a guarded view undid its transaction, and a middleware made a success of it"


class DjangoTransaction:
    """See `Transaction` in `_runtime/transactions.py`."""

    def __init__(self, store: DjangoStore, others: Sequence[str], attempt: Attempt | None = None) -> None:
        self._store = store
        self._others = others
        self._attempt = running() if attempt is None else attempt
        """Of the call, which calls Django's hooks after the commit."""
        self.begin_lock = BeginLock()
        self._connection: BaseDatabaseWrapper | None = None
        self._block: Any = None
        """Django's own class for it is private."""
        self._around = contextlib.ExitStack()
        """The blocks of other databases."""
        self._sqlite: _WriteTransaction | None = None
        self._is_part = False
        """Of a transaction that was open already, such as a test's."""
        self.undone = False
        """It was rolled back before its outcome was known."""
        self._watch: _WatchedOnMySQL | None = None

    @property
    def begun(self) -> bool:
        return self._connection is not None or self.undone

    def begin(self) -> None:
        with self.begin_lock.beginning():
            connection = self._begin()
            try:
                self.begin_lock.begun(lambda: self._assign(connection))
            except BaseException:
                self._assign(connection)
                self.roll_back()
                raise

    def _assign(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        if not self._is_part:
            self._store.guarded.add(connection)

    def _begin(self) -> BaseDatabaseWrapper:
        connection = connections[self._store.alias]
        self._is_part = connection.in_atomic_block
        if connection.vendor == "sqlite" and not self._store.is_within():
            self._sqlite = _WriteTransaction(self._store, connection)
        try:
            for alias in self._others:
                self._around.enter_context(transaction.atomic(using=alias))
            self._block = transaction.atomic(using=self._store.alias, durable=not self._is_part)
            with self._beginning(connection):
                self._block.__enter__()
            if connection.vendor == "mysql" and not self._is_part:
                self._watch = _WatchedOnMySQL(connection)
        except Error as error:
            self._give_back(error)
            raise NotDone("the database is not available") from error
        except BaseException as error:
            self._give_back(error)
            raise
        return connection

    def _beginning(self, connection: BaseDatabaseWrapper) -> contextlib.AbstractContextManager[None]:
        if self._sqlite is not None:
            return self._sqlite.postponed()
        if connection.vendor == "sqlite" and not self._is_part:
            return _immediate(connection)
        return contextlib.nullcontext()

    def mark_for_rollback(self) -> None:
        """As Django and its frameworks do where an exception became a response."""
        if self._connection is not None:
            self._connection.set_rollback(True)

    # --- its end

    def commit(self, claim: Claim, final: Final) -> bool:
        connection = self._connection
        if connection is None:
            return self._finish_undone(claim, final)
        try:
            if self._watch is not None:
                self._watch.check()
            if connection.closed_in_transaction or connection.connection is None:
                raise CommitRefused(_CLOSED)
            if connection.atomic_blocks[-1] is not self._block:
                raise CommitRefused(_OPEN)
            if connection.needs_rollback:
                if final.response.status < 400:
                    raise CommitRefused(_MARKED)
                self.roll_back()
                return self._finish_undone(claim, final)
            if final.response.status < 400:
                check_blocks(self._others)
            if self._is_part:
                stored = self._store.finish(claim, final)
            else:
                self._write()
                if self._watch is not None:
                    self._watch.concluding()
                stored = self._store.joint.perform(operations.conclude(claim, final), fetcher(connection))
            if stored:
                if self._sqlite is not None:
                    self._sqlite.verify_file()
                self._commit(connection, claim)
        except (CommitRefused, StoreUnavailable):
            raise
        except (Error, sqlite3.Error) as error:
            raise _not_committed(self._store.joint, error) from error
        except Exception as error:
            if not is_of_driver(error):
                raise
            raise _not_committed(self._store.joint, error) from error
        finally:
            self.roll_back()
        return stored

    def _write(self) -> None:
        """Before a statement that does not go through Django's cursors."""
        if self._sqlite is not None:
            try:
                self._sqlite.begin()
            except NotDone as error:
                reason = f"a guarded view could not begin to write: {error}"
                raise CommitRefused(reason, passing=True) from error

    def _commit(self, connection: BaseDatabaseWrapper, claim: Claim) -> None:
        committed: list[bool] = []
        hooks: list[Any] = []
        if not self._is_part:
            # Run when the outcome is stored, so that one which fails changes nothing of it.
            hooks, connection.run_on_commit = connection.run_on_commit, []
            connection.on_commit(lambda: committed.append(True))
        self._connection = None
        self._store.guarded.discard(connection)
        try:
            self._block.__exit__(None, None, None)
            if not self._is_part and not committed:
                raise CommitRefused(_CLOSED)
        except BaseException as error:
            self._give_back(error)
            raise
        if self._sqlite is not None:
            self._sqlite.end(claim)
        if self._watch is not None:
            self._watch.end()
        attempt = self._attempt
        if hooks and attempt is not None:
            attempt.callbacks = (*(hook for _, hook, _ in hooks), *attempt.callbacks)
        try:
            self._around.close()
        except Error as error:
            log.error(
                "a guarded view was committed in %r, and not in another database: %s",
                self._store.alias,
                error,
                exc_info=error,
            )

    def _finish_undone(self, claim: Claim, final: Final) -> bool:
        """Store a refusal of which nothing is left in the database, such as a 4xx that was raised."""
        if final.response.status < 400:
            raise CommitRefused(_UNDONE)
        return self._store.finish(claim, final)

    def roll_back(self, *, discard: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self.undone = True
        self._store.guarded.discard(connection)
        try:
            if discard:
                connection.close()
            while connection.atomic_blocks and connection.atomic_blocks[-1] is not self._block:
                _undo(connection.atomic_blocks[-1])
            _undo(self._block)
        except Error as error:
            # The server undoes what was not committed as soon as it notices that the connection is gone.
            log.warning("the rollback of a guarded view failed, its connection is closed: %s", error)
            with contextlib.suppress(Error):
                connection.close()
        finally:
            self._give_back(_Undone())

    def _give_back(self, error: BaseException) -> None:
        """Undo the blocks around it, and give back what SQLite needs."""
        if self._sqlite is not None:
            self._sqlite.end(None)
        if self._watch is not None:
            self._watch.end()
        try:
            self._around.__exit__(type(error), error, None)
        except Error as trouble:
            log.warning("the rollback of a guarded view in another database failed: %s", trouble)

    def fileno(self) -> int | None:
        driver: Any = None if self._connection is None else self._connection.connection
        if driver is None or self._connection is None or self._connection.vendor == "sqlite":
            return None
        with contextlib.suppress(Exception):  # drivers differ in what they raise where the view has closed it
            holder = holder_of_socket(driver)
            return None if holder is None else holder.fileno()
        return None

    @property
    def locks_database(self) -> bool:
        return self._sqlite is not None and self._sqlite.begun

    # --- operations that are a part of it

    def look(self, id: bytes) -> Found | None:
        return self._perform(operations.look(id))

    def store_within(self, claim: Claim, final: Final, previous: Previous | None) -> bool:
        return self._perform(operations.store_within(claim, final, previous))

    def _perform(self, operation: Operation[T]) -> T:
        assert self._connection is not None
        self._write()
        run = fetcher(self._connection)
        with reported():
            return self._store.joint.perform(operation, run)


def _begin_with_call(call: CallTransaction, attempt: Attempt) -> None:
    """Of what is no view: an operation, or an event that a worker handles."""
    store = call.store
    assert isinstance(store, DjangoStore), "registered for it"
    transaction = call.join(DjangoTransaction, lambda: DjangoTransaction(store, (), attempt))
    if transaction is not None:
        transaction.begin()


def register() -> None:
    """Have the transactions of operations and of workers begin with them."""
    begin_with_calls(DjangoStore, _begin_with_call)


class _Undone(Exception):
    """What blocks are told that are to be undone."""


def _undo(block: Any) -> None:  # noqa: ANN401 - Django's class is private
    block.__exit__(_Undone, _Undone(), None)


def _not_committed(joint: Joint, error: Exception) -> NotCommitted:
    """What an error at the end of a transaction means."""
    if not isinstance(error, Error):
        return joint.not_committed(error)
    if isinstance(error.__cause__, Exception):
        return joint.not_committed(error.__cause__)
    if isinstance(error, OperationalError | InterfaceError):
        return connection_lost(error)
    return refused(error, passing=False)


@contextlib.contextmanager
def _immediate(connection: Any) -> Generator[None]:  # noqa: ANN401 - SQLite's
    """In tests, `BEGIN IMMEDIATE`: a view that reads before it writes fails where another one writes."""
    connection.ensure_connection()
    before, connection.transaction_mode = connection.transaction_mode, "IMMEDIATE"
    try:
        yield
    finally:
        connection.transaction_mode = before


class _WriteTransaction:
    """What a transaction needs in SQLite besides: see `retrysafe/sqlalchemy/sqlite.py`.

    `BEGIN IMMEDIATE`, the store's file lock, and a commit that is on disk.  There is one writer at a time, so
    it begins with the view's first statement: until then, others can write.  Django's connection may go on to
    serve other requests, so it gets back what it had.
    """

    def __init__(self, store: DjangoStore, connection: BaseDatabaseWrapper) -> None:
        from retrysafe.stores.sql.sqlite import SQLiteStore

        beside = store.beside()
        assert isinstance(beside, SQLiteStore)
        self._store = beside
        self._connection: Any = connection
        self._lock = beside.file_lock()
        self._before: tuple[int, int] | None = None
        self._began: float | None = None

    @property
    def begun(self) -> bool:
        return self._began is not None

    @contextlib.contextmanager
    def postponed(self) -> Generator[None]:
        """A block of Django's that is entered in this has no `BEGIN` yet."""
        connection = self._connection
        connection.ensure_connection()
        connection._start_transaction_under_autocommit = _nothing
        try:
            yield
        finally:
            del connection._start_transaction_under_autocommit
        connection.execute_wrappers.append(self._before_statement)
        # What goes past Django's cursors begins too, if it writes.
        connection.connection.isolation_level = "IMMEDIATE"

    def _before_statement(
        self, execute: Callable[..., T], sql: str, params: object, many: bool, context: object
    ) -> T:
        self.begin()
        return execute(sql, params, many, context)

    def begin(self) -> None:
        if self._began is not None:
            return
        driver = self._connection.connection
        try:
            self._lock.acquire(self._store.deadline)
            if not driver.in_transaction:
                [checkpoint] = driver.execute("PRAGMA wal_autocheckpoint").fetchone()
                [synchronous] = driver.execute("PRAGMA synchronous").fetchone()
                self._before = self._before or (checkpoint, synchronous)
                driver.execute("PRAGMA wal_autocheckpoint = 0")
                driver.execute("PRAGMA synchronous = FULL")
                driver.execute("BEGIN IMMEDIATE")
        except (StoreUnavailable, sqlite3.OperationalError) as error:
            self._lock.release()
            raise NotDone("the database is busy") from error
        self._began = time.monotonic()

    def verify_file(self) -> None:
        """Before the commit: to a file that was deleted or replaced meanwhile nothing is committed."""
        from retrysafe.stores.sql.sqlite.file import FileReplaced

        try:
            self._store.verify_file()
        except FileReplaced as error:
            raise CommitRefused(str(error), passing=True) from error

    def end(self, claim: Claim | None) -> None:
        connection = self._connection
        with contextlib.suppress(ValueError):  # it is gone
            connection.execute_wrappers.remove(self._before_statement)
        before, self._before = self._before, None
        if before is not None and connection.connection is not None:
            checkpoint, synchronous = before
            with contextlib.suppress(DatabaseError, sqlite3.Error):
                connection.connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint:d}")
                connection.connection.execute(f"PRAGMA synchronous = {synchronous:d}")
        self._lock.close()
        if claim is not None and self._began is not None:
            took = time.monotonic() - self._began
            if took > claim.lease / 3:
                log.warning(
                    "a guarded view held the write lock of %s for %.1f s, and all other writers waited",
                    self._store.path,
                    took,
                )


def _nothing() -> None:
    """Instead of `BEGIN`."""


_ENDS = (
    "a guarded view was about to execute a statement before which MySQL commits, such as CREATE TABLE or "
    "LOCK TABLES: only the guard commits its transaction, together with the response. Change tables elsewhere"
)


class _WatchedOnMySQL:
    """What a transaction needs on MySQL besides: see `stores/sql/mysql/join.py`.

    A mark at its beginning, no statement that would commit, and an end after a deadlock.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection: Any = connection
        self._is_concluded = False
        self._lost = False
        self._execute(MARK)
        connection.execute_wrappers.append(self._around_statement)

    def _execute(self, sql: str) -> None:
        # Past Django's cursors, as all that is the store's own.
        with contextlib.closing(self._connection.connection.cursor()) as cursor:
            cursor.execute(sql)

    def _around_statement(
        self, execute: Callable[..., T], sql: str, params: object, many: bool, context: object
    ) -> T:
        if ends_transaction(sql):
            raise NotJoined(_ENDS)
        try:
            return execute(sql, params, many, context)
        except Exception as error:
            if rolls_back(error.__cause__ or error):
                self._lost = True
                self._connection.needs_rollback = True  # so that nothing is written in another transaction
            raise

    def check(self) -> None:
        if self._lost:
            raise CommitRefused(DEADLOCKED, passing=True)

    def concluding(self) -> None:
        self._is_concluded = True

    def end(self) -> None:
        connection = self._connection
        with contextlib.suppress(ValueError):  # it is gone
            connection.execute_wrappers.remove(self._around_statement)
        if self._is_concluded and connection.connection is not None:
            self._is_concluded = False
            with contextlib.suppress(Exception):  # it is lost, and with it what was set
                self._execute(RESTORE)
