"""Behind a pooler in transaction mode: nothing of the store depends on a session."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from retrysafe._core.model import Found, Reserved
from retrysafe.stores.contract import Store
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.claims import Claims
from retrysafe.testing.stores.concurrency import Concurrency
from retrysafe.testing.stores.harness import Elapse, LoseLease
from retrysafe.testing.stores.outcomes import Outcomes
from retrysafe.testing.stores.renewals import Renewals
from retrysafe.testing.stores.takeovers import Takeovers
from tests.stores.pooler import Pooler
from tests.stores.rows import PATIENT, Rows


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[Rows]:
    rows = Rows(postgres.new_database())
    yield rows
    rows.close()
    postgres.drop_database(rows.url)


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer, shared: Rows) -> Iterator[Pooler]:
    with Pooler(postgres.port, shared.url.rpartition("/")[2]) as pooler:
        yield pooler


@pytest.fixture
def rows(shared: Rows) -> Rows:
    shared.forget()
    return shared


class TestPooled(Claims, Takeovers, Outcomes, Renewals, Concurrency):
    """What requests and leases do, with two sessions for everybody."""

    @pytest.fixture
    def store(self, rows: Rows, pooler: Pooler) -> Iterator[Store]:
        del rows
        store = PostgresStore(pooler.url, deadline=PATIENT)
        yield store
        store.close()

    @pytest.fixture
    def elapse(self, rows: Rows) -> Elapse:
        return rows.elapse

    @pytest.fixture
    def lose_lease(self, rows: Rows) -> LoseLease:
        return rows.lose_lease


def test_prepared_statements_are_given_up(rows: Rows, pooler: Pooler) -> None:
    """A few claims are enough to notice; none of them fails, and afterwards nothing is prepared any more."""
    store = PostgresStore(pooler.url, deadline=PATIENT)

    async def crowds() -> list[object]:
        return [
            reservation
            for crowd in range(20)
            for reservation in await asyncio.gather(
                *(store.aio.reserve(a_claim(f"{crowd} {n}")) for n in range(crowd % 4))
            )
        ]

    assert asyncio.run(crowds()) == [Reserved(1)] * 30
    assert store._postgres._source.mode.named is False
    claim = a_claim()
    before = pooler.transactions
    assert store.reserve(claim) == Reserved(1)
    opening = pooler.transactions - before
    assert store.finish(claim, an_outcome()) is True
    assert isinstance(store.reserve(a_claim()), Found)
    assert pooler.transactions - before - opening == 2, "one statement each, and one transaction"
    store.close()


def test_locks_are_bounded_here_too(rows: Rows, pooler: Pooler) -> None:
    """The bound is part of the statement, and gone with it: the sessions are as they were."""
    store = PostgresStore(pooler.url, deadline=0.5)
    claim = a_claim()
    store.reserve(claim)
    with psycopg.connect(rows.url) as holder:
        holder.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")
        with pytest.raises(Exception, match=r"lock timeout|timed out"):
            store.finish(claim, an_outcome())
    store.close()
    for _ in range(8):
        with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as connection:
            assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_prepared_statements_stay_where_they_can(postgres: PostgresServer, rows: Rows) -> None:
    """A pooler that keeps them, or gives its client the same session again, is no reason to give them up."""
    with Pooler(postgres.port, rows.url.rpartition("/")[2], gives="last") as pooler:
        store = PostgresStore(pooler.url, deadline=PATIENT)
        for n in range(10):
            assert store.reserve(a_claim(f"{n}")) == Reserved(1)
        assert store._postgres._source.mode.named is True
        store.close()
