"""Connections from elsewhere: a pool that the application made, a function that opens one, an address."""

import asyncio
import os
import time
from collections.abc import Callable

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from retrysafe._core.model import Found, Reserved
from retrysafe.errors import ConfigurationError, StoreUnavailable
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.stores.sql.postgresql.connect import Address
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.rows import PATIENT


def eventually(is_true: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENT
    while not is_true():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class TestPools:
    def test_a_pool_for_threads(self, database: str) -> None:
        """Threads use its connections and give them back; coroutines, keeper and operator have others, opened
        as the pool opens them."""
        kwargs = {"application_name": "from the pool", "row_factory": dict_row}
        with ConnectionPool(database, min_size=1, max_size=2, kwargs=kwargs) as pool:
            store = PostgresStore(pool=pool, deadline=PATIENT)
            claim = a_claim()
            assert store.reserve(claim) == Reserved(1)
            assert pool.get_stats()["pool_size"] - pool.get_stats()["pool_available"] == 1
            assert asyncio.run(store.aio.finish(claim, an_outcome())) is True
            keeper = store.open_keeper()
            assert keeper.renew([claim]) == [True]
            keeper.close()
            with psycopg.connect(database) as connection:
                names = connection.execute(
                    "SELECT DISTINCT application_name FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                ).fetchall()
            assert names == [("from the pool",)]
            store.close()
            assert eventually(lambda: pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"])
            with pool.connection() as connection:
                row: object = connection.execute("SELECT 1 AS one").fetchone()
            assert row == {"one": 1}, "it works as before"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_child_takes_nothing_from_it(self, database: str) -> None:
        """The connections that wait in it are the parent's; the child opens its own, as the pool does."""
        with ConnectionPool(database, min_size=2, max_size=2) as pool:
            pool.wait()
            store = PostgresStore(pool=pool, deadline=PATIENT)
            store.reserve(a_claim())
            child = os.fork()
            if child == 0:
                try:
                    assert isinstance(store.reserve(a_claim()), Found)
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            with pool.connection() as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            assert isinstance(store.reserve(a_claim()), Found)
            store.close()

    def test_a_pool_for_coroutines(self, database: str) -> None:
        """The loop that it was opened in uses its connections; another loop, and threads, have others."""

        async def use() -> None:
            async with AsyncConnectionPool(database, min_size=1, max_size=2, open=False) as pool:
                store = PostgresStore(pool=pool, deadline=PATIENT)
                claim = a_claim()
                assert await store.aio.reserve(claim) == Reserved(1)
                assert pool.get_stats()["pool_size"] - pool.get_stats()["pool_available"] == 1
                crowd = await asyncio.gather(*(store.aio.reserve(a_claim()) for _ in range(20)))
                assert {type(answer) for answer in crowd} == {Found}
                elsewhere = await asyncio.to_thread(lambda: asyncio.run(store.aio.look(claim.id)))
                assert elsewhere is not None
                assert await asyncio.to_thread(store.finish, claim, an_outcome()) is True
                store.close()

        asyncio.run(use())

    def test_a_pool_that_is_closed(self, database: str) -> None:
        """It is told as any other trouble."""
        pool = ConnectionPool(database, min_size=1, open=False)
        store = PostgresStore(pool=pool)
        with pytest.raises(StoreUnavailable, match="cannot connect"):
            store.reserve(a_claim())
        store.close()

    def test_a_pool_whose_address_changes(self) -> None:
        """It would have to be asked in ways that differ: whoever has one is told another way."""
        with pytest.raises(ConfigurationError, match="connect="):
            PostgresStore(pool=ConnectionPool(lambda: "dbname=x", open=False))


def test_a_function_that_connects(database: str) -> None:
    """As an engine's is used: every connection of the store comes from it."""
    opened = 0

    def connect() -> "psycopg.Connection[tuple[object, ...]]":
        nonlocal opened
        opened += 1
        return psycopg.connect(database)

    store = PostgresStore(connect=connect, deadline=PATIENT)
    assert store.reserve(a_claim()) == Reserved(1)
    assert isinstance(asyncio.run(store.aio.reserve(a_claim())), Found)
    assert opened == 2
    store.close()


class TestAddresses:
    def test_what_the_address_says_is_done(self) -> None:
        """And what it leaves open has a value that suits a store."""
        parameters = Address.parse(
            "postgresql://user@db/app?connect_timeout=7&keepalives_idle=5", 2.0
        ).parameters
        assert (parameters["connect_timeout"], parameters["keepalives_idle"]) == ("7", "5")
        assert parameters["client_encoding"] == "UTF8"
        assert "options" not in parameters, "poolers refuse them"
        assert "target_session_attrs" not in parameters
        assert Address.parse("dbname=app", 3.5).parameters["connect_timeout"] == 4

    def test_of_several_hosts_the_primary_is_meant(self) -> None:
        """Unless the address says otherwise."""
        assert Address.parse("host=a,b", 2.0).parameters["target_session_attrs"] == "read-write"
        assert (
            Address.parse("host=a,b target_session_attrs=any", 2.0).parameters["target_session_attrs"]
            == "any"
        )
