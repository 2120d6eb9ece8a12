"""Opens a database for writing: its tables are there and of our version, its clock is anchored.

Everybody but the first, on a new file or after a boot, finds this by reading and waits for nobody.  The first
writes it in one transaction that looks again, so that processes which open at the same moment do it once.
"""

from collections.abc import Mapping

from retrysafe.errors import SchemaMismatch
from retrysafe.stores.sql.sqlite.connection import Clock, Connection, Role
from retrysafe.stores.sql.sqlite.hostclock import HostClock
from retrysafe.stores.sql.statements import load

SCHEMA = 1

_TABLES = {"retrysafe_records", "retrysafe_meta"}

Meta = Mapping[str, object]


def open_database(path: str, role: Role, clock: Clock, patience: float) -> Connection:
    """A connection that may write, to a database that is ready for it."""
    connection = Connection(path, role, clock, patience)
    try:
        _prepare(connection, clock if isinstance(clock, HostClock) else None)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: Connection, clock: HostClock | None) -> None:
    with connection.session():
        meta = _read_meta(connection)
    if meta is not None and (clock is None or clock.adopt(meta)):
        return
    with connection.transaction():
        meta = _read_meta(connection) or _create(connection)
        if clock is not None and not clock.adopt(meta):
            for name, value in clock.anchor().items():
                connection.query("remember", name=name, value=value)


def _read_meta(connection: Connection) -> Meta | None:
    """What the store knows about itself, if it exists and is one that this release can use."""
    tables = {name for (name,) in connection.query("tables")}
    if not tables:
        return None
    if tables != _TABLES:
        [missing] = _TABLES - tables
        raise SchemaMismatch(
            f"the table {missing} is missing while its companion is there: restore it from a backup, "
            "or remove both tables and with them every record"
        )
    meta = {str(name): value for name, value in connection.query("meta")}
    found = meta.get("schema")
    if found != SCHEMA:
        raise SchemaMismatch(
            f"the tables have schema version {found!r} and this release works with {SCHEMA}: "
            "use the release of retrysafe that made them, or another file"
        )
    return meta


def _create(connection: Connection) -> Meta:
    for statement in load("sqlite")["schema"].split(";"):
        connection.execute(statement)
    return {"schema": SCHEMA}
