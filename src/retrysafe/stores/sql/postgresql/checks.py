"""What is made sure of before a connection is used, whichever driver it is by.

On every new one: the server takes writes, because behind one address there may be another server after a
failover.  On the first of a process also that the tables are there and of our version.  Where there are none
they are made, in one transaction under a lock, so that processes which start together make them once; a role
that may not make them is told who can.

Tables are found along the connection's search path, and made in its first schema, as psql would.
"""

from collections.abc import Callable
from typing import cast

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.sql.postgresql import layout
from retrysafe.stores.sql.postgresql.layout import Ask
from retrysafe.stores.sql.postgresql.trouble import Trouble
from retrysafe.stores.sql.statements import load

Command = Callable[[str], None]
"""Runs SQL without arguments or rows, and perhaps several statements."""

_OLDEST = 120000
"""PostgreSQL 12 is the first that can be told to look up a record once and use it twice (`AS MATERIALIZED`),
which is what makes a claim one statement."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Others cannot hold every path that a client may ask for."""

_FORBIDDEN = ("42501", "25006")


def inspect(ask: Ask) -> None:
    """Whether this server can be a store's."""
    [(version, follows, is_read_only, encoding)] = ask("server")
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


def prepare(ask: Ask, command: Command) -> None:
    """See to it that the tables are there."""
    absent = layout.missing(ask)
    if not layout.is_new(absent):
        layout.refuse(absent)
    if set(absent) <= set(layout.INDEXES):
        return  # an index is for the operator to make: it would lock the table
    try:
        _make(ask, command)
    except Trouble as trouble:
        if trouble.state not in _FORBIDDEN:
            raise
        raise SchemaMismatch(
            f"there are no tables of retrysafe, and this role may not make them ({trouble.reason}): "
            "run `retrysafe migrate` as a role that may, or the SQL that "
            "`retrysafe sql --dialect postgresql` prints"
        ) from None


def _make(ask: Ask, command: Command) -> None:
    """Make what is missing, in one transaction."""
    command("BEGIN")
    try:
        ask("migration_lock")
        if layout.missing(ask):  # for others may have been quicker
            command(load("postgresql")["schema"])
        command("COMMIT")
    except (Trouble, SchemaMismatch):
        command("ROLLBACK")
        raise
