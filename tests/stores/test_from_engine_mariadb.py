"""Stores from SQLAlchemy engines of MySQL and MariaDB pass the suite, whichever driver the engine has."""

import os
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from retrysafe import stores
from retrysafe.stores.contract import Store
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine
from retrysafe.testing import StoreSuite
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.stores.harness import Elapse, LoseLease
from tests.stores.engines import engine_for
from tests.stores.rows import PATIENT
from tests.stores.rows_mysql import Rows

LONG = "RETRYSAFE_LONG" in os.environ


@pytest.fixture(scope="module")
def shared(mariadb: MariaDBServer) -> Iterator[Rows]:
    """One database for all suites, because to make one takes longer than most of their tests."""
    rows = Rows(mariadb)
    yield rows
    rows.close()


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


if LONG:  # the suite of the store by address has the same statements, on the same drivers

    class TestAsyncmy(EngineSuite):
        driver = "asyncmy"

    class TestAiomysql(EngineSuite):
        driver = "aiomysql"

    class TestMysqlconnector(EngineSuite):
        driver = "mysqlconnector"

    class TestPyMySQL(EngineSuite):
        driver = "pymysql"
