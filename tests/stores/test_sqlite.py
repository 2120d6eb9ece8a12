"""The SQLite store passes the suite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing import ManualClock, StoreSuite
from retrysafe.testing.stores.harness import LoseLease


class TestSQLite(StoreSuite):
    """The suite."""

    @pytest.fixture
    def store(self, tmp_path: Path, clock: ManualClock) -> Iterator[SQLiteStore]:
        # A patient one: a hundred threads on a busy machine are no fault of the store.
        store = SQLiteStore(tmp_path / "keys.db", deadline=20.0, clock=clock)
        yield store
        store.close()

    @pytest.fixture
    def lose_lease(self, tmp_path: Path) -> LoseLease:
        def lose(id: bytes) -> None:
            with closing(sqlite3.connect(tmp_path / "keys.db")) as connection, connection:
                connection.execute("UPDATE retrysafe_records SET lease_until = NULL WHERE id = ?", (id,))

        return lose
