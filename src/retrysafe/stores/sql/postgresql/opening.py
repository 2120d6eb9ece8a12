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
from retrysafe.stores.sql.postgresql.session import Session
from retrysafe.stores.sql.postgresql.trouble import Trouble
from retrysafe.stores.sql.postgresql.waiting import wait
from retrysafe.stores.sql.statements import load

SCHEMA = "1"

TABLES = ("retrysafe_records", "retrysafe_meta", "retrysafe_audit", "retrysafe_verdicts")
INDEXES = ("retrysafe_records_expires_at",)

_VITAL = {"retrysafe_records", "retrysafe_meta"}
"""Without the one there are no records, without the other nobody knows what they mean."""

_OLDEST = 120000
"""PostgreSQL 12 is the first that can be told to look up a record once and use it twice (`AS MATERIALIZED`),
which is what makes a claim one statement."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Others cannot hold every path that a client may ask for."""

_LOCK = 0x7265747279  # "retry": a number that nobody else is likely to have chosen

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
        raise StoreUnavailable(f"this PostgreSQL server has version {version}, and the store needs 12 or later")
    if encoding not in _ENCODINGS:
        raise StoreUnavailable(
            f"the database has the encoding {encoding}, which cannot hold every text: "
            "use one that was created with ENCODING 'UTF8'"
        )


def prepare(session: Session, until: float) -> None:
    """See to it that the tables are there."""
    if read_meta(session, until):
        return
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
        wait(session.command(f"SELECT pg_advisory_xact_lock({_LOCK})"), session.socket, until)
        before = present(session, until)
        if before:
            _read_known(session, until, before)
        made = [name for name in (*TABLES, *INDEXES) if name not in before]
        if made:
            wait(session.command(load("postgresql")["schema"]), session.socket, until)
        wait(session.command("COMMIT"), session.socket, until)
        return made
    except (Trouble, SchemaMismatch):
        wait(session.command("ROLLBACK"), session.socket, until)
        raise


def present(session: Session, until: float) -> set[str]:
    """Which of our tables and indexes are there."""
    return {str(name) for (name,) in ask(session, until, "tables")}


def read_meta(session: Session, until: float) -> bool:
    """Whether the tables are there, and are ones that this release can use."""
    there = present(session, until)
    if not there:
        return False
    _read_known(session, until, there)
    missing = [table for table in TABLES if table not in there]
    if missing:
        raise SchemaMismatch(f"{' and '.join(missing)} is missing: `retrysafe migrate` makes what is missing")
    return True


def _read_known(session: Session, until: float, there: set[str]) -> None:
    missing = sorted(_VITAL - there)
    if missing:
        raise SchemaMismatch(
            f"{' and '.join(missing)} is missing while other tables of retrysafe are there: restore the "
            "database from a backup, or remove all of these tables and with them every record"
        )
    meta = {str(name): value for name, value in ask(session, until, "meta")}
    found = meta.get("schema")
    if found != SCHEMA:
        raise SchemaMismatch(
            f"the tables have schema version {found} and this release works with {SCHEMA}: "
            "use the release of retrysafe that made them, or another database"
        )


def ask(session: Session, until: float, name: str, **arguments: object) -> Sequence[Row]:
    """The rows of one statement."""
    return wait(session.query(name, **arguments), session.socket, until)
