"""The MySQL store passes the suite on MariaDB, by PyMySQL and by asyncmy."""

from collections.abc import Iterator

import pytest

from retrysafe.stores.contract import Store
from retrysafe.stores.sql.mysql import MySQLStore
from retrysafe.testing import StoreSuite
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.stores.harness import Elapse, LoseLease
from tests.stores.rows import PATIENT
from tests.stores.rows_mysql import Rows


@pytest.fixture(scope="module")
def shared(mariadb: MariaDBServer) -> Iterator[Rows]:
    """One database for the whole suite, because to make one takes longer than most of its tests."""
    rows = Rows(mariadb)
    yield rows
    rows.close()


class TestMySQL(StoreSuite):
    @pytest.fixture
    def rows(self, shared: Rows) -> Rows:
        shared.forget()
        return shared

    @pytest.fixture
    def store(self, rows: Rows) -> Iterator[Store]:
        store = MySQLStore(rows.url, deadline=PATIENT)
        yield store
        store.close()

    @pytest.fixture
    def elapse(self, rows: Rows) -> Elapse:
        return rows.elapse

    @pytest.fixture
    def lose_lease(self, rows: Rows) -> LoseLease:
        return rows.lose_lease
