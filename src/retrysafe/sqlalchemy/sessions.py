"""Session makers whose sessions join the running call's transaction, and are ordinary where there is none.

A session finds out when it first needs a connection: until then nothing is opened.  It joins with a
savepoint, SQLAlchemy's own `join_transaction_mode="create_savepoint"`: `commit()` keeps what came before it
from a later `rollback()`, and neither reaches the transaction of the call.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from sqlalchemy import Connection, Engine, orm
from sqlalchemy.ext import asyncio

from retrysafe._runtime.transactions import join
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.sqlalchemy.engines import async_engine_of, capacity, engine_of
from retrysafe.sqlalchemy.transaction import AlchemyTransaction, AsyncAlchemyTransaction

S = TypeVar("S", bound=orm.Session)
A = TypeVar("A", bound=asyncio.AsyncSession)

_OURS = {
    "bind": "the guard's store knows its engine",
    "join_transaction_mode": "how a session joins is what this is about",
    "twophase": "a transaction that is prepared cannot carry the answer",
}


@overload
def sessionmaker(guard: Guard, *, class_: type[S], **options: Any) -> orm.sessionmaker[S]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def sessionmaker(guard: Guard, **options: Any) -> orm.sessionmaker[orm.Session]: ...
def sessionmaker(guard: Guard, *, class_: type[Any] = orm.Session, **options: Any) -> orm.sessionmaker[Any]:
    """SQLAlchemy's `sessionmaker`, with a guard where it has an engine.  Takes the same options."""
    engine, store = engine_of(guard), guard.store
    _check(options)
    guard.runtime.at_most(capacity(engine))

    def joined() -> AlchemyTransaction | None:
        return join(store, AlchemyTransaction, lambda: AlchemyTransaction(store, engine))

    class_ = _joining(class_, joined)
    return orm.sessionmaker(engine, class_=class_, join_transaction_mode="create_savepoint", **options)


@overload
def async_sessionmaker(guard: Guard, *, class_: type[A], **options: Any) -> asyncio.async_sessionmaker[A]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def async_sessionmaker(guard: Guard, **options: Any) -> asyncio.async_sessionmaker[asyncio.AsyncSession]: ...
def async_sessionmaker(
    guard: Guard, *, class_: type[Any] = asyncio.AsyncSession, **options: Any
) -> asyncio.async_sessionmaker[Any]:
    """SQLAlchemy's `async_sessionmaker`, with a guard where it has an engine.  Takes the same options."""
    engine, store = async_engine_of(guard), guard.store
    _check(options)

    def joined() -> AsyncAlchemyTransaction | None:
        return join(
            store, AsyncAlchemyTransaction, lambda: AsyncAlchemyTransaction(store, engine), awaited=True
        )

    options["sync_session_class"] = _joining(
        options.get("sync_session_class", class_.sync_session_class), joined
    )
    return asyncio.async_sessionmaker(
        engine, class_=class_, join_transaction_mode="create_savepoint", **options
    )


def _joining(
    class_: type[S], joined: Callable[[], AlchemyTransaction | AsyncAlchemyTransaction | None]
) -> type[S]:
    """The same class, whose sessions look for a transaction to join whenever they look for their database."""

    def get_bind(self: S, *args: Any, **options: Any) -> Engine | Connection:
        bind = class_.get_bind(self, *args, **options)
        transaction = joined()
        return bind if transaction is None else transaction.connection_for(bind, self)

    return cast(type[S], type(class_.__name__, (class_,), {"get_bind": get_bind}))


def _check(options: dict[str, Any]) -> None:
    for name, reason in _OURS.items():
        if name in options:
            raise ConfigurationError(f"sessionmaker(guard, {name}=...): leave it out, {reason}")
