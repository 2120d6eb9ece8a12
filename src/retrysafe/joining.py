"""Where a guarded call and the transaction that carries its effects meet.

The guard owns the transaction; sessions and connections join it.  A call whose effects are in the store's own
database has a `Junction`.  The first session or connection that asks there opens the transaction, the others
share it, and when the handler is done the driver commits or rolls back.  Which libraries can join is not
known here: `retrysafe.sqlalchemy`, `retrysafe.psycopg` and `retrysafe.sqlite3` bring a transaction each.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol, TypeVar, runtime_checkable

from retrysafe import attempt as attempts
from retrysafe.errors import NotJoined
from retrysafe.model import Claim, Final


@runtime_checkable
class Transaction(Protocol):
    """What a handler wrote, and the outcome that is committed with it.  Blocking."""

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


@runtime_checkable
class AsyncTransaction(Protocol):
    """The same, awaiting."""

    @property
    def begun(self) -> bool: ...
    async def commit_async(self, claim: Claim, final: Final) -> bool: ...
    async def roll_back_async(self, *, discard: bool = False) -> None: ...


T = TypeVar("T", bound=Transaction | AsyncTransaction)


class Junction:
    """Of one guarded call."""

    def __init__(self, store: object, *, awaited: bool) -> None:
        self.store = store
        self.awaited = awaited
        """Whether the call is driven by an event loop."""
        self._lock = Lock()
        self._transaction: Transaction | AsyncTransaction | None = None
        self._over = False
        self.tasks: dict[object, Any] = {}
        """How its transaction is being ended, where that is awaited."""

    def join(self, kind: type[T], begin: Callable[[], T]) -> T | None:
        """The call's transaction, made by `begin` if this is the first to ask.  `None`: the call is over."""
        with self._lock:
            if self._over:
                return None
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
        """The handler is done: from now on sessions are ordinary again.  Gives what is to be ended."""
        with self._lock:
            self._over = True
            transaction = self._transaction
        return transaction if transaction is not None and transaction.begun else None


def join(store: object, kind: type[T], begin: Callable[[], T], *, awaited: bool = False) -> T | None:
    """The transaction of the call that runs here, made by `begin` if this is the first to ask.

    `None` where there is none to join: no call is guarded, or its effects are elsewhere, or it is over.
    """
    attempt = attempts.running()
    if attempt is None or not isinstance(attempt.junction, Junction):
        return None
    found = attempt.junction
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
