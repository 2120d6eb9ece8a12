"""Session makers and connections that join the running call's transaction, and are ordinary outside one.

A session looks for a transaction when it first needs a connection: until then nothing is opened.  It joins
with a savepoint, SQLAlchemy's own `join_transaction_mode="create_savepoint"`: `commit()` protects what came
before it from a later `rollback()`, and neither reaches the transaction of the call.
"""

import re
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
    event,
    orm,
)
from sqlalchemy.ext import asyncio

from retrysafe._core import attempt as attempts
from retrysafe._runtime.transactions import join
from retrysafe.errors import ConfigurationError, NotJoined
from retrysafe.guard import Guard
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
        bind = class_.get_bind(self, *args, **options)
        transaction = joined()
        if transaction is None:
            return bind
        if _HOLDS_KEY in self.info:
            raise NotJoined(_HELD_BEFORE)
        return transaction.connection_for(bind, self)

    joining = cast(type[S], type(class_.__name__, (class_,), {"get_bind": get_bind}))
    event.listen(joining, "after_begin", _watch_unclaimed)
    event.listen(joining, "after_transaction_end", _end_watch)
    return joining


# --- what sessions do before the key of their request is claimed

_HOLDS_KEY = "retrysafe_holds"
"""In `session.info`, where its transaction holds more than a connection, and its key was not claimed yet."""
_WATCHED_KEY = "retrysafe_watched"
"""There, its connections whose statements are looked at."""

_HELD_BEFORE = (
    "a session of the guard's wrote or took a lock before the key of this request was claimed, in "
    "authentication or another dependency, and its transaction is still open. The endpoint has a connection "
    "of its own, which could wait for that lock without end. Commit there, or do it in the endpoint"
)

_READS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*"
    r"(?:select|with|values|table|show|explain|pragma|savepoint|release|rollback|set|reset)\b",
    re.IGNORECASE | re.DOTALL,
)
"""`SET`, too: applications that set who asks in each transaction set it in that of the call as well."""
_READS_AND_HOLDS = re.compile(
    r"\bfor\s+(?:no\s+key\s+)?update\b|\bfor\s+(?:key\s+)?share\b|\bpg_(?:try_)?advisory_"
    r"|\b(?:insert\s+into|delete\s+from|merge\s+into)\b|\bupdate\s+\S+\s+(?:(?:as\s+)?\S+\s+)?set\b",
    re.IGNORECASE,
)
"""What a statement that begins like a read may have in it: locks, or another statement behind `WITH`."""


def _watch_unclaimed(session: orm.Session, _: orm.SessionTransaction, connection: Connection) -> None:
    if attempts.unclaimed_writers() is None or attempts.running() is not None:
        return

    def before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not _READS.match(statement) or _READS_AND_HOLDS.search(statement):
            session.info[_HOLDS_KEY] = True

    event.listen(connection, "before_cursor_execute", before)
    session.info.setdefault(_WATCHED_KEY, []).append((connection, before))


def _end_watch(session: orm.Session, transaction: orm.SessionTransaction) -> None:
    if transaction.parent is None:
        session.info.pop(_HOLDS_KEY, None)
        for connection, before in session.info.pop(_WATCHED_KEY, ()):
            event.remove(connection, "before_cursor_execute", before)


def end_reading(session: orm.Session) -> None:
    """Have a session that has only read give its connection back, before it joins a call on another one.

    Else each call would hold two, and as many as the pool is large would wait for each other.  Its objects
    stay as they are.  With changes that are not written yet it has to keep its connection.
    """
    if not session.in_transaction() or session.in_nested_transaction() or _HOLDS_KEY in session.info:
        return
    if session.new or session.dirty or session.deleted:
        return
    expires, session.expire_on_commit = session.expire_on_commit, False
    try:
        session.commit()
    finally:
        session.expire_on_commit = expires


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
        with engine.connect() as ordinary, locking_writes(guard.store, ordinary), ordinary.begin():
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
            with locking_writes(guard.store, ordinary.sync_connection):
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
