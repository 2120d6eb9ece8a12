"""The store of an alias: on connections of its own, or on Django's where that has to be.

Which it is, is asked with every operation: a test begins and ends a transaction, and the test runner gives
the alias another database.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from retrysafe._core.model import (
    Claim,
    Counted,
    Deliveries,
    Final,
    Found,
    Purged,
    Reservation,
    Response,
    Unsettled,
)
from retrysafe._core.times import Duration
from retrysafe.stores.admin import Admin
from retrysafe.stores.contract import Renewer, Store
from retrysafe.stores.options import CLEANUP_INTERVAL, check_deadline, cleanup_seconds
from retrysafe.stores.sql.django.connect import (
    Address,
    address_of,
    connector,
    dialect_of,
    file_of,
    is_in_memory,
)
from retrysafe.stores.sql.django.own_admin import OwnAdmin
from retrysafe.stores.sql.django.own_connection import MIGRATE, store_on_own_connection
from retrysafe.stores.sql.join import Joint

T = TypeVar("T")


def under_test() -> bool:
    """Whether Django's test environment is set up, by its runner or by pytest-django."""
    utils: Any = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(utils._TestState, "saved_data")


class DjangoStore:
    """Records in a database of Django's.

    No operation waits longer than `deadline` seconds.  While there is traffic, expired records are removed
    every `cleanup_interval`; with `None` they stay until `manage.py cleanup_idempotency_keys` is run.
    """

    def __init__(
        self,
        alias: str = "default",
        *,
        deadline: float = 2.0,
        cleanup_interval: Duration | None = CLEANUP_INTERVAL,
    ) -> None:
        check_deadline(deadline)
        cleanup_seconds(cleanup_interval)
        self.alias = alias
        self.deadline = deadline
        self._cleanup_interval = cleanup_interval
        self._lock = Lock()
        self._opened: tuple[Address, Store] | None = None
        self.within: object = store_on_own_connection(alias, lambda: self.joint)
        """On Django's own connection."""
        self.unsent: set[bytes] = set()
        """Tokens of reservations on Django's own connection: no other connection could renew their leases."""
        self.guarded: set[BaseDatabaseWrapper] = set()
        """Django's connections whose transaction is that of a guarded call.  What another call reserves
        meanwhile, whose effects are elsewhere, must not be undone with it."""
        self.aio = AsyncDjangoStore(self)

    def __repr__(self) -> str:
        return f"<DjangoStore {self.alias}>"

    @property
    def joint(self) -> Joint:
        """How a completion joins a transaction of Django's."""
        if under_test() or is_in_memory(self.alias):
            return self._joint_within()
        joint = getattr(self.beside(), "joint", None)
        assert isinstance(joint, Joint), "both kinds have one"
        return joint

    def _joint_within(self) -> Joint:
        if dialect_of(self.alias) == "sqlite":
            from retrysafe.stores.sql.sqlite.join import not_committed

            return Joint("sqlite", not_committed, time.time)
        if dialect_of(self.alias) == "mysql":
            from retrysafe.stores.sql.mysql.join import JOINT as OF_MYSQL

            return OF_MYSQL
        from retrysafe.stores.sql.postgresql.join import JOINT

        return JOINT

    # --- which of them

    def is_within(self) -> bool:
        """Whether this thread's operations run on Django's own connection."""
        if under_test() or is_in_memory(self.alias):
            return True
        connection = connections[self.alias]
        return connection.in_atomic_block and connection not in self.guarded

    def here(self) -> Store:
        """The store that this thread's operations run on."""
        return self.within if self.is_within() else self.beside()  # type: ignore[return-value]  # see `aio`

    def beside(self) -> Store:
        """The store that has connections of its own."""
        address = address_of(self.alias)
        opened = self._opened
        if opened is None or opened[0] != address:
            with self._lock:
                opened = self._opened
                if opened is None or opened[0] != address:
                    if opened is not None:
                        opened[1].close()
                    self._opened = opened = address, self._open()
        return opened[1]

    def _open(self) -> Store:
        if dialect_of(self.alias) == "sqlite":
            from retrysafe.stores.sql.sqlite import SQLiteStore

            return SQLiteStore(
                file_of(self.alias),
                deadline=self.deadline,
                cleanup_interval=self._cleanup_interval,
                migrated_by=MIGRATE,
            )
        if dialect_of(self.alias) == "mysql":
            from retrysafe.stores.sql.django.mysql import DjangoMySQLStore

            return DjangoMySQLStore(
                self.alias,
                deadline=self.deadline,
                cleanup_interval=self._cleanup_interval,
                migrated_by=MIGRATE,
            )
        from retrysafe.stores.sql.postgresql import PostgresStore

        return PostgresStore(
            connect=connector(self.alias),
            deadline=self.deadline,
            cleanup_interval=self._cleanup_interval,
            migrated_by=MIGRATE,
        )

    # --- the contract

    def reserve(self, claim: Claim) -> Reservation:
        store = self._reserving(claim)
        return store.reserve(claim)

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        store = self._reserving(claim)
        return store.take_over(claim, previous, state)

    def _reserving(self, claim: Claim) -> Store:
        store = self.here()
        if store is self.within:
            self.unsent.add(claim.token)
        return store

    def look(self, id: bytes) -> Found | None:
        return self.here().look(id)

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        return self.here().checkpoint(claim, head)

    def finish(self, claim: Claim, final: Final) -> bool:
        self.unsent.discard(claim.token)
        return self.here().finish(claim, final)

    def release(self, claim: Claim) -> None:
        self.unsent.discard(claim.token)
        self.here().release(claim)

    def purge(self, limit: int = 500) -> Purged:
        return self.here().purge(limit)

    def subscribe(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """As the PostgreSQL store does; elsewhere, waiting requests look again by themselves."""
        subscribe: Callable[[bytes, Callable[[], None]], Callable[[], None]] | None
        subscribe = None if self.is_within() else getattr(self.beside(), "subscribe", None)
        return _nothing if subscribe is None else subscribe(id, wake)

    def open_keeper(self) -> Renewer:
        return DjangoRenewer(self)

    def open_admin(self) -> Admin:
        return OwnAdmin(self.alias, self.joint) if self.is_within() else self.beside().open_admin()

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()


class AsyncDjangoStore:
    """The same for coroutines.  Django's own connection belongs to a thread, and is used there."""

    def __init__(self, store: DjangoStore) -> None:
        self._store = store

    async def reserve(self, claim: Claim) -> Reservation:
        if self._is_within():
            return await _in_thread(self._store.reserve, claim)
        return await self._store.beside().aio.reserve(claim)

    async def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        if self._is_within():
            return await _in_thread(self._store.take_over, claim, previous, state)
        return await self._store.beside().aio.take_over(claim, previous, state)

    async def look(self, id: bytes) -> Found | None:
        if self._is_within():
            return await _in_thread(self._store.look, id)
        return await self._store.beside().aio.look(id)

    async def checkpoint(self, claim: Claim, head: Response) -> bool:
        if self._is_within():
            return await _in_thread(self._store.checkpoint, claim, head)
        return await self._store.beside().aio.checkpoint(claim, head)

    async def finish(self, claim: Claim, final: Final) -> bool:
        if self._is_within():
            return await _in_thread(self._store.finish, claim, final)
        return await self._store.beside().aio.finish(claim, final)

    async def release(self, claim: Claim) -> None:
        if self._is_within():
            return await _in_thread(self._store.release, claim)
        return await self._store.beside().aio.release(claim)

    def _is_within(self) -> bool:
        # No coroutine is inside of `atomic()`, which is for blocking code.
        return under_test() or is_in_memory(self._store.alias)


def _in_thread(function: Callable[..., T], *given: object) -> Awaitable[T]:
    """In the thread whose connection the application's own queries use."""
    from asgiref.sync import sync_to_async  # imports asyncio, for which blocking applications have no use

    return sync_to_async(function, thread_sensitive=True)(*given)


def _nothing() -> None:
    """What unsubscribes where nothing was subscribed."""


class DjangoRenewer:
    """Renews what other connections see; the rest is as safe as the transaction that it is a part of.

    In Django's test environment it writes nothing: its connection would be in the way of the test runner, and
    what it counted would be found by the next test.
    """

    def __init__(self, store: DjangoStore) -> None:
        self._store = store
        self._of: Store | None = None
        self._opened: Renewer | None = None

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        if self._is_idle():
            return [True] * len(claims)
        unsent = self._store.unsent
        seen = [claim for claim in claims if claim.token not in unsent]
        kept = dict(zip((claim.token for claim in seen), self._renewer().renew(seen), strict=True))
        return [kept.get(claim.token, True) for claim in claims]

    def release(self, claims: Sequence[Claim]) -> None:
        if not self._is_idle():
            self._renewer().release(claims)

    def count(self, ended: Mapping[Counted, int]) -> None:
        if not self._is_idle():
            self._renewer().count(ended)

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> None:
        if not self._is_idle():
            self._renewer().add_deliveries(asked)

    def close(self) -> None:
        opened, self._opened, self._of = self._opened, None, None
        if opened is not None:
            opened.close()

    def _is_idle(self) -> bool:
        return under_test() or is_in_memory(self._store.alias)

    def _renewer(self) -> Renewer:
        beside = self._store.beside()
        if self._opened is None or self._of is not beside:
            self.close()
            self._of, self._opened = beside, beside.open_keeper()
        return self._opened
