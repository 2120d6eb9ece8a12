"""Whether a server can hold our tables, and how a service creates or migrates them.

On every new connection the server is checked: it takes writes, because after a failover another server may
be behind the same address.  On the first one of a process the tables are checked too.  A user who may not
create what is missing gets an error that says what to run.

The server commits each change of a table by itself.  So every statement of a migration may be repeated, and
one that broke off is taken up again by the next process, which holds a lock meanwhile.
"""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Row
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql import schema as shared
from retrysafe.stores.sql.mysql.retry import NOT_PERMITTED, READ_ONLY, MySQLTrouble
from retrysafe.stores.sql.schema import Plan, plan

DIALECT: Final = "mysql"

_log = logging.getLogger("retrysafe.store")

Command = Callable[[str], None]
"""Runs a statement without arguments or rows."""

SESSION: Final = (
    "SET SESSION autocommit = 1, completion_type = 'NO_CHAIN', time_zone = '+00:00', "
    "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO', "
    "sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1, "
    "innodb_lock_wait_timeout = 1, lock_wait_timeout = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
)
"""What each session of the store's own begins with, said in full, because a server, a user or a driver may
have other defaults.

Strict: a value that does not fit is refused and not cut off.  Without NO_BACKSLASH_ESCAPES and ANSI_QUOTES,
so that literals mean what we write.  READ COMMITTED: a claim that waited for a row must see it as it is, and
no gap between rows is locked.  A second is the shortest time for a lock that every server knows."""

_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0, 1)}
"""The first with SKIP LOCKED, which keeps processes from waiting for each other's rows."""


OLDEST: Final = "MariaDB 10.6 or MySQL 8.0"


def refuses_snapshots(version: str) -> bool:
    """Whether `innodb_snapshot_isolation`, where it is on, refuses a completion: see `join.py`."""
    return _numbers(version) < (11, 4, 2)


def is_too_old(version: str) -> bool:
    return _numbers(version) < _OLDEST[flavour(version)]


class Ask(Protocol):
    """Runs a statement by its name."""

    def __call__(self, name: str, arguments: dict[str, Any] = ..., /) -> Sequence[Row]: ...


class Server(NamedTuple):
    flavour: str
    version: str
    largest: int
    """Bytes of a statement that it accepts at most."""


def flavour(version: str) -> str:
    return "MariaDB" if "mariadb" in version.lower() else "MySQL"


def inspect(ask: Ask) -> Server:
    """Refuse a server that cannot hold a store."""
    [(version, is_read_only, largest, database)] = ask("server")
    assert isinstance(version, str)
    assert isinstance(largest, int)
    kind = flavour(version)
    if is_read_only:
        raise StoreUnavailable(
            f"this {kind} server accepts no writes, it is a replica or its read_only is on: use the "
            "address of "
            "the primary"
        )
    if is_too_old(version):
        raise StoreUnavailable(f"this {kind} server has version {version}: expected {OLDEST}, or later")
    if database is None:
        raise StoreUnavailable(
            "the connection has no database: name it in the address, mysql://user@host:3306/database"
        )
    return Server(kind, version, largest)


def _numbers(version: str) -> tuple[int, ...]:
    # Old clients took MariaDB 10 for MySQL 5.5, so some servers still say 5.5.5- before their version.
    found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return () if found is None else tuple(int(number) for number in found.groups() if number)


def prepare(ask: Ask, command: Command, migrated_by: str | None = None) -> None:
    """Create the tables if they do not exist, and apply the migrations that they lack."""
    shared.prepare(ask, DIALECT, lambda: apply(ask, command, 10), _may_not, migrated_by)


def _may_not(trouble: Trouble) -> bool:
    return isinstance(trouble, MySQLTrouble) and trouble.code in NOT_PERMITTED | READ_ONLY


_UNKNOWN_HERE = 1235
"""Some clusters have no locks by name.  Every statement may be repeated, so it goes without, too."""


def apply(ask: Ask, command: Command, patience: float) -> Plan:
    """Do what is to be done, one process at a time."""
    try:
        [(locked,)] = ask("migration_lock", {"patience": patience})
    except MySQLTrouble as trouble:
        if trouble.code != _UNKNOWN_HERE:
            raise
        locked = None
    if locked == 0:
        raise StoreUnavailable(
            "another process is changing the tables of retrysafe: try again when it has ended"
        )
    try:
        found = plan(ask, DIALECT)  # again: another process may have been faster
        for statement in found.statements:
            command(statement)
    finally:
        if locked:
            _unlock(ask)
    return found


def _unlock(ask: Ask) -> None:
    try:
        ask("migration_unlock")
    except Trouble as trouble:  # with the session, the lock ends too
        _log.debug("the lock for migrations was not released: %s", trouble)
