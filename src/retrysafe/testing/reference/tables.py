"""What the service did, as rows in the store's own database: with `--tx`, effects and response are committed
together.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from retrysafe.errors import ConfigurationError
from retrysafe.testing.reference.databases import Database
from retrysafe.testing.reference.journal import Files

EFFECT = "INSERT INTO reference_effects (label) VALUES (:label)"
EFFECTS = "SELECT count(*) FROM reference_effects WHERE label = :label"


class Dialect(NamedTuple):
    """What databases write in different ways."""

    create: tuple[str, ...]
    delete: str
    """Inserts one row, or none if it is there."""


_COMMON = Dialect(
    (
        "CREATE TABLE IF NOT EXISTS reference_effects (label text NOT NULL)",
        "CREATE INDEX IF NOT EXISTS reference_effects_label ON reference_effects (label)",
        "CREATE TABLE IF NOT EXISTS reference_deleted (id text PRIMARY KEY)",
    ),
    "INSERT INTO reference_deleted (id) VALUES (:id) ON CONFLICT DO NOTHING",
)
_MYSQL = Dialect(
    (
        # Bytes: texts that a collation takes for the same would be counted together.
        "CREATE TABLE IF NOT EXISTS reference_effects "
        "(label VARBINARY(1024) NOT NULL, INDEX (label)) ENGINE = InnoDB",
        "CREATE TABLE IF NOT EXISTS reference_deleted (id VARBINARY(1024) PRIMARY KEY) ENGINE = InnoDB",
    ),
    # Without `ON DUPLICATE KEY UPDATE`: SQLAlchemy and Django have rows counted that were only found.
    "INSERT IGNORE INTO reference_deleted (id) VALUES (:id)",
)


def dialect_of(url: str) -> Dialect:
    return _MYSQL if url.startswith(("mysql", "mariadb")) else _COMMON


LOCK = 7_305_808_869_231_650_935
"""Of those who create the tables, by which processes that start together wait for each other: a number that
no other program uses."""

PATIENCE = 20.0


class Tables(Files):
    """Effects and deletions in tables; attempts in files, where no rollback reaches them.

    The files' own effects are the rows that were written, whether they were committed or not.
    """

    def __init__(self, database: Database, dialect: Dialect, attempts: Path) -> None:
        super().__init__(attempts)
        self._database = database
        self._dialect = dialect

    def open(self) -> None:
        self._database.open()

    def close(self) -> None:
        self._database.close()

    def effect(self, label: str) -> None:
        self._database.insert(EFFECT, label=_storable(label))
        self._effects.note(label)

    def effects(self, label: str) -> int:
        ((count,),) = self._database.ask(EFFECTS, label=_storable(label))
        return int(count)

    def delete(self, item: str) -> bool:
        return self._database.insert(self._dialect.delete, id=_storable(item)) == 1


def create(url: str) -> None:
    """Create the tables where they are missing, even if other processes do so at the same moment.

    By the drivers themselves, and not as the application: this is before it is served, and before any fork.
    """
    scheme, _, address = url.partition(":")
    try:
        if scheme.startswith("sqlite"):
            _create_in_sqlite(address.removeprefix("///"))
        elif scheme.startswith(("mysql", "mariadb")):
            _create_in_mysql(url)
        else:
            _create_in_postgres(f"postgresql:{address}")
    except (sqlite3.Error, OSError) as error:
        raise ConfigurationError(f"the application's tables cannot be created: {error}") from error


def _create_in_sqlite(path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as database:
        database.execute("BEGIN IMMEDIATE")
        for statement in _COMMON.create:
            database.execute(statement)
        database.execute("COMMIT")


def _create_in_postgres(address: str) -> None:
    import psycopg

    try:
        with psycopg.connect(address, connect_timeout=int(PATIENCE)) as database:
            database.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            for statement in _COMMON.create:
                database.execute(statement.encode())
    except psycopg.Error as error:
        raise ConfigurationError(f"the application's tables cannot be created: {error}") from error


def _create_in_mysql(url: str) -> None:
    import pymysql

    from retrysafe.testing.reference.databases import connect_to_mysql

    try:
        with closing(connect_to_mysql(url)) as database, database.cursor() as cursor:
            for statement in _MYSQL.create:
                cursor.execute(statement)
    except pymysql.MySQLError as error:
        raise ConfigurationError(f"the application's tables cannot be created: {error}") from error


def _storable(text: str) -> str:
    """PostgreSQL has no NUL in a text, and neither database has half a surrogate pair."""
    return re.sub("\0", " ", text).encode("utf-8", "replace").decode()
