"""psycopg 3, with what a guarded call writes and its response committed together.

    with connection(guard, pool) as db:
        db.execute("INSERT INTO orders (item) VALUES (%s)", [item])

Where one would write `pool.connection()`.  Inside a guarded call with `effects="database"` the block joins
the call's transaction: leaving it is provisional, and becomes real with the response.  Anywhere else it is
`pool.connection()`.  Inside, psycopg itself refuses `commit()` and `rollback()`, and `db.transaction()` makes
savepoints, as always inside a transaction.
"""

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from retrysafe._core.attempt import connected
from retrysafe._core.model import Claim, Final, Found
from retrysafe._runtime.transactions import BeginLock, Blocks, Previous, join
from retrysafe.errors import ConfigurationError, StoreUnavailable
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.cursors import can_commit_with, commit_with, commit_with_async, fetch, fetch_async
from retrysafe.stores.sql.join import Joint

__all__ = ["connection", "connection_async"]

T = TypeVar("T")
C = TypeVar("C", bound=psycopg.Connection[Any])
A = TypeVar("A", bound=psycopg.AsyncConnection[Any])


@contextmanager
def connection(guard: Guard, pool: ConnectionPool[C]) -> Generator[C]:
    """A connection of the application's pool to the guard's database, for as long as the block lasts."""
    joint = _joint(guard)
    guard.runtime.at_most(pool.max_size or pool.min_size)
    joined = join(guard.store, PsycopgTransaction, lambda: PsycopgTransaction(joint, pool))
    if joined is None:
        with pool.connection() as ordinary, connected(guard.store):
            yield ordinary
    else:
        with joined.block() as db:
            yield db


@asynccontextmanager
async def connection_async(guard: Guard, pool: AsyncConnectionPool[A]) -> AsyncGenerator[A]:
    """The same for coroutines."""
    joint = _joint(guard)
    joined = join(
        guard.store, AsyncPsycopgTransaction, lambda: AsyncPsycopgTransaction(joint, pool), awaited=True
    )
    if joined is None:
        async with pool.connection() as ordinary:
            with connected(guard.store):
                yield ordinary
    else:
        async with joined.block() as db:
            yield db


def _joint(guard: Guard) -> Joint:
    joint = getattr(guard.store, "joint", None)
    if not isinstance(joint, Joint) or joint.dialect != "postgresql":
        raise ConfigurationError(
            f"retrysafe.psycopg needs a guard whose store is in PostgreSQL, and this guard's store is "
            f"{guard.store!r}"
        )
    return joint


class PsycopgTransaction:
    """The transaction of one guarded call."""

    def __init__(self, joint: Joint, pool: ConnectionPool[Any]) -> None:
        self._joint = joint
        self._pool = pool
        self._blocks = Blocks()
        self.begin_lock = BeginLock()
        self._db: psycopg.Connection[Any] | None = None
        self._whole: AbstractContextManager[object] | None = None

    @property
    def begun(self) -> bool:
        return self._db is not None

    @contextmanager
    def block(self) -> Generator[Any]:
        """A part of it, which takes effect as a whole or not at all."""
        if self._db is not None:
            with self._blocks.one(), self._db.transaction():  # a savepoint
                yield self._db
            return
        db = self._begin()
        try:
            with self._blocks.one():
                yield db
        except BaseException:
            self.roll_back()  # nothing came before this part, so there is nothing else to lose
            raise

    def _begin(self) -> psycopg.Connection[Any]:
        with self.begin_lock.beginning():
            db: psycopg.Connection[Any] = self._pool.getconn()
            try:
                whole = db.transaction()
                self._own = whole.__enter__()
                self.begin_lock.begun(lambda: self._assign(db, whole))
            except BaseException:
                db.close()
                self._pool.putconn(db)
                raise
        return db

    def _assign(self, db: psycopg.Connection[Any], whole: AbstractContextManager[object]) -> None:
        self._db, self._whole = db, whole

    def commit(self, claim: Claim, final: Final) -> bool:
        db = self._db
        assert db is not None
        if db.info.transaction_status == TransactionStatus.IDLE:
            log.error(_ENDED_BY_HANDLER)
        try:
            self._blocks.check()
            if can_commit_with(db):
                stored = self._joint.perform(operations.conclude_or_fail(claim, final), self._commit_with)
            else:
                stored = self._joint.perform(operations.conclude(claim, final), self._fetch)
                if stored:
                    self._end(None)
            if stored:
                _check(db.closed, db.info.transaction_status)
        except psycopg.Error as error:
            raise self._joint.not_committed(error) from error
        finally:
            self.roll_back()
        return stored

    def roll_back(self, *, discard: bool = False) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        sound = False
        try:
            self._end(psycopg.Rollback())
            idle = db.info.transaction_status == TransactionStatus.IDLE
            # A handler that was cancelled, or whose block is open, may still be using it.
            sound = idle and not discard and not self._blocks.any_open
        except psycopg.Error as error:
            # The server rolls back what was not committed as soon as it notices that the connection is gone.
            log.warning("the rollback of a guarded call failed, its connection is dropped: %s", error)
        finally:
            if not sound:
                db.close()
            self._pool.putconn(db)

    def _end(self, error: psycopg.Rollback | None) -> None:
        """By a COMMIT, or by a ROLLBACK; once, even if that fails."""
        whole, self._whole = self._whole, None
        if whole is not None:
            whole.__exit__(None if error is None else type(error), error, None)

    def fileno(self) -> int | None:
        return None if self._db is None or self._db.closed else self._db.fileno()

    locks_database = False

    def look(self, id: bytes) -> Found | None:
        return self._perform(operations.look(id))

    def store_within(self, claim: Claim, final: Final, previous: Previous | None) -> bool:
        return self._perform(operations.store_within(claim, final, previous))

    def _perform(self, operation: Operation[T]) -> T:
        try:
            return self._joint.perform(operation, self._fetch)
        except psycopg.Error as error:
            raise _not_performed(error) from error

    def _fetch(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        assert self._db is not None
        return fetch(self._db, sql, arguments)

    def _commit_with(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        assert self._db is not None
        try:
            return commit_with(self._db, sql, arguments)
        finally:
            if self._db.info.transaction_status == TransactionStatus.IDLE:
                _end_silently(self._own)
                self._end(None)


class AsyncPsycopgTransaction:
    """The same, awaiting."""

    def __init__(self, joint: Joint, pool: AsyncConnectionPool[Any]) -> None:
        self._joint = joint
        self._pool = pool
        self._blocks = Blocks()
        self.begin_lock = BeginLock()
        self._db: psycopg.AsyncConnection[Any] | None = None
        self._whole: AbstractAsyncContextManager[object] | None = None

    @property
    def begun(self) -> bool:
        return self._db is not None

    @asynccontextmanager
    async def block(self) -> AsyncGenerator[Any]:
        """A part of it, which takes effect as a whole or not at all."""
        if self._db is not None:
            with self._blocks.one():
                async with self._db.transaction():  # a savepoint
                    yield self._db
            return
        db = await self._begin()
        try:
            with self._blocks.one():
                yield db
        except BaseException:
            await self.roll_back_async()  # nothing came before this part, so there is nothing else to lose
            raise

    async def _begin(self) -> psycopg.AsyncConnection[Any]:
        with self.begin_lock.beginning():
            db: psycopg.AsyncConnection[Any] = await self._pool.getconn()
            try:
                whole = db.transaction()
                self._own = await whole.__aenter__()
                self.begin_lock.begun(lambda: self._assign(db, whole))
            except BaseException:
                await db.close()
                await self._pool.putconn(db)
                raise
        return db

    def _assign(self, db: psycopg.AsyncConnection[Any], whole: AbstractAsyncContextManager[object]) -> None:
        self._db, self._whole = db, whole

    async def commit_async(self, claim: Claim, final: Final) -> bool:
        db = self._db
        assert db is not None
        if db.info.transaction_status == TransactionStatus.IDLE:
            log.error(_ENDED_BY_HANDLER)
        try:
            self._blocks.check()
            if can_commit_with(db):
                stored = await self._joint.perform_async(
                    operations.conclude_or_fail(claim, final), self._commit_with
                )
            else:
                stored = await self._joint.perform_async(operations.conclude(claim, final), self._fetch)
                if stored:
                    await self._end(None)
            if stored:
                _check(db.closed, db.info.transaction_status)
        except psycopg.Error as error:
            raise self._joint.not_committed(error) from error
        finally:
            await self.roll_back_async()
        return stored

    async def roll_back_async(self, *, discard: bool = False) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        sound = False
        try:
            await self._end(psycopg.Rollback())
            idle = db.info.transaction_status == TransactionStatus.IDLE
            # A handler that was cancelled, or whose block is open, may still be using it.
            sound = idle and not discard and not self._blocks.any_open
        except psycopg.Error as error:
            # The server rolls back what was not committed as soon as it notices that the connection is gone.
            log.warning("the rollback of a guarded call failed, its connection is dropped: %s", error)
        finally:
            if not sound:
                await db.close()
            await self._pool.putconn(db)

    async def _end(self, error: psycopg.Rollback | None) -> None:
        """By a COMMIT, or by a ROLLBACK; once, even if that fails."""
        whole, self._whole = self._whole, None
        if whole is not None:
            await whole.__aexit__(None if error is None else type(error), error, None)

    locks_database = False

    async def look_async(self, id: bytes) -> Found | None:
        return await self._perform(operations.look(id))

    async def store_within_async(self, claim: Claim, final: Final, previous: Previous | None) -> bool:
        return await self._perform(operations.store_within(claim, final, previous))

    async def _perform(self, operation: Operation[T]) -> T:
        try:
            return await self._joint.perform_async(operation, self._fetch)
        except psycopg.Error as error:
            raise _not_performed(error) from error

    async def _fetch(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        assert self._db is not None
        return await fetch_async(self._db, sql, arguments)

    async def _commit_with(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        assert self._db is not None
        try:
            return await commit_with_async(self._db, sql, arguments)
        finally:
            if self._db.info.transaction_status == TransactionStatus.IDLE:
                _end_silently(self._own)
                await self._end(None)


_ENDED_BY_HANDLER = (
    "a handler ended the transaction of its guarded call by a COMMIT or ROLLBACK in SQL: what it wrote and "
    "its response are committed separately, and a crash in between would run it again. Leave the block of "
    "connection(guard, pool) instead"
)


def _end_silently(transaction: psycopg.Transaction | psycopg.AsyncTransaction) -> None:
    """Have psycopg end a transaction that is over already: it has to count it, and to send nothing.

    It has no other means for that.  If it did not look at this attribute, it would send a second COMMIT, of
    which the server says that there is nothing to commit.
    """
    transaction._outer_transaction = False  # pyright: ignore[reportPrivateUsage]


def _not_performed(error: psycopg.Error) -> StoreUnavailable:
    return StoreUnavailable(f"PostgreSQL could not read or store a record: {error}")


def _check(closed: bool, status: TransactionStatus) -> None:
    """psycopg raises nothing where the connection was lost before it could send the COMMIT."""
    if closed or status != TransactionStatus.IDLE:
        raise StoreUnavailable("the connection was lost at the commit of a guarded call")
