"""Which file an SQLite engine works on."""

from sqlalchemy import Engine
from sqlalchemy.engine import URL

from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.stores.options import CLEANUP_INTERVAL
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine, blocking_part
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.stores.sql.sqlite.connection import Clock

_DRIVERS = ("pysqlite", "aiosqlite")


class EngineSQLiteStore(SQLiteStore):
    """An SQLite store, and the engine that works on the same file."""

    def __init__(
        self,
        engine: AnyEngine,
        deadline: float,
        cleanup_interval: Duration | None = CLEANUP_INTERVAL,
        clock: Clock | None = None,
    ) -> None:
        path = _path(blocking_part(engine))
        super().__init__(path, deadline=deadline, cleanup_interval=cleanup_interval, clock=clock)
        self.engine = engine


def _path(engine: Engine) -> str:
    if engine.driver not in _DRIVERS:
        raise ConfigurationError(
            f"an SQLite engine with the driver {engine.driver} may work on files that only this driver can "
            f"read: expected one of {' and '.join(_DRIVERS)}"
        )
    url: URL = engine.url
    name = url.database or ""
    if _means_yes(url.query.get("uri")) or name.startswith("file:"):
        raise ConfigurationError(
            "the engine opens its file by an SQLite URI, whose options the store would not share: "
            "make it with a plain path, as in create_engine('sqlite:///app.db')"
        )
    if name in ("", ":memory:") or url.query.get("mode") == "memory":
        raise ConfigurationError(
            "the engine's address names no file.  A database in memory belongs to one connection and cannot "
            "hold a store: make the engine with a file, as in create_engine('sqlite:///app.db'), also where "
            "creator= opens it; or use stores.open('memory:') in tests"
        )
    return name


def _means_yes(value: str | tuple[str, ...] | None) -> bool:
    # As SQLAlchemy reads it.
    return isinstance(value, str) and value.strip().lower() in ("true", "yes", "on", "y", "t", "1")
