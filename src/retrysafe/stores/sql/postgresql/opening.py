"""What is made sure of before a connection is used.

On every new one: the server takes writes, because behind one address there may be another server after a
failover.  On the first of a process also that the tables are there and of our version.  Where there are none
they are made, in one transaction under a lock, so that processes which start together make them once; a role
that may not make them is told who can.

Tables are found along the connection's search path, and made in its first schema, as psql would.
"""

from collections.abc import Sequence
from typing import cast

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.postgresql import layout
from retrysafe.stores.sql.postgresql.session import Session
from retrysafe.stores.sql.postgresql.trouble import Trouble
from retrysafe.stores.sql.postgresql.waiting import wait
from retrysafe.stores.sql.statements import load

_OLDEST = 120000
"""PostgreSQL 12 is the first that can be told to look up a record once and use it twice (`AS MATERIALIZED`),
which is what makes a claim one statement."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Others cannot hold every path that a client may ask for."""

_FORBIDDEN = ("42501", "25006")


def inspect(session: Session, until: float) -> None:
    """Whether this server can be a store's."""
    [(version, follows, is_read_only, encoding)] = ask(session, until, "server")
    if follows or is_read_only:
        what = "it is a replica" if follows else "its transactions are read-only for this role or database"
        raise StoreUnavailable(
            f"this PostgreSQL server takes no writes, {what}: give the address of the primary, or several "
            "hosts with target_session_attrs=read-write"
        )
    if cast(int, version) < _OLDEST:
        raise StoreUnavailable(
            f"this PostgreSQL server has version {version}, and the store needs 12 or later"
        )
    if encoding not in _ENCODINGS:
        raise StoreUnavailable(
            f"the database has the encoding {encoding}, which cannot hold every text: "
            "use one that was created with ENCODING 'UTF8'"
        )


def prepare(session: Session, until: float) -> None:
    """See to it that the tables are there."""

    def run(name: str) -> Sequence[Row]:
        return ask(session, until, name)

    absent = layout.missing(run)
    if not layout.is_new(absent):
        layout.refuse(absent)
    if set(absent) <= set(layout.INDEXES):
        return  # an index is for the operator to make: it would lock the table
    try:
        make(session, until)
    except Trouble as trouble:
        if trouble.state not in _FORBIDDEN:
            raise
        raise SchemaMismatch(
            f"there are no tables of retrysafe, and this role may not make them ({trouble.reason}): "
            "run `retrysafe migrate` as a role that may, or the SQL that "
            "`retrysafe sql --dialect postgresql` prints"
        ) from None


def make(session: Session, until: float) -> list[str]:
    """Make what is missing, in one transaction.  Gives its names."""
    wait(session.command("BEGIN"), session.socket, until)
    try:
        ask(session, until, "migration_lock")
        made = layout.missing(lambda name: ask(session, until, name))  # for others may have been quicker
        if made:
            wait(session.command(load("postgresql")["schema"]), session.socket, until)
        wait(session.command("COMMIT"), session.socket, until)
        return made
    except (Trouble, SchemaMismatch):
        wait(session.command("ROLLBACK"), session.socket, until)
        raise


def ask(session: Session, until: float, name: str, **arguments: object) -> Sequence[Row]:
    """The rows of one statement."""
    return wait(session.query(name, **arguments), session.socket, until)
