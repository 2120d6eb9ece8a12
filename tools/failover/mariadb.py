"""MariaDB: the server is killed and started again."""

from retrysafe import stores
from retrysafe.testing.mariadb import MariaDBServer
from tools.failover.traffic import DEADLINE, Outcome, Traffic, outside


async def restarted(keys: int, **settings: str) -> Outcome:
    """`innodb_flush_log_at_trx_commit` says what is on the disk when a client is told so."""
    with MariaDBServer(**settings) as server:

        def fault(_: Traffic) -> None:
            server.kill()
            server.start()

        return await outside(stores.open(server.new_database(), deadline=DEADLINE), fault, keys)
