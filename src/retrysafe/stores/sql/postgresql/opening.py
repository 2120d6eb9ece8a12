"""What `checks.py` makes sure of, on a connection of libpq's."""

from collections.abc import Sequence

from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.postgresql import checks
from retrysafe.stores.sql.postgresql.session import Session
from retrysafe.stores.sql.postgresql.waiting import wait


def inspect(session: Session, until: float) -> None:
    """Whether this server can be a store's."""
    checks.inspect(lambda name: ask(session, until, name))


def prepare(session: Session, until: float) -> None:
    """See to it that the tables are there."""

    def command(sql: str) -> None:
        wait(session.command(sql), session.socket, until)

    checks.prepare(lambda name: ask(session, until, name), command)


def ask(session: Session, until: float, name: str, **arguments: object) -> Sequence[Row]:
    """The rows of one statement."""
    return wait(session.query(name, **arguments), session.socket, until)
