"""Whether a server can hold our tables, and how a service creates or migrates them.

On every new connection the server is checked: it takes writes, because after a failover another server may
be behind the same address.  On the first one of a process the tables are checked too.  A role that may not
create what is missing gets an error that says what to run.

Tables are found along the connection's search path, and created in its first schema, as psql would.
"""

import logging
from collections.abc import Callable
from typing import Final, cast

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql import schema as shared
from retrysafe.stores.sql.postgresql.retry import PostgresTrouble
from retrysafe.stores.sql.schema import Ask, plan

DIALECT: Final = "postgresql"

_log = logging.getLogger("retrysafe.store")

Command = Callable[[str], None]
"""Runs a statement without arguments or rows."""

BRIEFLY: Final = "SET LOCAL lock_timeout = '300ms'"
"""A change of a table waits until no transaction uses it, and all other statements wait behind it.  So it is
tried for a moment only, and by an operator again and again."""

_OLDEST = 120000
"""PostgreSQL 12 is the first that can be told to look up a record once and use it twice (`AS MATERIALIZED`),
which is what makes a claim one statement."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Others cannot hold every path that a client may ask for."""

_FORBIDDEN = ("42501", "25006")


def inspect(ask: Ask) -> None:
    """Refuse a server that cannot hold a store."""
    [(version, follows, is_read_only, encoding)] = ask("server")
    if follows or is_read_only:
        what = "it is a replica" if follows else "its transactions are read-only for this role or database"
        raise StoreUnavailable(
            f"this PostgreSQL server accepts no writes, {what}: use the address of the primary, or several "
            "hosts with target_session_attrs=read-write"
        )
    if cast(int, version) < _OLDEST:
        raise StoreUnavailable(f"this PostgreSQL server has version {version}: expected 12 or later")
    if encoding not in _ENCODINGS:
        raise StoreUnavailable(
            f"the database has the encoding {encoding}, which cannot hold every text: "
            "use a database that was created with ENCODING 'UTF8'"
        )


def prepare(ask: Ask, command: Command, migrated_by: str | None = None) -> None:
    """Create the tables if they do not exist, and apply the migrations that they lack."""
    shared.prepare(ask, DIALECT, lambda: _apply(ask, command), _may_not, migrated_by)


def _may_not(trouble: Trouble) -> bool:
    return isinstance(trouble, PostgresTrouble) and trouble.state in _FORBIDDEN


def _apply(ask: Ask, command: Command) -> None:
    """Do what is to be done, in one transaction."""
    command("BEGIN")
    try:
        ask("migration_lock")
        command(BRIEFLY)
        for statement in plan(ask, DIALECT).statements:  # again: another process may have been faster
            command(statement)
        command("COMMIT")
    except (PostgresTrouble, SchemaMismatch):
        command("ROLLBACK")
        raise
