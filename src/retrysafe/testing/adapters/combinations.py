"""Which adapters are tried under which servers, on which stores, in which mode: data for the table.

`tests/adapters` is held against it, so that the table claims nothing that is not run.
"""

from typing import Literal, NamedTuple

Extent = Literal["all", "part", "none"]


class Combination(NamedTuple):
    framework: str
    server: str
    processes: int
    store: str
    tx: bool
    extent: Extent
    """Of the suite in every run; in long runs, with `RETRYSAFE_LONG=1`, it is all of it everywhere."""


def _asgi(store: str, processes: int, tx: bool, extent: Extent) -> Combination:
    return Combination("asgi", "uvicorn", processes, store, tx, extent)


def _wsgi(server: str, store: str, processes: int, tx: bool, extent: Extent) -> Combination:
    return Combination("wsgi", server, processes, store, tx, extent)


def _django(server: str, store: str, processes: int, tx: bool, extent: Extent) -> Combination:
    return Combination("django", server, processes, store, tx, extent)


def _django_async(store: str, processes: int, tx: bool, extent: Extent) -> Combination:
    return Combination("django-async", "uvicorn", processes, store, tx, extent)


def _fastapi(store: str, processes: int, tx: bool, extent: Extent) -> Combination:
    return Combination("fastapi", "uvicorn", processes, store, tx, extent)


def _flask(server: str, store: str, processes: int, tx: bool, extent: Extent) -> Combination:
    return Combination("flask", server, processes, store, tx, extent)


COMBINATIONS = frozenset(
    {
        _asgi("SQLite", 1, False, "all"),
        _asgi("SQLite", 3, False, "part"),
        _asgi("PostgreSQL", 1, False, "part"),
        _asgi("PostgreSQL", 3, False, "part"),
        _asgi("SQLite", 1, True, "all"),
        _asgi("SQLite", 3, True, "part"),
        _asgi("PostgreSQL", 1, True, "part"),
        _asgi("PostgreSQL", 3, True, "part"),
        _asgi("MariaDB", 1, False, "part"),
        _asgi("MariaDB", 3, False, "part"),
        _asgi("MariaDB", 1, True, "part"),
        _asgi("Valkey", 1, False, "part"),
        _asgi("Valkey", 3, False, "part"),
        _asgi("SQLite, SQLAlchemy with pysqlite", 1, False, "part"),
        _asgi("SQLite, SQLAlchemy with pysqlite", 1, True, "none"),
        _asgi("SQLite, SQLAlchemy with aiosqlite", 1, False, "none"),
        _asgi("SQLite, SQLAlchemy with aiosqlite", 1, True, "part"),
        _asgi("PostgreSQL, SQLAlchemy with psycopg", 1, False, "none"),
        _asgi("PostgreSQL, SQLAlchemy with psycopg", 1, True, "part"),
        _asgi("PostgreSQL, SQLAlchemy with asyncpg", 1, False, "part"),
        _asgi("PostgreSQL, SQLAlchemy with asyncpg", 1, True, "part"),
        _django("gthread", "SQLite", 1, False, "all"),
        _django("sync", "SQLite", 5, False, "part"),
        _django("waitress", "SQLite", 1, False, "part"),
        _django("gthread", "PostgreSQL", 1, False, "part"),
        _django("gthread", "PostgreSQL", 3, False, "none"),
        _django("gthread", "SQLite", 1, True, "part"),
        _django("sync", "SQLite", 5, True, "none"),
        _django("gthread", "PostgreSQL", 1, True, "part"),
        _django("gthread", "PostgreSQL", 3, True, "part"),
        _django_async("SQLite", 1, False, "all"),
        _django_async("SQLite", 3, False, "part"),
        _django_async("PostgreSQL", 1, False, "part"),
        _django_async("SQLite", 1, True, "part"),
        _django_async("PostgreSQL", 1, True, "part"),
        _fastapi("SQLite", 1, False, "all"),
        _fastapi("SQLite", 3, False, "part"),
        _fastapi("PostgreSQL", 1, False, "part"),
        _fastapi("SQLite", 1, True, "part"),
        _fastapi("PostgreSQL", 1, True, "part"),
        _flask("gthread", "SQLite", 1, False, "all"),
        _flask("sync", "SQLite", 5, False, "part"),
        _flask("waitress", "SQLite", 1, False, "part"),
        _flask("gthread", "PostgreSQL", 1, False, "part"),
        _flask("gthread", "SQLite", 1, True, "part"),
        _flask("sync", "SQLite", 5, True, "none"),
        _flask("gthread", "PostgreSQL", 1, True, "part"),
        _wsgi("gthread", "SQLite", 1, False, "all"),
        _wsgi("gthread", "SQLite", 3, False, "part"),
        _wsgi("sync", "SQLite", 5, False, "part"),
        _wsgi("waitress", "SQLite", 1, False, "part"),
        _wsgi("gthread", "PostgreSQL", 1, False, "part"),
        _wsgi("gthread", "SQLite", 1, True, "part"),
        _wsgi("gthread", "PostgreSQL", 1, True, "part"),
        _wsgi("gthread", "PostgreSQL", 3, True, "part"),
        _wsgi("gthread", "MariaDB", 1, True, "part"),
        _wsgi("gthread", "MariaDB, SQLAlchemy with pymysql", 1, True, "none"),
        _asgi("MariaDB, SQLAlchemy with pymysql", 1, False, "none"),
        _asgi("MariaDB, SQLAlchemy with pymysql", 1, True, "part"),
        _asgi("MariaDB, SQLAlchemy with asyncmy", 1, False, "part"),
        _asgi("MariaDB, SQLAlchemy with asyncmy", 1, True, "none"),
        _wsgi("gthread", "SQLite, SQLAlchemy with pysqlite", 1, True, "part"),
        _wsgi("gthread", "PostgreSQL, SQLAlchemy with psycopg", 1, True, "none"),
    }
)
