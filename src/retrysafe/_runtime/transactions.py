"""The transaction of a guarded call whose effects are in the store's own database.

The guard owns the transaction; sessions and connections join it.  Each such call has a `CallTransaction`.
The first session or connection that joins begins the transaction, the others share it, and when the handler
is done the driver commits or rolls back.  Which libraries can join is not known here: `retrysafe.sqlalchemy`,
`retrysafe.psycopg` and `retrysafe.sqlite3` each implement `Transaction` or `AsyncTransaction`.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, Protocol, TypeGuard, TypeVar

from retrysafe._core import attempt as attempts
from retrysafe._core.model import Claim, Final, Found, Unsettled
from retrysafe._runtime.watchdog import ending_within
from retrysafe.errors import CommitRefused, NotJoined, StoreError
from retrysafe.events import log

GRACE = 2.0
"""Seconds for the end of a transaction, beyond the lease, for which its completion may wait for a lock: as
many as a store has for an operation."""

_CONCURRENT = (
    "two sessions or connections of one guarded call were used for the first time at the same moment: they "
    "share one connection. Use one after the other, or use one session for both"
)
_ENDED = (
    "the guarded call that this code belongs to has ended without it, or was cancelled: what it writes now "
    "could not be committed with the response. Wait for threads and tasks before the handler returns; for "
    "what is to be written afterwards, use a session or a connection that is not a guard's"
)
_ON_EVENT_LOOP = (
    "a blocking session or connection to SQLite was used inside `async def`, on the event loop's thread: "
    "while it waits for SQLite's one write lock, the loop cannot commit the call that holds it. Make the "
    "handler a plain `def`, which frameworks run in a thread; or use async_sessionmaker(guard) with "
    "sqlite+aiosqlite; or call the blocking code with asyncio.to_thread"
)


def log_not_called_back(part: attempts.Attempt, trouble: StoreError) -> None:
    log.error(
        "what the operation %s left to be called after the commit is not called: it could not be checked "
        "whether its record was committed, or rolled back alone",
        part.claim.action,
        exc_info=trouble,
    )


def is_of(found: Found | None, part: attempts.Attempt) -> bool:
    """Whether the record that was found is that of a part: not where it was rolled back alone."""
    return found is not None and found.record.token == part.claim.token


Previous = tuple[bytes, Unsettled]
"""The token and the state of an attempt that another one replaces."""


class BeginLock:
    """Lets the transaction of a call begin once, and not after the call has ended.

    Connecting takes a while, and meanwhile a handler may be cancelled, or use a session in another thread or
    task.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._beginning = False
        self._ended = False

    @contextmanager
    def beginning(self) -> Generator[None]:
        with self._lock:
            if self._ended:
                raise NotJoined(_ENDED)
            if self._beginning:
                raise NotJoined(_CONCURRENT)
            self._beginning = True
        try:
            yield
        finally:
            self._beginning = False

    def begun(self, assign: Callable[[], None]) -> None:
        """Have the begun transaction assigned; raises instead if the call has ended meanwhile."""
        with self._lock:
            if self._ended:
                raise NotJoined(_ENDED)
            assign()

    def end(self) -> None:
        with self._lock:
            self._ended = True


class Blocks:
    """The open blocks of one call.  They share one connection: the one that began last has to end first."""

    def __init__(self) -> None:
        self._open: list[object] = []
        self.in_order = True

    @contextmanager
    def one(self) -> Generator[None]:
        block = object()
        self._open.append(block)
        try:
            yield
        finally:
            if self._open[-1] is not block:
                self.in_order = False
            self._open.remove(block)

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def check(self) -> None:
        """A block that is half done, or was undone together with another, must not be half committed."""
        if self._open:
            raise CommitRefused(
                "a block of a guarded call's connection was still open when the call ended: leave every "
                "block before the handler returns"
            )
        if not self.in_order:
            raise CommitRefused(
                "blocks of a guarded call's connection overlapped, in several threads or tasks: they share "
                "one connection. Use one after the other, or one inside the other"
            )


class Transaction(Protocol):
    """What a handler wrote, and the outcome that is committed with it.  Blocking."""

    @property
    def begin_lock(self) -> BeginLock: ...

    @property
    def begun(self) -> bool:
        """Whether it has a connection, and there is something to commit or roll back."""
        ...

    def commit(self, claim: Claim, final: Final) -> bool:
        """Store the outcome and commit.  False: another attempt has the key, everything was rolled back.

        `CommitRefused`: the database refused, everything was rolled back.  `StoreUnavailable`: it is not
        known whether it committed.
        """
        ...

    def roll_back(self, *, discard: bool = False) -> None:
        """Undo everything and release the connection.  Raises nothing; a second time it does nothing.

        `discard`: the handler was cancelled and may still be using the connection, so it must not be used
        for anything else.
        """
        ...

    def fileno(self) -> int | None:
        """The socket to the server, so that a wait for it can be cut.

        `None`: there is none, as with SQLite, whose busy timeout bounds every wait.
        """
        ...

    @property
    def locks_database(self) -> bool:
        """Whether no other connection can write as long as it lasts."""
        ...

    def look(self, id: bytes) -> Found | None:
        """The record of a key, as this transaction sees it."""
        ...

    def store_within(self, claim: Claim, final: Final, previous: Previous | None) -> bool:
        """Store a record that is a part of it.  False: the key is taken.  Raises a `StoreError`."""
        ...


class AsyncTransaction(Protocol):
    """The same, awaiting."""

    @property
    def begin_lock(self) -> BeginLock: ...
    @property
    def begun(self) -> bool: ...
    @property
    def locks_database(self) -> bool: ...
    async def commit_async(self, claim: Claim, final: Final) -> bool: ...
    async def roll_back_async(self, *, discard: bool = False) -> None: ...
    async def look_async(self, id: bytes) -> Found | None: ...
    async def store_within_async(self, claim: Claim, final: Final, previous: Previous | None) -> bool: ...


def blocks(transaction: Transaction | AsyncTransaction) -> TypeGuard[Transaction]:
    """By the name of a method: `isinstance` would look at every member, which takes eleven microseconds."""
    return hasattr(transaction, "commit")


def awaits(transaction: Transaction | AsyncTransaction) -> TypeGuard[AsyncTransaction]:
    return hasattr(transaction, "commit_async")


def blocking(call: "CallTransaction") -> Transaction | None:
    """The begun transaction of a call, for blocking code; refuses one that has to be awaited."""
    transaction = call.begun
    if transaction is None:
        return None
    # First: SQLAlchemy's asynchronous one has the methods of the blocking one too, to run them in greenlets.
    if awaits(transaction):
        raise NotJoined(
            "a blocking operation was called inside a guarded call whose session is asynchronous, and cannot "
            "be a part of its transaction: make the operation an `async def`"
        )
    assert blocks(transaction)
    return transaction


def commit_in_time(transaction: Transaction, claim: Claim, final: Final) -> bool:
    """`transaction.commit`, which raises `StoreUnavailable` where the server stays silent."""
    with ending_within(claim.lease + GRACE, transaction.fileno()):
        return transaction.commit(claim, final)


def roll_back_in_time(transaction: Transaction, *, discard: bool) -> None:
    """`transaction.roll_back`, which drops the connection where the server stays silent."""
    with ending_within(GRACE, transaction.fileno()):
        transaction.roll_back(discard=discard)


T = TypeVar("T", bound=Transaction | AsyncTransaction)


class CallTransaction:
    """What the sessions and connections of one guarded call join."""

    def __init__(self, store: object, *, awaited: bool) -> None:
        self.store = store
        self.awaited = awaited
        """Whether the call is driven by an event loop."""
        self._lock = Lock()
        self._transaction: Transaction | AsyncTransaction | None = None
        self._state: Literal["open", "ending", "committed"] = "open"
        self.tasks: dict[object, Any] = {}
        """The futures of its commit and its rollback, where those are awaited."""
        self.refusal: CommitRefused | None = None
        """Why nothing of it may be committed: an operation that is a part of it has failed."""
        self._parts: dict[bytes, str] = {}
        """The actions of operations that are running as parts of it, by token."""

    def join(self, kind: type[T], begin: Callable[[], T]) -> T | None:
        """The call's transaction, made by `begin` for the first that joins.  `None`: it is committed."""
        with self._lock:
            if self._state == "committed":
                return None
            if self._state == "ending":
                # Undone, or about to be: an ordinary session would commit a part of what was undone.
                raise NotJoined(_ENDED)
            if self._transaction is None:
                self._transaction = begin()
            if not isinstance(self._transaction, kind):
                raise NotJoined(
                    f"this call's transaction is a {type(self._transaction).__name__}, and a {kind.__name__} "
                    "cannot join it: use one library for everything that one call writes"
                )
            return self._transaction

    @property
    def joined(self) -> bool:
        """Whether any session or connection has joined."""
        return self._transaction is not None

    @property
    def is_open(self) -> bool:
        """Whether its handler is still running, so that more can become a part of it."""
        return self._state == "open"

    @property
    def begun(self) -> Transaction | AsyncTransaction | None:
        """What has joined, if it has a connection."""
        transaction = self._transaction
        return transaction if transaction is not None and transaction.begun else None

    def spoil(self, reason: str, *, passing: bool) -> None:
        """Have nothing of it committed, whatever the handler makes of the error."""
        if self.refusal is None:
            self.refusal = CommitRefused(f"nothing of this call was committed: {reason}", passing=passing)

    def begin_part(self, claim: Claim) -> None:
        """An operation runs as a part of it: until its record is stored, nothing may be committed."""
        with self._lock:
            self._check_open()
            self._parts[claim.token] = claim.action

    def end_part(self, claim: Claim) -> None:
        """Its record is stored, or nothing of all this will be committed."""
        self._parts.pop(claim.token, None)

    def check_open(self) -> None:
        """Raise `NotJoined` where a record would be stored of an operation whose transaction is over."""
        with self._lock:
            self._check_open()

    def _check_open(self) -> None:
        if self._state != "open":
            raise NotJoined(_ENDED)

    def close(self) -> Transaction | AsyncTransaction | None:
        """The handler is done, or cancelled: no session may join any more.  Gives what is to be ended."""
        with self._lock:
            self._state = "ending"
            transaction = self._transaction
            for action in self._parts.values():
                # It was not waited for; committed now, what it wrote would have no record.
                self.spoil(f"the operation {action}, a part of it, was still running", passing=False)
        if transaction is None:
            return None
        transaction.begin_lock.end()
        return transaction if transaction.begun else None

    def committed(self) -> None:
        """From now on sessions are ordinary again."""
        self._state = "committed"


_BEGIN: dict[type, Callable[[CallTransaction, attempts.Attempt], None]] = {}
"""By the type of a store: what has the transaction of a call begin."""


def begin_with_calls(store: type, begin: Callable[[CallTransaction, attempts.Attempt], None]) -> None:
    """Have the transaction of each call begin before its function, in which nothing will ask to join.

    For libraries whose connection is everywhere, such as Django's.  What they write is then in it, without a
    word of ours.
    """
    _BEGIN[store] = begin


def begins_with_calls(store: object) -> bool:
    """Whether it does, so that a call must be blocking."""
    return type(store) in _BEGIN


def begin_with_call(call: CallTransaction, attempt: attempts.Attempt) -> None:
    """Begin the transaction of a call where it does not wait for a session.  `NotDone`: it could not."""
    begin = _BEGIN.get(type(call.store))
    if begin is not None:
        begin(call, attempt)


MUST_BLOCK = (
    'effects="database" in a call that is awaited, with records in a database of Django\'s: its connections '
    "and transactions are for blocking code. Make it a plain `def`, and call it in a thread, or give it "
    "other effects"
)


def join(store: object, kind: type[T], begin: Callable[[], T], *, awaited: bool = False) -> T | None:
    """The transaction of the call that runs here, made by `begin` for the first that joins.

    `None` where there is none to join: no call is guarded, or its effects are elsewhere, or it is committed.
    """
    attempt = attempts.running()
    if attempt is None or not isinstance(attempt.transaction, CallTransaction):
        return None
    found = attempt.transaction
    if found.store is not store:
        raise NotJoined(
            "this session or connection is of another guard than the one that protects the call: what it "
            "writes could not be committed with the response. Use one of the call's own guard; for what need "
            "not be committed together, use a session or a connection that is not a guard's"
        )
    if awaited and not found.awaited:
        raise NotJoined(
            "an asynchronous session was used in a call that is driven without an event loop, as under WSGI, "
            "and cannot join it: use a blocking session"
        )
    return found.join(kind, begin)


def refuse_write_beside(store: object) -> None:
    """Raise `NotJoined` where an ordinary connection would write in a call whose transaction it is not in."""
    attempt = attempts.running()
    call = None if attempt is None else attempt.transaction
    if isinstance(call, CallTransaction) and call.store is store and call.is_open:
        raise NotJoined(
            "a connection of the guard's that was opened before the guarded call was about to write in it: "
            "what it writes would not be committed with the record. Open it in the function"
        )


def refuse_event_loop() -> None:
    """Raise `NotJoined` on the thread of the event loop that drives the running call.

    For blocking transactions that begin by waiting for a lock.  A view that WSGI runs in a loop of its own is
    not refused: its thread commits it, and stalls no other call.
    """
    asyncio = sys.modules.get("asyncio")  # importing it takes longer than all of this library
    attempt = attempts.running()
    call = None if attempt is None else attempt.transaction
    if asyncio is None or not isinstance(call, CallTransaction) or not call.awaited:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise NotJoined(_ON_EVENT_LOOP)
