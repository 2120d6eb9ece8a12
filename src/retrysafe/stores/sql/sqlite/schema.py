"""Opens a database for writing: its tables are there and migrated, its clock is anchored.

All processes but the first, on a new file or after a boot, find this by reading and do not wait.  The first
writes it in one transaction that looks again, so that processes which open at the same moment do it once.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.admin import Index
from retrysafe.stores.sql.schema import (
    Plan,
    chosen_indexes,
    is_for_a_service,
    plan,
    refuse,
    refuse_removed,
    refuse_unmigrated,
)
from retrysafe.stores.sql.sqlite.clock import HostClock
from retrysafe.stores.sql.sqlite.connection import Clock, Connection, Role
from retrysafe.stores.sql.sqlite.file import DatabaseFile

DIALECT: Final = "sqlite"

_log = logging.getLogger("retrysafe.store")

Meta = Mapping[str, object]


def open_database(
    path: str,
    role: Role,
    clock: Clock,
    patience: float,
    file: DatabaseFile | None = None,
    migrated_by: str | None = None,
) -> Connection:
    """A connection that may write, to a database that is ready for it.

    `migrated_by` is the command that creates its tables, where a service does not.
    """
    connection = Connection(path, role, clock, patience, file)
    try:
        _prepare(connection, clock if isinstance(clock, HostClock) else None, migrated_by)
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


def migrate(path: str, clock: Clock, patience: float, indexes: Sequence[Index] = ()) -> list[str]:
    """Create what is missing, indexes too, and return its names."""
    connection = Connection(path, "writer", clock, patience)
    try:
        with connection.transaction():
            found = examine(connection)
            for statement in (*found.statements, *found.indexes.values()):
                connection.execute(statement)
            chosen = chosen_indexes(connection.query, DIALECT, indexes)
            for statement in chosen.values():
                connection.execute(statement)
        _prepare(connection, clock if isinstance(clock, HostClock) else None)
        return [*found.names, *chosen]
    finally:
        connection.close()


def examine(connection: Connection) -> Plan:
    """What is to be done about the tables of this file."""
    return plan(connection.query, DIALECT)


def _prepare(connection: Connection, clock: HostClock | None, migrated_by: str | None = None) -> None:
    with connection.session():
        found = examine(connection)
        if migrated_by is not None:
            refuse_unmigrated(found, migrated_by)
        elif connection.role == "admin":
            refuse(found)
        refuse_removed(found)
        # An operator does not change tables by looking at them.
        applies = connection.role != "admin" and is_for_a_service(found, migrated_by)
        if found.statements and not applies and migrated_by is not None:
            _say_what_is_missing(connection.path, ", ".join(found.changes), migrated_by, found.loss)
        if not (found.statements and applies) and (clock is None or clock.adopt(meta(connection))):
            return
    with connection.transaction():
        for statement in examine(connection).statements if applies else ():
            connection.execute(statement)
        if clock is not None and not clock.adopt(meta(connection)):
            for name, value in clock.anchor().items():
                connection.query("set_meta", name=name, value=value)


@cache
def _say_what_is_missing(path: str, changes: str, command: str, loss: str) -> None:
    """Once per process, although each of its connections looks."""
    _log.warning("%s lacks %s (run `%s`): %s", path, changes, command, loss)


def meta(connection: Connection) -> Meta:
    """What the store knows about itself."""
    return {str(name): value for name, value in connection.query("meta")}
