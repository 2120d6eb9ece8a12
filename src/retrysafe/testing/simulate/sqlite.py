"""The real SQLite store in a world: a file, its statements, and transactions that carry effects."""

import atexit
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from retrysafe._core.model import Claim, Final
from retrysafe.stores.queue import Arguments, Row
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.sqlite.store import SQLiteStore
from retrysafe.testing.simulate.model import Within
from retrysafe.testing.simulate.setting import Clock

_PATIENCE = 20.0


class SimulatedSQLite(SQLiteStore):
    """The store as it is, and beside it a table for the effects of handlers.

    Opening a file takes longer than a whole world does, so it is opened once and emptied for each.  A world
    that closes it at its end leaves it open for the next one.
    """

    def __init__(self, folder: Path) -> None:
        self._world: Clock = float
        super().__init__(folder / "keys.db", deadline=_PATIENCE, clock=lambda: self._world())
        with closing(self.open_admin()) as admin:
            admin.migrate()
        self._side = sqlite3.connect(folder / "keys.db", isolation_level=None, timeout=_PATIENCE)
        self._side.execute("PRAGMA synchronous = OFF")
        self._side.execute("CREATE TABLE effects (effect BLOB NOT NULL)")

    def empty(self, clock: Clock) -> None:
        """Begin another world."""
        self._world = clock
        self._side.execute("DELETE FROM retrysafe_records")
        self._side.execute("DELETE FROM effects")

    def lose_lease(self, id: bytes) -> None:
        self._side.execute("UPDATE retrysafe_records SET lease_until = NULL WHERE id = ?", (id,))

    def commit_with_effect(self, claim: Claim, final: Final, effect: bytes) -> bool:
        self._side.execute("BEGIN IMMEDIATE")
        self._side.execute("INSERT INTO effects VALUES (?)", (effect,))
        stored = self.joint.perform(operations.conclude(claim, final), self._execute)
        self._side.execute("COMMIT" if stored else "ROLLBACK")
        return stored

    def could_store_within(self, within: Within) -> bool:
        self._side.execute("BEGIN IMMEDIATE")
        stored = self.joint.perform(operations.store_within(*within), self._execute)
        self._side.execute("ROLLBACK")
        return stored

    def commit_with_parts(
        self, claim: Claim, final: Final, effects: Sequence[bytes], parts: Sequence[Within]
    ) -> bool:
        self._side.execute("BEGIN IMMEDIATE")
        self._side.executemany("INSERT INTO effects VALUES (?)", [(effect,) for effect in effects])
        stored = all(
            self.joint.perform(operations.store_within(*part), self._execute) for part in parts
        ) and self.joint.perform(operations.conclude(claim, final), self._execute)
        self._side.execute("COMMIT" if stored else "ROLLBACK")
        return stored

    def _execute(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        return self._side.execute(sql, arguments).fetchall()

    def effects(self) -> Sequence[bytes]:
        return [effect for (effect,) in self._side.execute("SELECT effect FROM effects")]

    def close(self) -> None:
        """Leave the file open for the next world; `shut` closes it."""

    def shut(self) -> None:
        """Close the file, after the last world."""
        self._side.close()
        super().close()


@cache
def _opened() -> SimulatedSQLite:
    # Where there is a file system in memory: a world has no power cut, and need not wait for a disk.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder with a random name in it
    folder = Path(tempfile.mkdtemp(prefix="retrysafe-simulate-", dir=place))
    store = SimulatedSQLite(folder)
    atexit.register(_remove, store, folder, os.getpid())
    return store


def _remove(store: SimulatedSQLite, folder: Path, owner: int) -> None:
    """At the end of the process that made it: a child that is forked and ends must leave it alone."""
    if os.getpid() == owner:
        store.shut()
        shutil.rmtree(folder, ignore_errors=True)


def emptied(clock: Clock) -> SimulatedSQLite:
    """An empty store that uses this clock; one at a time."""
    store = _opened()
    store.empty(clock)
    return store
