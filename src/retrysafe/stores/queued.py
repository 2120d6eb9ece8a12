"""A store that performs operations through queues, as the contract wants it: once blocking and once for
coroutines.

Which database it is, is not known here.  Completions are urgent, so they go before new claims.  Their bodies,
and the payloads that claims bring, bound a batch.
"""

from typing import Protocol, TypeVar

from retrysafe._core.model import Claim, Final, Found, Reservation, Response, Unsettled
from retrysafe.stores.queue import Operation

T = TypeVar("T")


class Queue(Protocol):
    """For threads."""

    def perform(self, operation: Operation[T], id: bytes, *, size: int = 0, urgent: bool = False) -> T: ...


class AsyncQueue(Protocol):
    """For coroutines."""

    async def perform(
        self, operation: Operation[T], id: bytes, *, size: int = 0, urgent: bool = False
    ) -> T: ...


class Database(Protocol):
    """What one process has of a database."""

    @property
    def queue(self) -> Queue: ...
    @property
    def async_queue(self) -> AsyncQueue:
        """That of the running event loop."""
        ...


class Operations(Protocol):
    """What is performed: a module, or something of one store."""

    def reserve(self, claim: Claim, /) -> Operation[Reservation]: ...
    def take_over(self, claim: Claim, previous: bytes, state: Unsettled, /) -> Operation[Reservation]: ...
    def look(self, id: bytes, /) -> Operation[Found | None]: ...
    def checkpoint(self, claim: Claim, head: Response, /) -> Operation[bool]: ...
    def finish(self, claim: Claim, final: Final, /) -> Operation[bool]: ...
    def release(self, claim: Claim, /) -> Operation[None]: ...


def _size(claim: Claim) -> int:
    return 0 if claim.inbox is None or claim.inbox.payload is None else len(claim.inbox.payload)


class QueuedStore:
    def __init__(self, database: Database, operations: Operations) -> None:
        self._database = database
        self._operations = operations
        self.aio = AsyncQueuedStore(database, operations)

    def reserve(self, claim: Claim) -> Reservation:
        return self._database.queue.perform(self._operations.reserve(claim), claim.id, size=_size(claim))

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        operation = self._operations.take_over(claim, previous, state)
        return self._database.queue.perform(operation, claim.id, size=_size(claim))

    def look(self, id: bytes) -> Found | None:
        return self._database.queue.perform(self._operations.look(id), id)

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        return self._database.queue.perform(self._operations.checkpoint(claim, head), claim.id, urgent=True)

    def finish(self, claim: Claim, final: Final) -> bool:
        size = len(final.response.body)
        operation = self._operations.finish(claim, final)
        return self._database.queue.perform(operation, claim.id, size=size, urgent=True)

    def release(self, claim: Claim) -> None:
        self._database.queue.perform(self._operations.release(claim), claim.id, urgent=True)


class AsyncQueuedStore:
    """The same for coroutines."""

    def __init__(self, database: Database, operations: Operations) -> None:
        self._database = database
        self._operations = operations

    async def reserve(self, claim: Claim) -> Reservation:
        operation = self._operations.reserve(claim)
        return await self._database.async_queue.perform(operation, claim.id, size=_size(claim))

    async def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        operation = self._operations.take_over(claim, previous, state)
        return await self._database.async_queue.perform(operation, claim.id, size=_size(claim))

    async def look(self, id: bytes) -> Found | None:
        return await self._database.async_queue.perform(self._operations.look(id), id)

    async def checkpoint(self, claim: Claim, head: Response) -> bool:
        operation = self._operations.checkpoint(claim, head)
        return await self._database.async_queue.perform(operation, claim.id, urgent=True)

    async def finish(self, claim: Claim, final: Final) -> bool:
        size = len(final.response.body)
        operation = self._operations.finish(claim, final)
        return await self._database.async_queue.perform(operation, claim.id, size=size, urgent=True)

    async def release(self, claim: Claim) -> None:
        await self._database.async_queue.perform(self._operations.release(claim), claim.id, urgent=True)
