"""One blocking connection of its own: for the lease keeper, for operators, for whoever runs several statements
in one transaction.

It is opened when it is first used, and again after trouble.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import TypeVar

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.operations import Operation, Row
from retrysafe.stores.sql.postgresql import opening
from retrysafe.stores.sql.postgresql.connecting import Source
from retrysafe.stores.sql.postgresql.session import Session
from retrysafe.stores.sql.postgresql.trouble import Trials, Trouble
from retrysafe.stores.sql.postgresql.waiting import wait

T = TypeVar("T")


class Executor:
    """Runs operations one after the other; to be used by one thread at a time.

    `deadline` is for each operation, or for each statement inside a `transaction`.  Every error leaves as one
    of the store's.
    """

    def __init__(
        self, source: Source, deadline: float, prepare: Callable[[Session, float], None] = opening.prepare
    ) -> None:
        self._source = source
        self._deadline = deadline
        self._prepare = prepare
        self._session: Session | None = None
        self._in_transaction = False

    def run(self, make: Callable[[], Operation[T]]) -> T:
        """Perform an operation by itself, in its own commit; once more, if the trouble is one that passes."""
        until = monotonic() + self._deadline
        trials = Trials(until)
        while True:
            session = self._open()
            seasoned = session.seasoned
            try:
                return wait(session.perform(make(), until), session.socket, until)
            except Trouble as trouble:
                pause = trials.after(trouble, seasoned=seasoned)
            finally:
                self._review()
            sleep(pause)

    def perform(self, operation: Operation[T]) -> T:
        """Perform an operation once, in the transaction that is open, or in its own commit."""
        session = self._open()
        until = monotonic() + self._deadline
        try:
            return wait(session.perform(operation, until), session.socket, until)
        except Trouble as trouble:
            raise trouble.as_error() from None
        finally:
            self._review()

    def query(self, name: str, **arguments: object) -> Sequence[Row]:
        """The rows of one statement."""
        session = self._open()
        until = monotonic() + self._deadline
        try:
            return wait(session.query(name, **arguments), session.socket, until)
        except Trouble as trouble:
            raise trouble.as_error() from None
        finally:
            self._review()

    @contextmanager
    def transaction(self, *, snapshot: bool = False) -> Iterator[None]:
        """All or nothing.  With `snapshot` every statement looks at the same moment, and none may write."""
        self._command("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if snapshot else "BEGIN")
        self._in_transaction = True
        try:
            yield
            self._command("COMMIT")
        except BaseException:
            # Whatever it was, nothing of it happened; and if that cannot be said, the connection is closed,
            # which says it too.
            if self._session is not None:
                with suppress(StoreUnavailable):
                    self._command("ROLLBACK")
            raise
        finally:
            self._in_transaction = False
            self._review()

    @property
    def session(self) -> Session:
        """The connection itself, opened and inspected, for what `opening.py` does."""
        return self._open()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _command(self, sql: str) -> None:
        session = self._open()
        until = monotonic() + self._deadline
        try:
            wait(session.command(sql), session.socket, until)
        except Trouble as trouble:
            self.close()
            raise trouble.as_error() from None
        except BaseException:
            self.close()
            raise

    def _open(self) -> Session:
        if self._session is None:
            if self._in_transaction:
                raise StoreUnavailable("PostgreSQL: the connection was lost in the middle of a transaction")
            self._session = opened(self._source.open, self._deadline, self._prepare)
        return self._session

    def _review(self) -> None:
        """Keep the connection only if its conversation has come to an end."""
        session = self._session
        if session is not None and not (session.is_between if self._in_transaction else session.is_idle):
            self.close()


def opened(
    open: Callable[[], Session], deadline: float, prepare: Callable[[Session, float], None] | None = None
) -> Session:
    """A new connection that may be used, to a server that was looked at.

    `deadline` is for all that is asked of the server; to connect takes as long as its address allows.
    """
    session = open()
    until = monotonic() + deadline
    try:
        opening.inspect(session, until)
        if prepare is not None:
            prepare(session, until)
    except Trouble as trouble:
        session.close()
        raise trouble.as_error() from None
    except BaseException:
        session.close()
        raise
    return session
