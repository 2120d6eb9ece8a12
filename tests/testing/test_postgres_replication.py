"""The primary and the standby that tests cut off, kill and promote.

Tests of fail-overs use them in `make test`.
"""

from threading import Thread

import psycopg
import pytest

from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.postgres_replication import PostgresReplication


def _count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM name").fetchone()
    assert row is not None
    count: int = row[0]
    return count


@pytest.mark.full
def test_a_synchronous_standby(postgres: PostgresServer) -> None:
    """What it does not have is not acknowledged, and clients find it when it is promoted."""
    del postgres  # only where there is one
    with PostgresReplication(synchronous=True, fsync="off") as servers:
        url = servers.new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE name (value int)")
            servers.cut()
            insert = Thread(target=connection.execute, args=["INSERT INTO name VALUES (1)"])
            insert.start()
            insert.join(0.3)
            assert insert.is_alive()
            servers.repair()
            insert.join()
        servers.fail_over()
        assert _count(url) == 1
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO name VALUES (2)")
        assert _count(url) == 2


@pytest.mark.full
def test_an_asynchronous_standby(postgres: PostgresServer) -> None:
    """What was committed while it was cut off is not there after it was promoted."""
    del postgres  # only where there is one
    with PostgresReplication(synchronous=False, fsync="off") as servers:
        url = servers.new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE name (value int)")
            servers.catch_up()
            servers.cut()
            connection.execute("INSERT INTO name VALUES (1)")
        assert _count(url) == 1
        servers.fail_over()
        assert _count(url) == 0
