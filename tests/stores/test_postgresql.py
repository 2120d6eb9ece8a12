"""The PostgreSQL store passes the suite, on psycopg's connections."""

from collections.abc import Iterator

import pytest

from retrysafe.stores.contract import Store
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.testing import StoreSuite
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores.harness import Elapse, LoseLease
from tests.stores.rows import PATIENT, Rows


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[Rows]:
    """One database for the whole suite, because to make one takes longer than most of its tests."""
    url = postgres.new_database()
    rows = Rows(url)
    yield rows
    rows.close()
    postgres.drop_database(url)


class TestPostgres(StoreSuite):
    @pytest.fixture
    def rows(self, shared: Rows) -> Rows:
        shared.forget()
        return shared

    @pytest.fixture
    def store(self, rows: Rows) -> Iterator[Store]:
        store = PostgresStore(rows.url, deadline=PATIENT)
        yield store
        store.close()

    @pytest.fixture
    def elapse(self, rows: Rows) -> Elapse:
        return rows.elapse

    @pytest.fixture
    def lose_lease(self, rows: Rows) -> LoseLease:
        return rows.lose_lease
