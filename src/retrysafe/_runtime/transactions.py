"""Where a guarded call and the transaction that carries its effects meet.

The guard owns the transaction; sessions and connections join it.  A call whose effects are in the store's own
database has a `CallTransaction`.  The first session or connection that joins opens the transaction, the
others share it, and when the handler is done the driver commits or rolls back.  Which libraries can join is
not known here: `retrysafe.sqlalchemy`, `retrysafe.psycopg` and `retrysafe.sqlite3` bring a transaction each.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, Protocol, TypeGuard, TypeVar

from retrysafe._core import attempt as attempts
from retrysafe._core.model import Claim, Final
from retrysafe.errors import NotJoined

_AT_ONCE = (
    "two sessions or connections of one guarded call were used for the first time at the same moment: they "
    "share one connection, and have to take turns"
)
_OVER = (
    "the guarded call that this code belongs to has ended without it, or was cut off: what it writes now "
    "could not be committed with the answer. Wait for threads and tasks before the handler returns; for what "
    "is to be written afterwards, use a session or a connection that is not a guard's"
)


class Opening:
    """How the connection that all of one call share is opened: once, and not after the call's end.

    It takes a while to open one, and meanwhile a handler may be cut off, or ask in another thread or task.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._busy = False
        self._over = False

    @contextmanager
    def once(self) -> Generator[None]:
        with self._lock:
            if self._over:
                raise NotJoined(_OVER)
            if self._busy:
                raise NotJoined(_AT_ONCE)
            self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def keep(self, keep: Callable[[], None]) -> None:
        """Make what was opened the call's.  Raises, and does not, if the call is over by now."""
        with self._lock:
            if self._over:
                raise NotJoined(_OVER)
            keep()

    def end(self) -> None:
        with self._lock:
            self._over = True


class Transaction(Protocol):
    """What a handler wrote, and the outcome that is committed with it.  Blocking."""

    @property
    def opening(self) -> Opening: ...

    @property
    def begun(self) -> bool:
        """Whether anything was ever done with it."""
        ...

    def commit(self, claim: Claim, final: Final) -> bool:
        """Keep the outcome and commit.  False: the key is somebody else's, everything was rolled back.

        `CommitRefused`: the database would not, everything was rolled back.  `StoreUnavailable`: it is not
        known.
        """
        ...

    def roll_back(self, *, discard: bool = False) -> None:
        """Undo everything and let go of the connection.  Raises nothing; again: does nothing.

        `discard`: the handler was cut off and may still be using the connection, so nobody else must.
        """
        ...


class AsyncTransaction(Protocol):
    """The same, awaiting."""

    @property
    def opening(self) -> Opening: ...
    @property
    def begun(self) -> bool: ...
    async def commit_async(self, claim: Claim, final: Final) -> bool: ...
    async def roll_back_async(self, *, discard: bool = False) -> None: ...


def blocks(transaction: Transaction | AsyncTransaction) -> TypeGuard[Transaction]:
    """Asked by the name of a method: `isinstance` would go through every member, for eleven microseconds."""
    return hasattr(transaction, "commit")


def awaits(transaction: Transaction | AsyncTransaction) -> TypeGuard[AsyncTransaction]:
    return hasattr(transaction, "commit_async")


T = TypeVar("T", bound=Transaction | AsyncTransaction)


class CallTransaction:
    """Of one guarded call."""

    def __init__(self, store: object, *, awaited: bool) -> None:
        self.store = store
        self.awaited = awaited
        """Whether the call is driven by an event loop."""
        self._lock = Lock()
        self._transaction: Transaction | AsyncTransaction | None = None
        self._state: Literal["open", "ending", "committed"] = "open"
        self.tasks: dict[object, Any] = {}
        """How its transaction is being ended, where that is awaited."""

    def join(self, kind: type[T], begin: Callable[[], T]) -> T | None:
        """The call's transaction, made by `begin` if this is the first to ask.  `None`: it is committed."""
        with self._lock:
            if self._state == "committed":
                return None
            if self._state == "ending":
                # Undone, or about to be: an ordinary session would keep a part of what was undone.
                raise NotJoined(_OVER)
            if self._transaction is None:
                self._transaction = begin()
            if not isinstance(self._transaction, kind):
                raise NotJoined(
                    f"this call's transaction is a {type(self._transaction).__name__} and cannot be a "
                    f"{kind.__name__} as well: use one library for all that one call writes"
                )
            return self._transaction

    @property
    def joined(self) -> bool:
        """Whether anybody ever asked."""
        return self._transaction is not None

    def close(self) -> Transaction | AsyncTransaction | None:
        """The handler is done, or cut off: nobody may join any more.  Gives what is to be ended."""
        with self._lock:
            self._state = "ending"
            transaction = self._transaction
        if transaction is None:
            return None
        transaction.opening.end()
        return transaction if transaction.begun else None

    def committed(self) -> None:
        """From now on sessions are ordinary again."""
        self._state = "committed"


def join(store: object, kind: type[T], begin: Callable[[], T], *, awaited: bool = False) -> T | None:
    """The transaction of the call that runs here, made by `begin` if this is the first to ask.

    `None` where there is none to join: no call is guarded, or its effects are elsewhere, or it is committed.
    """
    attempt = attempts.running()
    if attempt is None or not isinstance(attempt.transaction, CallTransaction):
        return None
    found = attempt.transaction
    if found.store is not store:
        raise NotJoined(
            "this call is protected by another guard, whose transaction is in another database: what is "
            "written here could not be committed with its answer. For what need not be, use a session or a "
            "connection that is not a guard's"
        )
    if awaited and not found.awaited:
        raise NotJoined(
            "an asynchronous session cannot join a call that is driven without an event loop: use the "
            "blocking one under WSGI"
        )
    return found.join(kind, begin)
