"""Blocking connections beside the pools, for callers that must not wait for a free one: the lease keeper and
the operator.
"""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from typing import TypeVar

from retrysafe.stores.sql.operations import Operation, Row
from retrysafe.stores.sql.postgresql import schema
from retrysafe.stores.sql.postgresql.admin import explained
from retrysafe.stores.sql.postgresql.connect import Source
from retrysafe.stores.sql.postgresql.retry import Retries, Trouble
from retrysafe.stores.sql.postgresql.session import Session
from retrysafe.stores.sql.postgresql.waiting import wait

T = TypeVar("T")


class Executor:
    """Runs operations one after the other, each in its own commit; to be used by one thread at a time."""

    def __init__(self, source: Source, deadline: float) -> None:
        self._source = source
        self._deadline = deadline
        self._session: Session | None = None

    def run(self, make: Callable[[], Operation[T]]) -> T:
        """The answer of an operation, which is made anew for each try."""
        until = monotonic() + self._deadline
        retries = Retries(until)
        while True:
            if self._session is None:
                self._session = opened(self._source.open, self._deadline, prepare)
            session = self._session
            has_worked = session.has_worked
            try:
                return wait(session.perform(make(), until), session.socket, until)
            except Trouble as trouble:
                if trouble.ends_session:
                    session.retire()
                pause = retries.after(trouble, has_worked=has_worked)
            finally:
                if not session.is_idle:
                    self.close()
            sleep(pause)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def opened(
    open: Callable[[], Session], deadline: float, prepare: Callable[[Session, float], None] | None = None
) -> Session:
    """A new connection that may be used, to a server that was looked at.

    `deadline` is for all that is asked of the server; to connect takes as long as its address allows.
    """
    session = open()
    until = monotonic() + deadline
    try:
        inspect(session, until)
        if prepare is not None:
            prepare(session, until)
    except Trouble as trouble:
        session.close()
        raise trouble.as_error() from None
    except BaseException:
        session.close()
        raise
    return session


def inspect(session: Session, until: float) -> None:
    """Whether this server can be a store's."""
    schema.inspect(lambda name: ask(session, until, name))


def prepare(session: Session, until: float) -> None:
    """Create the tables if they do not exist."""

    def command(sql: str) -> None:
        wait(session.command(sql), session.socket, until)

    schema.prepare(lambda name: ask(session, until, name), command)


def ask(session: Session, until: float, name: str, **arguments: object) -> Sequence[Row]:
    """The rows of one statement."""
    return wait(session.query(name, **arguments), session.socket, until)


class PsycopgAdminConnection:
    """A connection of its own, to any server: one that accepts no writes can still be read."""

    def __init__(self, source: Source) -> None:
        self._session = source.open()

    @property
    def process(self) -> int | None:
        return self._session.pgconn.backend_pid

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        with explained():
            conversation = self._session.query(name, **arguments)
            return wait(conversation, self._session.socket, monotonic() + within)

    def command(self, sql: str, within: float) -> None:
        with explained():
            wait(self._session.command(sql), self._session.socket, monotonic() + within)

    def close(self) -> None:
        self._session.close()
