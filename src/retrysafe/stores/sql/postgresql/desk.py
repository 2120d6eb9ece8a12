"""The operator's session: transactions and their bounds, on whatever connection is given.

Nothing here waits for ever.  Inside of each transaction the server is told how long a statement may take and
how long it may wait for somebody else's lock; these settings end with the transaction, so they work behind a
pooler too.  And whoever gives the session cuts it when the server says nothing at all.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.operations import Operation, Row

T = TypeVar("T")

WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Said in full: a server may have other defaults, and a change that waited for a row must then see it as it
is."""

SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""All statements see the same moment, nobody waits for it, and a replica gives it too."""

WALK: Final = 60.0
"""Seconds for one walk through the table.  That is some ten million records.  An operator waits no longer,
and a vacuum should not either: it cannot clean up behind an older snapshot."""

_GRACE = 1.0
"""Seconds by which a server that has something to say is quicker than the cut."""


class TookTooLong(StoreUnavailable):
    """A statement was broken off by the server: it had all the time that it was given."""


class Session(Protocol):
    """One connection, on which every statement commits by itself unless a BEGIN came before it."""

    @property
    def process(self) -> int | None:
        """The server's process, as the connection was told when it began; `None` where the driver keeps no
        note of it."""
        ...

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        """Run a statement of ours by its name, and give all rows.

        What goes wrong is a `StoreError`.  After `within` seconds without an answer the connection is cut.
        """
        ...

    def command(self, sql: str, within: float) -> None:
        """Run SQL that has neither arguments nor rows."""
        ...

    def close(self) -> None: ...


class Transaction:
    """What runs in it is committed together, or not at all."""

    def __init__(self, session: Session, seconds: float, patience: float) -> None:
        self._session = session
        self._seconds = seconds
        self._patience = patience

    def query(self, name: str, arguments: Mapping[str, object] | None = None) -> Sequence[Row]:
        """Run a statement by its name."""
        told = {"patience": self._patience, **(arguments or {})}
        return self._session.query(name, told, self._seconds + _GRACE)

    def command(self, sql: str) -> None:
        self._session.command(sql, self._seconds + _GRACE)

    def perform(self, operation: Operation[T]) -> T:
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(self.query(name, arguments))
        except StopIteration as answer:
            result: T = answer.value
            return result


class Desk:
    """Opens its session when it is first used, and again after trouble."""

    def __init__(self, connect: Callable[[], Session], deadline: float) -> None:
        self.deadline = deadline
        self._connect = connect
        self._session: Session | None = None
        self._in_use = threading.Lock()

    @contextlib.contextmanager
    def transaction(self, begin: str, seconds: float) -> Generator[Transaction]:
        """Each statement in it has so many seconds, and waits for a lock no longer than the deadline."""
        with self._in_use:
            if self._session is None:
                self._session = self._connect()
            transaction = Transaction(self._session, seconds, self.deadline)
            try:
                transaction.command(begin)
                transaction.query("bounds", {"seconds": seconds})
                yield transaction
                transaction.command("COMMIT")
            except BaseException:
                # Closed and not rolled back: on a connection in trouble a ROLLBACK might be the next thing to
                # wait for.  The server undoes what a session leaves unfinished.
                self._shut()
                raise

    def close(self) -> None:
        with self._in_use:
            self._shut()

    def _shut(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
