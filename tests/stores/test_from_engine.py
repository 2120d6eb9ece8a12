"""Stores from SQLAlchemy engines pass the suite, whichever driver the engine has."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from retrysafe import stores
from retrysafe.stores.contract import Store
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine
from retrysafe.stores.sql.sqlalchemy.sqlite import EngineSQLiteStore
from retrysafe.testing import ManualClock, StoreSuite
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores.harness import Elapse, LoseLease
from tests.stores.engines import engine_for
from tests.stores.rows import PATIENT, Rows

LONG = "RETRYSAFE_LONG" in os.environ


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[Rows]:
    """One database for all suites, because to make one takes longer than most of their tests."""
    url = postgres.new_database()
    rows = Rows(url)
    yield rows
    rows.close()
    postgres.drop_database(url)


@pytest.fixture(scope="module")
def engines(shared: Rows) -> Callable[[str], AnyEngine]:
    """The application's engine of each driver; it never opens a connection itself."""
    return cache(lambda driver: engine_for(shared.url, driver))


class EngineSuite(StoreSuite):
    driver: str

    @pytest.fixture
    def rows(self, shared: Rows) -> Rows:
        shared.forget()
        return shared

    @pytest.fixture
    def store(self, rows: Rows, engines: Callable[[str], AnyEngine]) -> Iterator[Store]:
        store = stores.from_engine(engines(self.driver), deadline=PATIENT)
        yield store
        store.close()

    @pytest.fixture
    def elapse(self, rows: Rows) -> Elapse:
        return rows.elapse

    @pytest.fixture
    def lose_lease(self, rows: Rows) -> LoseLease:
        return rows.lose_lease


class TestAsyncpg(EngineSuite):
    driver = "asyncpg"


if LONG:  # takes half a minute

    class TestPg8000(EngineSuite):
        driver = "pg8000"


if LONG:  # these differ from the PostgreSQL store in how connections open only

    class TestPsycopg(EngineSuite):
        driver = "psycopg"

    class TestPsycopgAsync(EngineSuite):
        driver = "psycopg_async"


class SQLiteSuite(StoreSuite):
    driver: str

    @pytest.fixture
    def store(self, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
        # As `from_engine` makes it, but by this clock.
        store = EngineSQLiteStore(
            engine_for(f"sqlite:///{tmp_path}/app.db", self.driver), PATIENT, clock=clock
        )
        yield store
        store.close()

    @pytest.fixture
    def lose_lease(self, tmp_path: Path) -> LoseLease:
        def lose(id: bytes) -> None:
            with closing(sqlite3.connect(tmp_path / "app.db")) as connection, connection:
                connection.execute("UPDATE retrysafe_records SET lease_until = NULL WHERE id = ?", (id,))

        return lose


if LONG:  # they differ from the SQLite store in how the file is named only

    class TestPysqlite(SQLiteSuite):
        driver = "pysqlite"

    class TestAiosqlite(SQLiteSuite):
        driver = "aiosqlite"
