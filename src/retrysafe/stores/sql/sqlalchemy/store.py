"""A PostgreSQL store on SQLAlchemy's connections: for asyncpg, pg8000, psycopg2 and whatever else there is.

Operations and statements are those of every PostgreSQL store.  What runs them is the engine's driver, and a
driver is of one kind.  The other half of the contract, the lease keeper and the operator's end use threads.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from retrysafe._core.model import (
    Claim,
    Final,
    Found,
    Purged,
    Reservation,
    Response,
    Unsettled,
)
from retrysafe.stores.admin import Admin
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.join import Joint
from retrysafe.stores.sql.operations import Operation
from retrysafe.stores.sql.postgresql import cleanup
from retrysafe.stores.sql.postgresql.admin import AdminConnection, PostgresAdmin
from retrysafe.stores.sql.postgresql.keeper import PostgresRenewer
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine

T = TypeVar("T")


class Executor(Protocol):
    """Some connections, and how operations are performed with them."""

    def run(self, make: Callable[[], Operation[T]]) -> T: ...
    async def run_async(self, make: Callable[[], Operation[T]]) -> T: ...
    def close(self) -> None: ...


class EngineStore:
    """Records in the database of an engine."""

    def __init__(
        self,
        engine: AnyEngine,
        executor: Callable[[int], Executor],
        operator: Callable[[], AdminConnection],
        connections: int,
        deadline: float,
    ) -> None:
        self.engine = engine
        self.joint = Joint("postgresql")
        self._make_executor = executor
        self._make_session = operator
        self._deadline = deadline
        self._executor = executor(connections)
        self.aio = AsyncEngineStore(self._executor)

    def reserve(self, claim: Claim) -> Reservation:
        return self._executor.run(partial(operations.reserve, claim))

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return self._executor.run(partial(operations.take_over, claim, previous, state))

    def look(self, id: bytes) -> Found | None:
        return self._executor.run(partial(operations.look, id))

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        return self._executor.run(partial(operations.checkpoint, claim, head))

    def finish(self, claim: Claim, final: Final) -> bool:
        return self._executor.run(partial(operations.finish, claim, final))

    def release(self, claim: Claim) -> None:
        self._executor.run(partial(operations.release, claim))

    def purge(self, limit: int = 500) -> Purged:
        return cleanup.purge(self._executor.run, limit)

    def open_keeper(self) -> PostgresRenewer:
        return PostgresRenewer(self._make_executor(1))

    def open_admin(self) -> Admin:
        return PostgresAdmin(self._make_session, self._deadline)

    def close(self) -> None:
        self._executor.close()


class AsyncEngineStore:
    """The same for coroutines."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def reserve(self, claim: Claim) -> Reservation:
        return await self._executor.run_async(partial(operations.reserve, claim))

    async def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return await self._executor.run_async(partial(operations.take_over, claim, previous, state))

    async def look(self, id: bytes) -> Found | None:
        return await self._executor.run_async(partial(operations.look, id))

    async def checkpoint(self, claim: Claim, head: Response) -> bool:
        return await self._executor.run_async(partial(operations.checkpoint, claim, head))

    async def finish(self, claim: Claim, final: Final) -> bool:
        return await self._executor.run_async(partial(operations.finish, claim, final))

    async def release(self, claim: Claim) -> None:
        await self._executor.run_async(partial(operations.release, claim))
