"""sqlite3, with what a guarded call writes and its response committed together.

    with connection(guard) as db:
        db.execute("INSERT INTO orders (item) VALUES (?)", [item])

Where one would open a connection to the database that the guard's store is in.  Inside a guarded call with
`effects="database"` it joins the call's transaction: leaving the block, or `commit()`, is provisional, and
becomes real with the response.  Anywhere else the block is a transaction of its own.

SQLite has one writer at a time, so from the first `connection(guard)` of a call to its response all other
writers wait: do slow things, such as calling another service, before it.  For the same reason it is refused
inside an `async def` handler, where the wait would stop the event loop: use a plain `def`, or
`asyncio.to_thread`.
"""

import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Literal, TypeVar

from retrysafe._core.attempt import connected
from retrysafe._core.model import Claim, Final, Found
from retrysafe._runtime.transactions import BeginLock, Previous, join, refuse_event_loop, refuse_write_beside
from retrysafe.errors import CommitRefused, ConfigurationError, NotDone, NotJoined, StoreUnavailable
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.stores.sql.sqlite.file import FileReplaced
from retrysafe.stores.sql.sqlite.filelock import WriteLock, may_write

__all__ = ["connection"]

T = TypeVar("T")

Setup = Callable[[sqlite3.Connection], object]

_SAVEPOINT = "retrysafe_joined"

WRITERS = 4
"""Calls that may run at once, where each blocks a thread while it waits for SQLite's one write lock: fewer
than any event loop has threads, and enough that those that do not write yet run side by side."""

_ENDED_BY_HANDLER = (
    "a handler tried to execute BEGIN, COMMIT or ROLLBACK inside a guarded call: only the guard commits the "
    "transaction, together with the response. Leave the block, or call commit() or rollback(), which are "
    "provisional"
)


@contextmanager
def connection(guard: Guard, *, setup: Setup | None = None) -> Generator[sqlite3.Connection]:
    """A connection to the database of the guard's store, for as long as the block lasts.

    `setup` is called with each new connection before its transaction begins: for pragmas such as
    `foreign_keys`, a row factory, functions.
    """
    store = guard.store
    if not isinstance(store, SQLiteStore):
        raise ConfigurationError(
            f"retrysafe.sqlite3 needs a guard whose store is an SQLite file, and this one's is {store!r}"
        )
    guard.runtime.at_most(WRITERS)
    joined = join(store, SQLiteTransaction, lambda: SQLiteTransaction(store, setup))
    if joined is None:
        with closing(_open(store, OrdinaryConnection, setup)) as ordinary:
            ordinary.store = store
            ordinary.write_lock = WriteLock(store.path, store.deadline)
            with ordinary, connected(store):
                yield ordinary
    else:
        with joined.opened() as db:
            yield db


class SQLiteTransaction:
    """The transaction of one guarded call."""

    def __init__(self, store: SQLiteStore, setup: Setup | None) -> None:
        self._store = store
        self._setup = setup
        self.begin_lock = BeginLock()
        self._lock = store.file_lock()
        self._db: JoinedConnection | None = None
        self._began = 0.0

    @property
    def begun(self) -> bool:
        return self._db is not None

    def opened(self) -> "JoinedConnection":
        if self._db is None:
            with self.begin_lock.beginning():
                db = self._begin()
                try:
                    self.begin_lock.begun(lambda: self._assign(db))
                except BaseException:
                    db.really_close()
                    self._lock.close()
                    raise
            return db
        return self._db

    def _assign(self, db: "JoinedConnection") -> None:
        self._db = db

    def _begin(self) -> "JoinedConnection":
        refuse_event_loop()
        try:
            db = _open(self._store, JoinedConnection, self._setup)
        except FileReplaced as error:
            self._lock.close()
            raise _not_begun(error) from error
        try:
            # As every writer of the store does.  IMMEDIATE: a transaction that reads first and then writes
            # is refused if another connection wrote in between, and our own reservation did.
            self._lock.acquire(self._store.deadline)
            db.begin()
            self._store.verify_file()
        except (sqlite3.OperationalError, StoreUnavailable) as error:
            db.really_close()
            self._lock.close()
            raise _not_begun(error) from error
        self._began = time.monotonic()
        return db

    def commit(self, claim: Claim, final: Final) -> bool:
        db = self._db
        assert db is not None
        took = time.monotonic() - self._began
        if took > claim.lease / 3:
            log.warning(
                "a guarded call held the write lock of %s for %.1f s, and all other writers waited",
                self._store.path,
                took,
            )
        try:
            if claim.door == "operation" and db.is_open:
                raise CommitRefused(
                    "a connection of an operation was open when its function returned, and its uncommitted "
                    "changes are undone: leave its block in the function"
                )
            db.undo_uncommitted()
            stored = self._store.joint.perform(operations.conclude(claim, final), db.fetch)
            if stored:
                self._store.verify_file()
                db.really_commit()
        except FileReplaced as error:
            raise CommitRefused(str(error), passing=True) from error
        except sqlite3.Error as error:
            raise self._store.joint.not_committed(error) from error
        finally:
            self.roll_back()
        return stored

    locks_database = True
    """SQLite has one writer at a time."""

    def look(self, id: bytes) -> Found | None:
        return self._perform(operations.look(id))

    def store_within(self, claim: Claim, final: Final, previous: Previous | None) -> bool:
        return self._perform(operations.store_within(claim, final, previous))

    def _perform(self, operation: Operation[T]) -> T:
        assert self._db is not None
        try:
            return self._store.joint.perform(operation, self._db.fetch)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"SQLite could not read or store a record: {error}") from error

    def roll_back(self, *, discard: bool = False) -> None:  # noqa: ARG002 - the connection is always closed
        if self._db is not None:
            self._db.really_close()  # which undoes what was not committed
        self._lock.close()

    def fileno(self) -> None:
        return None


def _not_begun(error: Exception) -> NotDone:
    """For a client, which need not know more; the cause is logged."""
    gone = isinstance(error, FileReplaced)
    return NotDone("the database is not available" if gone else "the database is busy")


class OrdinaryConnection(sqlite3.Connection):
    """A connection outside of guarded calls, which locks out the store's checkpoints while it writes.

    See `filelock.py`.  It may checkpoint itself, for it commits under the lock.
    """

    store: SQLiteStore | None = None
    write_lock: WriteLock | None = None

    def lock_for(self, sql: str) -> None:
        if self.write_lock is not None:
            if may_write(sql):
                refuse_write_beside(self.store)
            try:
                self.write_lock.acquire_for(sql)
            except StoreUnavailable as error:
                raise sqlite3.OperationalError(f"database is locked: {error}") from error

    def unlock(self) -> None:
        if self.write_lock is not None and not self.in_transaction:
            self.write_lock.release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        try:
            return super().__exit__(kind, error, trace)
        finally:
            self.unlock()

    def commit(self) -> None:
        super().commit()
        self.unlock()

    def rollback(self) -> None:
        super().rollback()
        self.unlock()

    def close(self) -> None:
        super().close()
        if self.write_lock is not None:
            self.write_lock.release()

    def cursor(self, factory: Any = None) -> Any:  # noqa: ANN401 - as sqlite3 has it
        return super().cursor(OrdinaryCursor if factory is None else factory)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - as sqlite3 has it
        cursor: sqlite3.Cursor = self.cursor().execute(sql, parameters)
        return cursor

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:  # noqa: ANN401 - as sqlite3 has it
        cursor: sqlite3.Cursor = self.cursor().executemany(sql, parameters)
        return cursor

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self.cursor().executescript(sql_script)
        return cursor


class OrdinaryCursor(sqlite3.Cursor):
    """Its statements take the lock first if they may write."""

    def execute(self, sql: str, parameters: Any = (), /) -> "OrdinaryCursor":  # noqa: ANN401 - as sqlite3 has it
        with self._locked(sql):
            return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> "OrdinaryCursor":  # noqa: ANN401 - as sqlite3 has it
        with self._locked(sql):
            return super().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> "OrdinaryCursor":
        with self._locked("a script"):
            super().executescript(sql_script)
        return self

    @contextmanager
    def _locked(self, sql: str) -> Generator[None]:
        db = self.connection
        assert isinstance(db, OrdinaryConnection)
        db.lock_for(sql)
        try:
            yield
        finally:
            db.unlock()  # of what was committed at once


class JoinedConnection(sqlite3.Connection):
    """A connection whose transaction the guard commits: its own `commit` is provisional."""

    _depth = 0

    def begin(self) -> None:
        super().execute("BEGIN IMMEDIATE")
        self.set_authorizer(_deny_transactions)

    # --- what the handler may do

    def __enter__(self) -> "JoinedConnection":
        self._depth += 1
        super().execute(f"SAVEPOINT {_SAVEPOINT}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is not None:
            self.rollback()
        super().execute(f"RELEASE {_SAVEPOINT}")
        self._depth -= 1
        return False

    def commit(self) -> None:
        """Provisionally: what comes now can be rolled back without what came before."""
        super().execute(f"RELEASE {_SAVEPOINT}")
        super().execute(f"SAVEPOINT {_SAVEPOINT}")

    def rollback(self) -> None:
        super().execute(f"ROLLBACK TO {_SAVEPOINT}")

    def close(self) -> None:
        """Nothing: it is closed with the call's transaction."""

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        with _explained():
            return super().execute(sql, parameters)  # type: ignore[arg-type]  # as sqlite3 has it

    def executemany(self, sql: str, parameters: Iterable[object], /) -> sqlite3.Cursor:
        with _explained():
            return super().executemany(sql, parameters)  # type: ignore[arg-type]  # as sqlite3 has it

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        """Statement by statement: sqlite3's own commits first."""
        cursor = self.cursor()
        for statement in _statements(sql_script):
            with _explained():
                cursor.execute(statement)
        return cursor

    # --- what its transaction does

    @property
    def is_open(self) -> bool:
        """Whether a block of the handler's was not left."""
        return self._depth > 0

    def undo_uncommitted(self) -> None:
        while self._depth:
            log.warning(
                "a connection was open when its guarded call ended: its uncommitted changes are undone"
            )
            self.__exit__(RuntimeError, None, None)

    def fetch(self, sql: str, arguments: Arguments) -> list[Row]:
        rows: list[Row] = super().execute(sql, arguments).fetchall()
        return rows

    def really_commit(self) -> None:
        self.set_authorizer(None)
        super().execute("COMMIT")

    def really_close(self) -> None:
        super().close()


C = TypeVar("C", bound=sqlite3.Connection)


def _open(store: SQLiteStore, kind: type[C], setup: Setup | None) -> C:
    joined = kind is JoinedConnection
    db = store.connect(
        lambda uri: sqlite3.connect(
            uri,
            uri=True,
            timeout=store.deadline,
            isolation_level=None if joined else "DEFERRED",
            # A handler may run in one thread and be committed in another; never in both at once.
            check_same_thread=False,
            factory=kind,
        )
    )
    try:
        if setup is not None:
            setup(db)
        # After the application's own: a response is sent after its commit has reached the disk, and does not
        # wait for a checkpoint, which the store's writer makes.
        db.execute("PRAGMA synchronous = FULL")
        if joined:
            db.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        (db.really_close if isinstance(db, JoinedConnection) else db.close)()
        raise
    return db


def _deny_transactions(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


@contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if str(error) == "not authorized":
            raise NotJoined(_ENDED_BY_HANDLER) from error
        raise


def _statements(script: str) -> Iterator[str]:
    """A script's statements, one by one."""
    pending = ""
    for piece in script.split(";"):
        pending += piece + ";"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip("; \t\r\n"):
        yield pending
