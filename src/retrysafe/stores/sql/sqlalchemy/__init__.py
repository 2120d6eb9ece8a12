"""Stores from the SQLAlchemy engine that people have.

    SQLite, with sqlite3 or aiosqlite       the SQLite store, on the engine's file
    PostgreSQL, with psycopg                the PostgreSQL store, its connections opened as the engine's are
    PostgreSQL, with any other driver       a store that runs the same statements on SQLAlchemy's connections
    MySQL and MariaDB, with any driver      the same

None of them ever takes a connection from the application's pool.  They have `engine`, so that sessions can be
made from a guard, and `joint`, so that a completion can join a session's transaction.
"""

from typing import Protocol

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.stores.contract import Store
from retrysafe.stores.options import check_deadline
from retrysafe.stores.sql.join import Joint
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine, blocking_part

__all__ = ["StoreOfEngine", "from_engine"]


class StoreOfEngine(Store, Protocol):
    """A store that has the engine which it was made from."""

    engine: AnyEngine
    joint: Joint


def from_engine(engine: AnyEngine, deadline: float, cleanup_interval: Duration | None) -> StoreOfEngine:
    if not isinstance(engine, Engine | AsyncEngine):
        raise ConfigurationError(
            f"expected an Engine or an AsyncEngine of SQLAlchemy, got {type(engine).__name__}: pass what "
            "create_engine() or create_async_engine() returned; for an address, use stores.open()"
        )
    check_deadline(deadline)
    dialect = blocking_part(engine).dialect
    if dialect.is_async and isinstance(engine, Engine):
        raise ConfigurationError(
            "this is the sync_engine of an AsyncEngine, which works inside of SQLAlchemy's own calls only: "
            "pass the AsyncEngine itself"
        )
    match dialect.name, dialect.driver:
        case "sqlite", _:
            from retrysafe.stores.sql.sqlalchemy.sqlite import EngineSQLiteStore

            return EngineSQLiteStore(engine, deadline, cleanup_interval)
        case "postgresql", "psycopg" | "psycopg_async":
            from retrysafe.stores.sql.sqlalchemy.libpq import EnginePostgresStore

            return EnginePostgresStore(engine, deadline, cleanup_interval)
        case "postgresql", _:
            from retrysafe.stores.sql.postgresql.backend import BACKEND
            from retrysafe.stores.sql.sqlalchemy.drivers import from_driver

            return from_driver(engine, BACKEND, deadline, cleanup_interval)
        case "mysql" | "mariadb", _:
            from retrysafe.stores.sql.mysql.backend import BACKEND as MYSQL
            from retrysafe.stores.sql.sqlalchemy.drivers import from_driver

            return from_driver(engine, MYSQL, deadline, cleanup_interval)
        case name, _:
            raise ConfigurationError(
                f"{name} is not a supported database: expected an engine of sqlite, postgresql, mysql or "
                "mariadb"
            )
