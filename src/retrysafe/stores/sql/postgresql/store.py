"""The PostgreSQL store as the contract wants it: named methods, once blocking and once for coroutines."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Purged,
    Reservation,
    Response,
    Unsettled,
)
from retrysafe.errors import ConfigurationError
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.join import Joint
from retrysafe.stores.sql.postgresql import cleanup
from retrysafe.stores.sql.postgresql.admin import PostgresAdmin
from retrysafe.stores.sql.postgresql.connect import Address, Opened, Source
from retrysafe.stores.sql.postgresql.database import ApplicationPool, Database
from retrysafe.stores.sql.postgresql.keeper import PostgresRenewer
from retrysafe.stores.sql.postgresql.listen import Wake

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool


class PostgresStore:
    """Records in a PostgreSQL database.

    Give one of these: `conninfo`, an address as libpq reads it (a URL, or `host=… dbname=…`); `pool`, a pool
    of psycopg_pool that the store has for itself; `connect`, a function that opens a `psycopg.Connection`.

    No operation waits longer than `deadline` seconds.  A process has at most four connections for its threads
    and eight for each event loop, opened as they are needed; one for the lease keeper; and one to listen,
    while a request waits for the response of another.
    """

    joint = Joint("postgresql")

    def __init__(
        self,
        conninfo: str | None = None,
        *,
        pool: "ConnectionPool[Any] | AsyncConnectionPool[Any] | None" = None,
        connect: Callable[[], Opened] | None = None,
        deadline: float = 2.0,
    ) -> None:
        if not deadline > 0:
            raise ConfigurationError(f"deadline must be greater than 0, got {deadline:g}")
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
        self._database = Database(source, deadline, own_pool)
        self.aio = AsyncPostgresStore(self._database)

    def reserve(self, claim: Claim) -> Reservation:
        return self._database.run(partial(operations.reserve, claim))

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return self._database.run(partial(operations.take_over, claim, previous, state))

    def look(self, id: bytes) -> Found | None:
        return self._database.run(partial(operations.look, id))

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        return self._database.run(partial(operations.checkpoint, claim, head))

    def finish(self, claim: Claim, final: Final) -> bool:
        return self._database.run(partial(operations.finish, claim, final))

    def release(self, claim: Claim) -> None:
        self._database.run(partial(operations.release, claim))

    def purge(self, limit: int = 500) -> Purged:
        return cleanup.purge(self._database.run, limit)

    def subscribe(self, id: bytes, wake: Wake) -> Callable[[], None]:
        """Have `wake` called, in a thread of the store's, when this record is finished or released.

        Only for claims that are `announced`, and a notification may be missed: it shortens the wait, and does
        not replace `look`.  Returns a function that unsubscribes.
        """
        return self._database.subscribe(id, wake)

    def open_keeper(self) -> PostgresRenewer:
        return PostgresRenewer(self._database.executor())

    def open_admin(self) -> PostgresAdmin:
        return PostgresAdmin(self._database.operator, self._deadline)

    def close(self) -> None:
        self._database.close()


class AsyncPostgresStore:
    """The same for coroutines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, claim: Claim) -> Reservation:
        return await self._database.run_async(partial(operations.reserve, claim))

    async def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return await self._database.run_async(partial(operations.take_over, claim, previous, state))

    async def look(self, id: bytes) -> Found | None:
        return await self._database.run_async(partial(operations.look, id))

    async def checkpoint(self, claim: Claim, head: Response) -> bool:
        return await self._database.run_async(partial(operations.checkpoint, claim, head))

    async def finish(self, claim: Claim, final: Final) -> bool:
        return await self._database.run_async(partial(operations.finish, claim, final))

    async def release(self, claim: Claim) -> None:
        await self._database.run_async(partial(operations.release, claim))
