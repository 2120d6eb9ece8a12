"""What is made sure of before a connection is used, as the statements it is made of.

On every new one: the server takes writes, because behind one address there may be another server after a
failover.  On the first of a process also that the tables are there and of our version.  Where there are none
they are made; a role that may not make them is told who can.

Tables are found along the connection's search path, and made in its first schema, as psql would.
"""

from typing import Final, cast

from retrysafe.errors import SchemaMismatch, StoreError, StoreUnavailable
from retrysafe.stores.sql.operations import Operation
from retrysafe.stores.sql.postgresql.trouble import Trouble

SCHEMA: Final = "1"

TABLES: Final = ("retrysafe_records", "retrysafe_meta", "retrysafe_audit", "retrysafe_verdicts")
INDEXES: Final = ("retrysafe_records_expires_at",)

_VITAL = {"retrysafe_records", "retrysafe_meta"}
"""Without the one there are no records, without the other nobody knows what they mean."""

_OLDEST = 120000
"""PostgreSQL 12 is the first that can be told to look up a record once and use it twice (`AS MATERIALIZED`),
which is what makes a claim one statement."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Others cannot hold every path that a client may ask for."""

_FORBIDDEN = ("42501", "25006")


def inspect() -> Operation[None]:
    """Whether this server can be a store's."""
    [(version, follows, is_read_only, encoding)] = yield "server", {}
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


def prepare() -> Operation[None]:
    """See to it that the tables are there."""
    if not (yield from _are_there()):
        yield "make", {}
        yield from _are_there()


def refused(trouble: Trouble) -> StoreError:
    """The error of whom `prepare` ran into trouble with."""
    if trouble.state in _FORBIDDEN:
        return SchemaMismatch(
            f"there are no tables of retrysafe, and this role may not make them ({trouble.reason}): "
            "run `retrysafe migrate` as a role that may, or the SQL that "
            "`retrysafe sql --dialect postgresql` prints"
        )
    return trouble.as_error()


def _are_there() -> Operation[bool]:
    """Whether the tables are there, and are ones that this release can use."""
    there = {str(name) for (name,) in (yield "tables", {})}
    if not there:
        return False
    missing = sorted(_VITAL - there)
    if missing:
        raise SchemaMismatch(
            f"{' and '.join(missing)} is missing while other tables of retrysafe are there: restore the "
            "database from a backup, or remove all of these tables and with them every record"
        )
    found = {str(name): value for name, value in (yield "meta", {})}.get("schema")
    if found != SCHEMA:
        raise SchemaMismatch(
            f"the tables have schema version {found} and this release works with {SCHEMA}: "
            "use the release of retrysafe that made them, or another database"
        )
    missing = [table for table in TABLES if table not in there]
    if missing:
        raise SchemaMismatch(f"{' and '.join(missing)} is missing: `retrysafe migrate` makes what is missing")
    return True
