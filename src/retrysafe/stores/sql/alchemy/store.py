"""A PostgreSQL store on SQLAlchemy's connections: for asyncpg, pg8000, psycopg2 and whatever else there is.

Operations and statements are those of every PostgreSQL store.  What runs them is the engine's driver, and a
driver is of one kind.  The other half of the contract, the lease keeper and the operator's end use threads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from retrysafe.model import Claim, Final, Found, Purged, Record, Reservation, Response, Unsettled
from retrysafe.stores.administration import Admin
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.alchemy.engines import AnyEngine
from retrysafe.stores.sql.joint import Joint
from retrysafe.stores.sql.operations import Operation
from retrysafe.stores.sql.postgresql.desk import Session

T = TypeVar("T")

_SLICE = 500
"""Rows removed in one commit.  It takes a few milliseconds, and then others have their turn."""


class Executor(Protocol):
    """Some connections, and how operations are performed with them."""

    def perform(self, operation: Operation[T]) -> T: ...
    async def perform_async(self, operation: Operation[T]) -> T: ...
    def close(self) -> None: ...


class EngineStore:
    """Records in the database of an engine."""

    def __init__(
        self,
        engine: AnyEngine,
        executor: Callable[[int], Executor],
        operator: Callable[[], Session],
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
        return self._executor.perform(operations.reserve(claim))

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return self._executor.perform(operations.take_over(claim, previous, state))

    def look(self, id: bytes) -> Found | None:
        return self._executor.perform(operations.look(id))

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        return self._executor.perform(operations.checkpoint(claim, head))

    def finish(self, claim: Claim, final: Final) -> bool:
        return self._executor.perform(operations.finish(claim, final))

    def release(self, claim: Claim) -> None:
        self._executor.perform(operations.release(claim))

    def purge(self, limit: int = 500) -> Purged:
        removed, unresolved = 0, list[Record]()
        while removed < limit:
            wanted = min(_SLICE, limit - removed)
            purged = self._executor.perform(operations.purge(wanted))
            removed += purged.records
            unresolved += purged.unresolved
            if purged.records < wanted:
                break
        return Purged(removed, tuple(unresolved))

    def open_keeper(self) -> "EngineRenewer":
        return EngineRenewer(self._make_executor(1))

    def open_admin(self) -> Admin:
        # Here and not above: services never ask.
        from retrysafe.stores.sql.postgresql.admin import PostgresAdmin

        return PostgresAdmin(self._make_session, self._deadline)

    def close(self) -> None:
        self._executor.close()


class AsyncEngineStore:
    """The same for coroutines."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def reserve(self, claim: Claim) -> Reservation:
        return await self._executor.perform_async(operations.reserve(claim))

    async def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return await self._executor.perform_async(operations.take_over(claim, previous, state))

    async def look(self, id: bytes) -> Found | None:
        return await self._executor.perform_async(operations.look(id))

    async def checkpoint(self, claim: Claim, head: Response) -> bool:
        return await self._executor.perform_async(operations.checkpoint(claim, head))

    async def finish(self, claim: Claim, final: Final) -> bool:
        return await self._executor.perform_async(operations.finish(claim, final))

    async def release(self, claim: Claim) -> None:
        await self._executor.perform_async(operations.release(claim))


class EngineRenewer:
    """The lease keeper's own connection: renewals wait for nobody else's operation."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        return self._executor.perform(operations.renew_all(claims))

    def release(self, claims: Sequence[Claim]) -> None:
        self._executor.perform(operations.release_all(claims))

    def count(self, verdicts: Mapping[str, int]) -> None:
        self._executor.perform(operations.tally(verdicts))

    def close(self) -> None:
        self._executor.close()
