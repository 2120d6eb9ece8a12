"""One blocking connection of its own, beside the pools: for whoever must not wait for a free one.

It is opened when it is first used, and again after trouble.
"""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from retrysafe.stores.sql.operations import Operation
from retrysafe.stores.sql.postgresql import opening
from retrysafe.stores.sql.postgresql.connect import Source
from retrysafe.stores.sql.postgresql.session import Session
from retrysafe.stores.sql.postgresql.trouble import Trials, Trouble
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
        trials = Trials(until)
        while True:
            if self._session is None:
                self._session = opened(self._source.open, self._deadline, opening.prepare)
            session = self._session
            seasoned = session.seasoned
            try:
                return wait(session.perform(make(), until), session.socket, until)
            except Trouble as trouble:
                if trouble.ends_session:
                    session.retire()
                pause = trials.after(trouble, seasoned=seasoned)
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
