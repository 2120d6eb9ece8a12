"""Opens a database for writing: its tables are there and of our version, its clock is anchored.

All processes but the first, on a new file or after a boot, find this by reading and do not wait.  The first
writes it in one transaction that looks again, so that processes which open at the same moment do it once.
"""

import os
from collections.abc import Mapping

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.sql.sqlite.clock import HostClock
from retrysafe.stores.sql.sqlite.connection import Clock, Connection, Role
from retrysafe.stores.sql.sqlite.file import DatabaseFile
from retrysafe.stores.sql.statements import load

SCHEMA = 1

TABLES = ("retrysafe_records", "retrysafe_meta", "retrysafe_audit", "retrysafe_verdicts")
INDEXES = ("retrysafe_records_expires_at",)

_VITAL = {"retrysafe_records", "retrysafe_meta"}
"""Without the one there are no records, without the other no time: a new table would pretend that there never
were any."""

Meta = Mapping[str, object]


def open_database(
    path: str, role: Role, clock: Clock, patience: float, file: DatabaseFile | None = None
) -> Connection:
    """A connection that may write, to a database that is ready for it."""
    connection = Connection(path, role, clock, patience, file)
    try:
        _prepare(connection, clock if isinstance(clock, HostClock) else None)
        # Not before: a file that this release cannot use may still be replaced by one that it can.
        connection.begin_with_file()
    except BaseException:
        connection.close()
        raise
    return connection


def open_existing(path: str, clock: Clock, patience: float) -> Connection:
    """An operator's connection.  A mistyped path does not create a new and empty database."""
    if not os.path.exists(path):
        raise StoreUnavailable(
            f"{path} does not exist: a service creates it with its first request, or run `retrysafe migrate`"
        )
    return open_database(path, "admin", clock, patience)


def migrate(path: str, clock: Clock, patience: float) -> list[str]:
    """Create what is missing, and return its names."""
    connection = Connection(path, "writer", clock, patience)
    try:
        with connection.transaction():
            before = present(connection)
            marked = not before or "schema" in _read_known(connection, before)
            create(connection)
            made = [name for name in (*TABLES, *INDEXES) if name not in before]
            if not marked:
                made.append(f"version {SCHEMA} in retrysafe_meta")
        _prepare(connection, clock if isinstance(clock, HostClock) else None)
        return made
    finally:
        connection.close()


def present(connection: Connection) -> set[str]:
    """Which of our tables and indexes are there."""
    return {str(name) for (name,) in connection.query("existing_tables")}


def _prepare(connection: Connection, clock: HostClock | None) -> None:
    with connection.session():
        meta = read_meta(connection)
    if meta is not None and (clock is None or clock.adopt(meta)):
        return
    if meta is None and connection.role == "admin":
        raise SchemaMismatch(
            f"{connection.path} has no tables of retrysafe, or tables without a version: run "
            "`retrysafe migrate`, or use another file"
        )
    with connection.transaction():
        meta = read_meta(connection) or create(connection)
        if clock is not None and not clock.adopt(meta):
            for name, value in clock.anchor().items():
                connection.query("set_meta", name=name, value=value)


def read_meta(connection: Connection) -> Meta | None:
    """What the store knows about itself, if it exists and is one that this release can use.

    Nothing, if there are no tables, or if their version is missing: a migration of the application's, such as
    Alembic's, makes tables and no rows.
    """
    there = present(connection)
    if not there:
        return None
    meta = _read_known(connection, there)
    missing = [table for table in TABLES if table not in there]
    if missing:
        raise SchemaMismatch(f"{' and '.join(missing)} is missing: run `retrysafe migrate`")
    return meta if "schema" in meta else None


def _read_known(connection: Connection, there: set[str]) -> Meta:
    """What the store knows about itself, if this release can use or complete it."""
    missing = sorted(_VITAL - there)
    if missing:
        raise SchemaMismatch(
            f"{' and '.join(missing)} is missing while other tables of retrysafe exist: restore the file "
            "from a backup, or remove all of these tables and with them every record"
        )
    meta = {str(name): value for name, value in connection.query("meta")}
    found = meta.get("schema", SCHEMA)
    if found != SCHEMA:
        raise SchemaMismatch(
            f"the tables have schema version {found!r} and this release works with {SCHEMA}: "
            "use the release of retrysafe that made them, or another file"
        )
    return meta


def create(connection: Connection) -> Meta:
    """Make what is missing of the tables, within a transaction."""
    for statement in load("sqlite")["schema"].split(";"):
        connection.execute(statement)
    return {"schema": SCHEMA}
