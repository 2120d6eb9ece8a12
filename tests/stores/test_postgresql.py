"""The PostgreSQL store passes the suite, on psycopg's connections."""

from collections.abc import Iterator

import pytest

from retrysafe.stores.contract import Found, Reserved, Store
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.testing import StoreSuite
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores import a_claim, an_outcome
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


def test_a_clock_that_jumps(shared: Rows) -> None:
    """As *When can my code run twice?* has it.  Back: nothing runs again.  Forward, or put right: leases and
    retention end early."""
    shared.forget()
    store = PostgresStore(shared.url, deadline=PATIENT)
    done, running, dead = a_claim("done"), a_claim("running"), a_claim("dead")
    for claim in (done, running, dead):
        store.reserve(claim)
    store.finish(done, an_outcome())

    shared.elapse(-3600.0)
    assert isinstance(store.reserve(a_claim("done")), Found), "replayed"
    keeper = store.open_keeper()
    assert list(keeper.renew([running])) == [True]
    shared.elapse(31.0)
    assert isinstance(store.take_over(a_claim("dead"), dead.token, "in_progress"), Found), "as if it lived"
    assert store.take_over(a_claim("running"), running.token, "in_progress") == Reserved(2), "not renewed"

    late, brief = a_claim("late")._replace(retention=86400.0), a_claim("brief")
    store.reserve(late)
    store.reserve(brief)
    store.finish(brief, an_outcome())
    shared.elapse(3600.0)
    assert store.take_over(a_claim("dead"), dead.token, "in_progress") == Reserved(2)
    assert store.take_over(a_claim("late"), late.token, "in_progress") == Reserved(2), "though it is running"
    assert store.reserve(a_claim("brief")) == Reserved(1), "a new key"
    keeper.close()
    store.close()
