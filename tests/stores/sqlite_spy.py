"""What connections to an SQLite file do when they commit: their pragmas, and whether the file lock is held.

Every connection is a real one.  It is watched from outside, by SQLite's trace of its statements, so that it
does not matter who opened it: the store, a handler's library, or SQLAlchemy.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from sqlite3 import dbapi2
from typing import Any, NamedTuple

import pytest

from retrysafe.stores.sql.sqlite.filelock import FileLock

FULL = 2


class Settings(NamedTuple):
    """What a connection works with."""

    journal_mode: str = "wal"
    synchronous: int = FULL
    wal_autocheckpoint: int = 1000
    busy_timeout: int = 2000
    query_only: int = 0


class Write(NamedTuple):
    """A commit, or a statement that writes without a transaction."""

    sql: str
    locked: bool
    thread: str


class Watched:
    """One connection, and what it wrote."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self.db = db
        self.writes: list[Write] = []
        self._path = path
        db.set_trace_callback(self._traced)

    def settings(self) -> Settings:
        return settings(lambda pragma: self.db.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _traced(self, sql: str) -> None:
        word = sql.lstrip().partition(" ")[0].upper()
        if word in ("COMMIT", "BEGIN", "INSERT", "CREATE") and sql != "BEGIN":
            self.writes.append(Write(word, lock_is_held(self._path), threading.current_thread().name))


def settings(read: Callable[[str], Any]) -> Settings:
    return Settings(*(read(pragma) for pragma in Settings._fields))


def lock_is_held(path: Path) -> bool:
    """By whoever it is: a lock of another descriptor is refused, in this process too."""
    with contextlib.closing(FileLock(str(path))) as lock:
        return not lock.try_acquire()


@pytest.fixture
def connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    """Those that were opened since, by whatever means."""
    opened: list[Watched] = []
    connect = sqlite3.connect

    def watch(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(database, *args, **options)
        name = str(database).removeprefix("file://").partition("?")[0]
        opened.append(Watched(db, Path(name)))
        return db

    monkeypatch.setattr(sqlite3, "connect", watch)
    monkeypatch.setattr(dbapi2, "connect", watch)
    return opened
