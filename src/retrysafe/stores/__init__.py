"""Where records live: `open(url)` picks a store by its address, `from_engine(engine)` by an engine.

    memory:                     this process only, for tests
    sqlite:///keys.db           a file, relative to the working directory
    sqlite:////var/lib/keys.db  a file, absolute (SQLAlchemy's convention: the fourth slash is the path's)
    postgresql://user@host/db   a PostgreSQL database, as psql and libpq read it; needs retrysafe[postgres]

    from_engine(engine)         the database of an SQLAlchemy engine: SQLite, or PostgreSQL with any driver

Opening touches neither disk nor network: the first operation does, in the process that makes it.  A
store of your own need not pass here; anything that keeps `contract.Store` is one.
"""

from typing import TYPE_CHECKING

from retrysafe.errors import ConfigurationError
from retrysafe.stores.contract import AsyncStore, Renewer, Store

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from retrysafe.stores.sql.sqlalchemy import StoreOfEngine

__all__ = ["AsyncStore", "Renewer", "Store", "from_engine", "open"]

_SUPPORTED = "memory:, sqlite:///relative.db, sqlite:////absolute.db and postgresql://user@host/database"
_PLANNED = frozenset({"mysql", "mariadb", "redis", "rediss", "valkey"})


def open(url: str, *, deadline: float = 2.0) -> Store:
    """Give the store that `url` names; none of its operations waits longer than `deadline` seconds.

    Two seconds: longer than any healthy disk needs, shorter than a client's patience.
    """
    scheme, colon, rest = url.partition(":")
    match scheme:
        case _ if not colon:
            # The text itself may be a misplaced secret, so it is not repeated.
            raise ConfigurationError(f"the store's address has no scheme: expected {_SUPPORTED}")
        case "memory":
            return _memory(rest)
        case "sqlite":
            return _sqlite(rest, deadline)
        case "postgresql" | "postgres":
            return _postgresql(url, deadline)
        case _ if scheme.partition("+")[0] in ("postgresql", "postgres"):
            raise ConfigurationError(
                f"{scheme}: is an address for SQLAlchemy: pass the engine that you made from it to "
                "stores.from_engine(engine), or write postgresql: for connections by psycopg"
            )
        case _ if scheme.partition("+")[0] == "sqlite":
            raise ConfigurationError(
                f"{scheme}: is an address for SQLAlchemy: pass the engine that you made from it to "
                "stores.from_engine(engine), or write sqlite:///keys.db for the same file"
            )
        case _ if scheme.partition("+")[0] in _PLANNED:
            raise ConfigurationError(f"{scheme}: is not available in this release: expected {_SUPPORTED}")
        case _:
            raise ConfigurationError(f"{scheme}: is not a known scheme of stores: expected {_SUPPORTED}")


def from_engine(engine: "Engine | AsyncEngine", *, deadline: float = 2.0) -> "StoreOfEngine":
    """Give a store in the database of an SQLAlchemy engine, of any driver, blocking or not.

    It opens connections of its own, as the engine opens its: `creator`, `connect_args`, listeners and
    certificates are honoured, and the application's pool is left alone.  No operation waits longer than
    `deadline` seconds.
    """
    try:
        from retrysafe.stores.sql import sqlalchemy
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"stores.from_engine needs SQLAlchemy ({missing}): pip install 'retrysafe[sqlalchemy]'"
        ) from None
    return sqlalchemy.from_engine(engine, deadline)


def _memory(rest: str) -> Store:
    if rest.strip("/"):
        raise ConfigurationError("memory: takes no name or path: write memory: alone")
    from retrysafe.stores.memory import MemoryStore

    return MemoryStore()


def _sqlite(rest: str, deadline: float) -> Store:
    if rest.strip("/") in ("", ":memory:"):
        raise ConfigurationError(
            "an SQLite database in memory belongs to one connection and cannot be shared by threads or "
            "processes: write memory: for a store in memory, or sqlite:///keys.db for a file"
        )
    path = rest.removeprefix("///")
    if path == rest:
        raise ConfigurationError(
            "an SQLite address needs three slashes and a path: sqlite:///relative.db or sqlite:////absolute.db"
        )
    if "?" in path:
        raise ConfigurationError(
            "an SQLite address takes no ?options: pass them as keywords, "
            "as in open('sqlite:///keys.db', deadline=2.0)"
        )
    # Here and not above: people who use another store need not load sqlite3.
    from retrysafe.stores.sql.sqlite import SQLiteStore

    return SQLiteStore(path, deadline=deadline)


def _postgresql(url: str, deadline: float) -> Store:
    if not url.partition(":")[2].startswith("//"):
        raise ConfigurationError(
            "a PostgreSQL address needs two slashes and a host: postgresql://user:password@host:5432/database"
        )
    try:
        import psycopg as _  # noqa: F401 - only whether it is there
    except ImportError as missing:
        raise ConfigurationError(
            f"a PostgreSQL store needs psycopg ({missing}): pip install 'retrysafe[postgres]'"
        ) from None
    from retrysafe.stores.sql.postgresql import PostgresStore

    return PostgresStore(url, deadline=deadline)
