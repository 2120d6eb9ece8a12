"""Session makers and connections that join the running call's transaction, and are ordinary outside one.

A session looks for a transaction when it first needs a connection: until then nothing is opened.  It joins
with a savepoint, SQLAlchemy's own `join_transaction_mode="create_savepoint"`: `commit()` protects what came
before it from a later `rollback()`, and neither reaches the transaction of the call.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast, overload

from sqlalchemy import (
    AssertionPool,
    Connection,
    Engine,
    QueuePool,
    SingletonThreadPool,
    StaticPool,
    orm,
)
from sqlalchemy.ext import asyncio

from retrysafe._core.attempt import connected
from retrysafe._runtime.transactions import join
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.sqlalchemy import before_claim
from retrysafe.sqlalchemy.sqlite import lock_writes_of, locking_writes
from retrysafe.sqlalchemy.transaction import AlchemyTransaction, AsyncAlchemyTransaction
from retrysafe.sqlite3 import WRITERS

S = TypeVar("S", bound=orm.Session)
A = TypeVar("A", bound=asyncio.AsyncSession)

_NOT_OPTIONS = {
    "bind": "the engine is that of the guard's store",
    "join_transaction_mode": "sessions of a guard always join with a savepoint",
    "twophase": "a prepared transaction cannot be committed together with the response",
}


@overload
def sessionmaker(guard: Guard, *, class_: type[S], **options: Any) -> orm.sessionmaker[S]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def sessionmaker(guard: Guard, **options: Any) -> orm.sessionmaker[orm.Session]: ...
def sessionmaker(guard: Guard, *, class_: type[Any] = orm.Session, **options: Any) -> orm.sessionmaker[Any]:
    """SQLAlchemy's `sessionmaker`, with a guard where it has an engine.  Takes the same options."""
    engine, store = _engine_of(guard), guard.store
    _check(options)
    guard.runtime.at_most(_capacity(engine))

    def joined() -> AlchemyTransaction | None:
        return join(store, AlchemyTransaction, lambda: AlchemyTransaction(store, engine))

    class_ = _joining(class_, joined)
    lock_writes_of(class_, store)
    return orm.sessionmaker(engine, class_=class_, join_transaction_mode="create_savepoint", **options)


@overload
def async_sessionmaker(guard: Guard, *, class_: type[A], **options: Any) -> asyncio.async_sessionmaker[A]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def async_sessionmaker(guard: Guard, **options: Any) -> asyncio.async_sessionmaker[asyncio.AsyncSession]: ...
def async_sessionmaker(
    guard: Guard, *, class_: type[Any] = asyncio.AsyncSession, **options: Any
) -> asyncio.async_sessionmaker[Any]:
    """SQLAlchemy's `async_sessionmaker`, with a guard where it has an engine.  Takes the same options."""
    engine, store = _async_engine_of(guard), guard.store
    _check(options)

    def joined() -> AsyncAlchemyTransaction | None:
        return join(
            store, AsyncAlchemyTransaction, lambda: AsyncAlchemyTransaction(store, engine), awaited=True
        )

    options["sync_session_class"] = _joining(
        options.get("sync_session_class", class_.sync_session_class), joined
    )
    lock_writes_of(options["sync_session_class"], store)
    return asyncio.async_sessionmaker(
        engine, class_=class_, join_transaction_mode="create_savepoint", **options
    )


def _joining(
    class_: type[S], joined: Callable[[], AlchemyTransaction | AsyncAlchemyTransaction | None]
) -> type[S]:
    """The same class, whose sessions look for a transaction to join whenever they look for their database."""

    def get_bind(self: S, *args: Any, **options: Any) -> Engine | Connection:
        _drop_ended(self)
        bind = class_.get_bind(self, *args, **options)
        transaction = joined()
        if transaction is None:
            return bind
        before_claim.refuse_held(self)
        return transaction.connection_for(bind, self)

    joining = cast(type[S], type(class_.__name__, (class_,), {"get_bind": get_bind}))
    before_claim.watch(joining)
    return joining


def _drop_ended(session: orm.Session) -> None:
    """Forget the connection of a call that has ended.

    A session may outlive it, as where a test keeps Flask's application context, and go on with another one.
    """
    transaction = session.get_transaction()
    if transaction is not None:
        found: dict[Any, Any] = transaction._connections  # pyright: ignore[reportPrivateUsage]  # no accessor
        for key in [key for key, (connection, *_) in found.items() if connection.closed]:
            del found[key]


def _check(options: dict[str, Any]) -> None:
    for name, reason in _NOT_OPTIONS.items():
        if name in options:
            raise ConfigurationError(f"sessionmaker(guard) does not take {name}=: {reason}. Leave it out")


@contextmanager
def begin(guard: Guard) -> Generator[Connection]:
    """`engine.begin()`, with a guard for the engine: the block takes effect as a whole or not at all."""
    engine = _engine_of(guard)
    guard.runtime.at_most(_capacity(engine))
    joined = join(guard.store, AlchemyTransaction, lambda: AlchemyTransaction(guard.store, engine))
    if joined is None:
        with (
            engine.connect() as ordinary,
            locking_writes(guard.store, ordinary),
            connected(guard.store),
            ordinary.begin(),
        ):
            yield ordinary
    else:
        connection = joined.connection(object())
        with connection.begin_nested():
            yield connection


@asynccontextmanager
async def begin_async(guard: Guard) -> AsyncGenerator[asyncio.AsyncConnection]:
    """The same for coroutines."""
    engine = _async_engine_of(guard)
    joined = join(
        guard.store,
        AsyncAlchemyTransaction,
        lambda: AsyncAlchemyTransaction(guard.store, engine),
        awaited=True,
    )
    if joined is None:
        async with engine.connect() as ordinary:
            assert ordinary.sync_connection is not None, "it was opened by this block"
            with locking_writes(guard.store, ordinary.sync_connection), connected(guard.store):
                async with ordinary.begin():
                    yield ordinary
    else:
        connection = await joined.connection_async()
        async with connection.begin_nested():
            yield connection


def _engine_of(guard: Guard) -> Engine:
    engine = _shared_engine(guard)
    if not isinstance(engine, Engine):
        raise ConfigurationError(
            "this guard's engine is asynchronous: use async_sessionmaker(guard), or begin_async(guard)"
        )
    return engine


def _async_engine_of(guard: Guard) -> asyncio.AsyncEngine:
    engine = _shared_engine(guard)
    if not isinstance(engine, asyncio.AsyncEngine):
        raise ConfigurationError("this guard's engine is blocking: use sessionmaker(guard), or begin(guard)")
    return engine


def _shared_engine(guard: Guard) -> object:
    engine = getattr(guard.store, "engine", None)
    if engine is None:
        raise ConfigurationError(
            f"this guard's store is {guard.store!r}, which shares no engine with the application: "
            "build the guard with Guard(stores.from_engine(engine), ...)"
        )
    return engine


def _capacity(engine: Engine) -> int | None:
    """How many connections the engine may have before a caller has to wait for one."""
    if engine.dialect.name == "sqlite":
        return WRITERS
    match engine.pool:
        case QueuePool() as pool:
            overflow: int = pool._max_overflow  # pyright: ignore[reportPrivateUsage]  # there is no accessor
            return pool.size() + overflow if overflow >= 0 else None
        case SingletonThreadPool() | StaticPool() | AssertionPool():
            return 1
        case _:
            return None
