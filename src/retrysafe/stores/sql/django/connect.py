"""How Django opens its connections, so that ours are opened in the same way.

An alias knows more than an address says: `OPTIONS`, a backend of the application's own that fetches a
password which is valid for minutes, a role, a service file.  A copy of Django's connection opens one as
Django would.
"""

from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections
from django.db.utils import Error, load_backend

from retrysafe.errors import ConfigurationError, StoreUnavailable
from retrysafe.stores.sql.join import Dialect

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGconn

_DIALECTS: dict[str, Dialect] = {"mysql": "mysql", "postgresql": "postgresql", "sqlite": "sqlite"}


def dialect_of(alias: str) -> Dialect:
    """Which statements the database of an alias understands."""
    # Not of this thread's connection: a thread of the store's own may have one from before a test changed it.
    vendor: str = load_backend(connections.settings[alias]["ENGINE"]).DatabaseWrapper.vendor
    found = _DIALECTS.get(vendor)
    if found is None:
        raise ConfigurationError(
            f"Django's database {alias!r} is {vendor}, which has no store in this release: name an alias of "
            'PostgreSQL, MySQL, MariaDB or SQLite in RETRYSAFE["DATABASE"], or the address of a store in '
            'RETRYSAFE["STORE"]'
        )
    return found


class Address(NamedTuple):
    """By what a database differs from another one: the test runner changes its name, for example."""

    name: str
    host: str
    port: str
    user: str


def address_of(alias: str) -> Address:
    """Where the database of an alias is now."""
    found: dict[str, Any] = connections.settings[alias]
    return Address(str(found["NAME"]), str(found["HOST"]), str(found["PORT"]), str(found["USER"]))


def is_in_memory(alias: str) -> bool:
    """Whether the database belongs to its connections, and no other process can open it."""
    name = str(connections.settings[alias]["NAME"])
    return name in ("", ":memory:") or "mode=memory" in name


def file_of(alias: str) -> str:
    """The file of an SQLite database."""
    name = address_of(alias).name
    if name.startswith("file:"):
        raise ConfigurationError(
            f"Django's database {alias!r} is opened by an SQLite URI, whose options a store would not share: "
            'write its plain path in DATABASES, as in "NAME": BASE_DIR / "db.sqlite3"'
        )
    return name


class PostgresConnection:
    """A connection as the PostgreSQL store wants it: libpq's part, which commits by itself, and an end."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        # Kept, because it would be closed with its last reference.
        self._connection = connection

    @property
    def pgconn(self) -> "PGconn":
        return self._connection.pgconn

    def close(self) -> None:
        self.pgconn.finish()


def connect_postgres(alias: str) -> PostgresConnection:
    """A new connection, opened as Django opens its own, and none of its pool."""
    connection = _opened(alias, "PostgreSQL")
    if not hasattr(connection, "pgconn"):
        raise ConfigurationError(
            f"Django's database {alias!r} uses {type(connection).__module__}, and the store needs psycopg 3: "
            "pip install 'retrysafe[postgres]', and Django uses it too"
        )
    return PostgresConnection(connection)


def connect_mysql(alias: str) -> Any:  # noqa: ANN401 - of mysqlclient, or of PyMySQL in its place
    """The same for MySQL and MariaDB: a connection of whatever driver Django uses."""
    return _opened(alias, "MySQL")


def _opened(alias: str, title: str) -> Any:  # noqa: ANN401 - each driver has its own
    copied = connections.create_connection(alias)
    copied.settings_dict = deepcopy(copied.settings_dict)
    # A copied connection would draw from the pool, and a view that holds one would wait for another.
    copied.settings_dict["OPTIONS"].pop("pool", None)
    copied.settings_dict["CONN_MAX_AGE"] = 0
    copied.settings_dict["CONN_HEALTH_CHECKS"] = False
    copied.settings_dict["AUTOCOMMIT"] = True
    try:
        copied.connect()
    except Error as error:
        raise StoreUnavailable(f"cannot connect to {title}: {_first_line(error)}") from error
    return copied.connection


def connector(alias: str) -> "partial[PostgresConnection]":
    return partial(connect_postgres, alias)


def _first_line(error: Exception) -> str:
    """Without the detail, which quotes values."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
