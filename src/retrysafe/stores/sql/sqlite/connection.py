"""One connection of sqlite3: runs statements and transactions, and translates errors.

It opens when it is first used, and again after it was closed.  Every error of SQLite becomes a
`StoreUnavailable`; `suspect` then says whether the connection should be reopened.  It is used by one
thread at a time, which holds `in_use`, though not always by the same thread.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Literal, TypeVar

from retrysafe.errors import StoreError, StoreUnavailable, UnreadableRecord
from retrysafe.stores.queue import Batch, Call, Operation, Outcome, Row
from retrysafe.stores.retry import TookTooLong, Trouble
from retrysafe.stores.sql import statements
from retrysafe.stores.sql.sqlite import forking
from retrysafe.stores.sql.sqlite.clock import HostClock
from retrysafe.stores.sql.sqlite.file import LOOK_EVERY, DatabaseFile, Opened
from retrysafe.stores.sql.sqlite.filelock import PAUSE, FileLock

T = TypeVar("T")

Clock = Callable[[], float]
Role = Literal["writer", "renewer", "reader", "admin"]

PRAGMAS: Mapping[Role, Sequence[str]] = {
    # A thousand pages, SQLite's own default: a log of 4 MB stays in the page cache and is read back in
    # milliseconds after a crash, and a checkpoint's two flushes are shared by some hundred keys.  It happens
    # within the commit that crosses the mark, and so under the file lock.
    "writer": ("synchronous = FULL", "wal_autocheckpoint = 1000"),
    # Others write too little to checkpoint, and must not do it outside of the lock.
    "renewer": ("synchronous = FULL", "wal_autocheckpoint = 0"),
    "reader": ("query_only = ON", "wal_autocheckpoint = 0"),
    # A purge writes as much as a service does, perhaps while there is none, so it checkpoints as a writer
    # does.
    "admin": ("synchronous = FULL", "wal_autocheckpoint = 1000"),
}

_RETRY_PAUSE = 0.005

_UNHEX = (3, 41, 0)
"""The first SQLite that has this function itself."""

_CLOSING = 0.05
"""Seconds to wait for the lock before a connection is closed: ten times as long as a checkpoint takes."""

_STRIDE = 10_000
"""Of SQLite's instructions between two looks at the clock: a millisecond or less."""


class OutOfSpace(StoreUnavailable):
    """There is no space left on the disk."""


class Locked(Trouble):
    """Another process is writing, and went on for longer than could be waited."""

    passing = True


class RolledBack(Trouble):
    """SQLite has undone the whole transaction, as when there is no space or no memory left."""


class Connection:
    """A database file, for one purpose."""

    def __init__(
        self, path: str, role: Role, clock: Clock, patience: float, file: DatabaseFile | None = None
    ) -> None:
        self.path = path
        self.file = file or DatabaseFile(path)
        self.patience = patience
        self.suspect = False
        self.in_use = threading.Lock()
        self.role: Role = role
        self._clock = clock
        self._statements = statements.load("sqlite")
        self._sqlite: sqlite3.Connection | None = None
        self._lock: FileLock | None = None
        self._opened: Opened | None = None
        self._look_at = 0.0
        self._waits = patience
        forking.watch(self)

    @property
    def is_open(self) -> bool:
        return self._sqlite is not None

    @contextlib.contextmanager
    def session(self) -> Generator[None]:
        """The connection, open and for exclusive use."""
        with self.in_use:
            self._be_open()
            self._wait_for_locks(self.patience)
            yield

    @contextlib.contextmanager
    def transaction(self) -> Generator[None]:
        """A session in which everything is committed at the end, or nothing."""
        with self.in_use:
            self._be_open()
            try:
                self._begin(self.patience)
                try:
                    yield
                except BaseException:
                    self._undo()
                    raise
                self._commit()
            except Trouble as trouble:
                raise trouble.as_error() from trouble

    def run(self, batch: Batch, seconds: float) -> Sequence[Outcome]:
        """A batch in one transaction, after waiting for other writers for so many seconds at most.

        Calls that were withdrawn during the wait are left out.
        """
        with self.in_use:
            self._be_open()
            batch.postpone()
            self._begin(seconds)
            try:
                outcomes = self._outcomes(batch.begin())
            except BaseException:
                self._undo()
                raise
            self._commit()
            return outcomes

    def read(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        """A batch that only reads: it waits for no writer."""
        with self.session():
            return self._outcomes(calls)

    def _begin(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._try_begin():
            if time.monotonic() >= until:
                raise Locked(
                    f"{self.path} is locked by another process: timed out after {seconds:.3g} s; "
                    "nothing was done"
                )
            time.sleep(PAUSE)

    def _try_begin(self) -> bool:
        """Begin to write, unless another does.

        IMMEDIATE, because a transaction that only becomes a write later is refused if another connection
        wrote since.
        """
        assert self._sqlite is not None
        assert self._lock is not None, "a reader does not write"
        if not self._lock.try_acquire():
            return False
        try:
            # Before, because the log of a replaced file may be in use for the new one: what is written to
            # it would be read as a part of that one.
            self._verify()
            self._wait_for_locks(0.0)
            self._sqlite.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._lock.release()
            if not isinstance(error, sqlite3.Error):
                raise
            if _busy(error):
                return False
            raise self._trouble(error) from error
        return True

    def _outcomes(self, calls: Sequence[Call | None]) -> list[Outcome]:
        """The rows of each call, or an error that is its own; by one reading of the clock."""
        assert self._sqlite is not None
        is_writing = self._sqlite.in_transaction
        now = self._clock()
        clock = self._clock if isinstance(self._clock, HostClock) and is_writing else None
        if is_marking := clock is not None and clock.mark_is_due():
            calls = [*calls, ("raise_high_water", {})]
        outcomes: list[Outcome] = []
        for call in calls:
            try:
                if call is None:
                    raise StoreUnavailable("the caller has left; nothing was done")
                name, arguments = call
                arguments["now"] = now
                outcomes.append(self.execute(self._statements[name], arguments))
            except StoreError as error:
                if is_writing and not self._sqlite.in_transaction:
                    raise RolledBack(f"{error}; the whole transaction was rolled back") from error
                outcomes.append(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this caller's alone
                # By its name only: the message may quote what a client has sent.
                failed = StoreUnavailable(f"the operation failed with {type(error).__name__}")
                failed.__cause__ = error
                outcomes.append(failed)
        if is_marking:
            match outcomes.pop():
                case [(mark,)] if clock is not None:
                    clock.raise_to(mark)
                case _:
                    pass
        return outcomes

    def _commit(self) -> None:
        assert self._lock is not None
        try:
            self.execute("COMMIT")
        except BaseException as error:
            self._undo()
            if isinstance(error, OutOfSpace):  # what each of the batch needs may still be there
                raise RolledBack(f"{error}; nothing was done") from error
            raise
        try:
            # Here too: what was committed to a file that is gone by now was committed for nothing.
            # The connection stays open, so that the records of a deleted file are not lost with it.
            self._verify()
        finally:
            self._lock.release()

    def _undo(self) -> None:
        assert self._sqlite is not None
        assert self._lock is not None
        self.suspect = True
        try:
            with contextlib.suppress(sqlite3.Error):
                self._sqlite.rollback()
        finally:
            self._lock.release()

    def _wait_for_locks(self, seconds: float) -> None:
        """For how long SQLite waits by itself: not at all, where we do."""
        if seconds != self._waits:
            self._waits = seconds
            assert self._sqlite is not None
            self._sqlite.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    @contextlib.contextmanager
    def snapshot(self) -> Generator[None]:
        """A session in which all statements see the same moment, and no writer waits for it."""
        with self.session():
            self.execute("BEGIN")
            try:
                yield
            finally:
                if self._sqlite is not None and self._sqlite.in_transaction:  # else an error has ended it
                    self.execute("ROLLBACK")

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Generator[None]:
        """A session whose statements are broken off after so many seconds, with a `TookTooLong`."""
        with self.session():
            assert self._sqlite is not None
            until = time.monotonic() + seconds
            self._sqlite.set_progress_handler(lambda: time.monotonic() >= until, _STRIDE)
            try:
                yield
            finally:
                self._sqlite.set_progress_handler(None, _STRIDE)

    def perform(self, operation: Operation[T]) -> T:
        """Run an operation, by one reading of the clock."""
        now = self._clock()
        try:
            name, arguments = next(operation)
            while True:
                arguments["now"] = now
                name, arguments = operation.send(self.execute(self._statements[name], arguments))
        except StopIteration as answer:
            result: T = answer.value
            return result

    def perform_alone(self, operation: Operation[T]) -> T:
        """Run an operation in a session of its own."""
        with self.in_use:
            self._be_open()
            return self.perform(operation)

    def query(self, statement: str, /, **arguments: object) -> Sequence[Row]:
        """Run a statement by its name."""
        return self.execute(self._statements[statement], arguments)

    def execute(self, sql: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
        """Run a statement and fetch all its rows: one that is left half-read would pin its snapshot."""
        assert self._sqlite is not None, "used outside of a session"
        try:
            return self._sqlite.execute(sql, arguments or {}).fetchall()
        except sqlite3.Error as error:
            if "decode to UTF-8" in str(error):
                # Damage of one row, not of the file.  The message quotes it, so it goes no further.
                raise UnreadableRecord("a record has text that is not UTF-8; it is left unchanged") from None
            raise self._trouble(error) from error

    def close(self, patience: float = -1) -> None:
        """Close it after what is being done with it; not, if that takes longer than so many seconds."""
        if self.in_use.acquire(timeout=patience):
            try:
                self.shut()
            finally:
                self.in_use.release()

    def shut(self) -> None:
        """Close it, for a caller that has exclusive use of it; under the lock, because the last one
        checkpoints.

        If another connection has the lock, it is writing, and then this is not the last one; or it is being
        closed, too: of two that are closed at the same moment, neither would be the last.
        """
        if self._lock is not None:
            with contextlib.suppress(StoreUnavailable):
                self._lock.acquire(_CLOSING)
        if self._sqlite is not None:
            with contextlib.suppress(sqlite3.Error):
                self._sqlite.close()
        if self._lock is not None:
            self._lock.close()
        self._sqlite = self._lock = self._opened = None
        self.suspect = False

    def begin_with_file(self) -> None:
        """This is the file of the store: others are refused from now on."""
        assert self._opened is not None, "used before it was opened"
        self.file.begin_with(self._opened.database)

    def _be_open(self) -> None:
        if self._sqlite is None:
            self._open()
        elif time.monotonic() >= self._look_at:
            self._verify()

    def _verify(self) -> None:
        now = time.monotonic()
        due = self.file.lost is not None or now >= self._look_at
        self.file.verify(self._opened, log=due)
        if due:
            self._look_at = now + LOOK_EVERY

    def _open(self) -> None:
        forking.check(self.path)
        try:
            self._sqlite, database = self.file.connect(
                lambda uri: sqlite3.connect(
                    uri, uri=True, timeout=self.patience, isolation_level=None, check_same_thread=False
                ),
                create=self.role in ("writer", "renewer"),
            )
            self._waits = self.patience
            if self.role != "reader":
                self._lock = FileLock(self.path)
            if self.role == "admin":
                # An operator does not change how a file works; and sees what can be shown.
                self._sqlite.text_factory = _text_or_bytes
            else:
                self._use_wal(self._sqlite)
            if sqlite3.sqlite_version_info < _UNHEX:
                self._sqlite.create_function("unhex", 1, bytes.fromhex, deterministic=True)
            for pragma in PRAGMAS[self.role]:
                self._sqlite.execute(f"PRAGMA {pragma}")
            log = None
            if self.role != "admin":
                self._sqlite.execute("PRAGMA schema_version").fetchall()  # which opens the log
                log = self.file.log_identity()
            self._opened = Opened(database, log)
            self._look_at = time.monotonic() + LOOK_EVERY
        except BaseException as error:
            self.shut()
            if isinstance(error, sqlite3.Error | OSError):
                raise self._trouble(error) from error
            raise

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Turn the log on.  Processes that do so at the same moment are refused at once, so try again."""
        until = time.monotonic() + self.patience
        mode = None
        while mode is None:
            try:
                [(mode,)] = connection.execute("PRAGMA journal_mode = WAL").fetchall()
            except sqlite3.OperationalError as error:
                if not _busy(error) or time.monotonic() >= until:
                    raise
                time.sleep(_RETRY_PAUSE)
        if mode != "wal":
            raise StoreUnavailable(
                f"{self.path} cannot have a write-ahead log (journal_mode is {mode!r}): "
                "put it on a local disk, in a directory that can be written to"
            )

    def _trouble(self, error: sqlite3.Error | OSError) -> StoreUnavailable:
        if _busy(error):
            return StoreUnavailable(
                f"{self.path} is locked by another process: timed out after {self.patience:g} s; "
                "nothing was done"
            )
        if _code(error) == sqlite3.SQLITE_INTERRUPT:
            return TookTooLong(f"{self.path}: the statement took too long and was cancelled")
        self.suspect = True
        kind = OutOfSpace if _code(error) == sqlite3.SQLITE_FULL else StoreUnavailable
        return kind(f"{self.path}: {error}")


def _text_or_bytes(value: bytes) -> str | bytes:
    """Text that is not UTF-8 stays bytes: the row is refused for it, and the others of the list are not."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _busy(error: Exception) -> bool:
    return _code(error) == sqlite3.SQLITE_BUSY


def _code(error: Exception) -> int:
    # The low byte is the kind of error, the rest a detail of it.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
