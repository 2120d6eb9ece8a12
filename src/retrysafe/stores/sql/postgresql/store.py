"""The PostgreSQL store: an address, a pool or a function that connects; the rest is `sql/store.py`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.stores.options import CLEANUP_INTERVAL, check_deadline
from retrysafe.stores.sql.cleanup import Cleanup
from retrysafe.stores.sql.keeper import SQLRenewer
from retrysafe.stores.sql.postgresql.admin import PostgresAdmin
from retrysafe.stores.sql.postgresql.connect import Address, Opened, Source
from retrysafe.stores.sql.postgresql.database import ApplicationPool, Database
from retrysafe.stores.sql.postgresql.join import JOINT
from retrysafe.stores.sql.postgresql.listen import Wake
from retrysafe.stores.sql.store import SQLStore

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool


class PostgresStore(SQLStore):
    """Records in a PostgreSQL database.

    Give one of these: `conninfo`, an address as libpq reads it (a URL, or `host=… dbname=…`); `pool`, a pool
    of psycopg_pool that the store has for itself; `connect`, a function that opens a `psycopg.Connection`.

    No operation waits longer than `deadline` seconds.  A process has one connection for its threads and one
    for each event loop, and up to two more of each while calls are run alone; one for the lease keeper; and
    one to listen, while a request waits for the response of another.  It creates its tables, unless
    `migrated_by` names a command that does.
    """

    joint = JOINT

    def __init__(
        self,
        conninfo: str | None = None,
        *,
        pool: "ConnectionPool[Any] | AsyncConnectionPool[Any] | None" = None,
        connect: Callable[[], Opened] | None = None,
        deadline: float = 2.0,
        cleanup_interval: Duration | None = CLEANUP_INTERVAL,
        migrated_by: str | None = None,
    ) -> None:
        check_deadline(deadline)
        if (conninfo is not None) + (pool is not None) + (connect is not None) != 1:
            raise ConfigurationError("a PostgreSQL store takes exactly one of an address, pool= and connect=")
        own_pool: ApplicationPool | None = None
        if pool is not None:
            # Here and not above: psycopg_pool is another package, for those who use it.
            from retrysafe.stores.sql.postgresql import application_pool

            source = Source(application_pool.connect_as(pool, deadline))
            own_pool = application_pool.ApplicationPool(pool, source, deadline)
        else:
            source = Source(connect or Address.parse(conninfo or "", deadline).connect)
        self._deadline = deadline
        self._cleanup = Cleanup(cleanup_interval)
        self._postgres = Database(source, deadline, own_pool, migrated_by)
        super().__init__(self._postgres)

    def subscribe(self, id: bytes, wake: Wake) -> Callable[[], None]:
        """Have `wake` called, in a thread of the store's, when this record is finished or released.

        Only for claims that are `announced`, and a notification may be missed: it shortens the wait, and does
        not replace `look`.  Returns a function that unsubscribes.
        """
        return self._postgres.subscribe(id, wake)

    def open_keeper(self) -> SQLRenewer:
        return SQLRenewer(self._postgres.executor(), self._deadline, self._cleanup)

    def open_admin(self) -> PostgresAdmin:
        return PostgresAdmin(self._postgres.operator, self._deadline)

    def close(self) -> None:
        self._postgres.close()
