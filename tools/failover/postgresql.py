"""PostgreSQL: the server is killed and started again, or its standby takes over."""

import psycopg
from psycopg_pool import AsyncConnectionPool

from retrysafe import stores
from retrysafe.psycopg import connection_async
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.postgres_replication import PostgresReplication
from tools.failover.traffic import DEADLINE, Fault, Outcome, Traffic, outside


async def restarted(keys: int, **settings: str) -> Outcome:
    """Killed and started again: `synchronous_commit` says what is on the disk."""
    with PostgresServer(**settings) as server:

        def fault(_: Traffic) -> None:
            server.kill()
            server.start()

        return await outside(stores.open(server.new_database(), deadline=DEADLINE), fault, keys)


async def promoted(keys: int, *, synchronous: bool, behind: bool = False, **settings: str) -> Outcome:
    """The primary is killed, and its standby promoted.  `behind`: it had not received the last records."""
    with PostgresReplication(synchronous=synchronous, **settings) as servers:
        store = stores.open(servers.new_database(), deadline=DEADLINE)
        return await outside(store, _fault(servers, keys if behind else 0), keys)


async def promoted_with_transactions(keys: int, *, synchronous: bool, **settings: str) -> Outcome:
    """The same, where each effect is a row of the database, in one transaction with its record."""
    with PostgresReplication(synchronous=synchronous, **settings) as servers:
        url = servers.new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (key text, id text)")
        pool = AsyncConnectionPool(
            url, max_size=8, timeout=DEADLINE, open=False, check=AsyncConnectionPool.check_connection
        )

        async def enter(key: str, order: str) -> None:
            async with connection_async(traffic.guard, pool) as db:
                await db.execute("INSERT INTO orders VALUES (%s, %s)", [key, order])

        traffic = Traffic(stores.open(url, deadline=DEADLINE), enter=enter)
        await pool.open()
        try:
            outcome = await traffic.through(_fault(servers, 0), keys)
        finally:
            await traffic.close()
            await pool.close()
        with psycopg.connect(url) as connection:
            twice = connection.execute("SELECT count(*) - count(DISTINCT key) FROM orders").fetchone()
        assert twice is not None
        return outcome._replace(repeated=twice[0])


def _fault(servers: PostgresReplication, behind: int) -> Fault:
    def fault(traffic: Traffic) -> None:
        if behind:
            servers.cut()
            traffic.wait_for_acknowledged(behind)
        servers.fail_over()

    return fault
