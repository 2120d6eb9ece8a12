"""The engine that a guard's store and the application share."""

from sqlalchemy import AssertionPool, Engine, QueuePool, SingletonThreadPool, StaticPool
from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.sqlite3 import WRITERS


def engine_of(guard: Guard) -> Engine:
    engine = _shared(guard)
    if not isinstance(engine, Engine):
        raise ConfigurationError(
            "this guard's engine is asynchronous: use async_sessionmaker(guard), or begin_async(guard)"
        )
    return engine


def async_engine_of(guard: Guard) -> AsyncEngine:
    engine = _shared(guard)
    if not isinstance(engine, AsyncEngine):
        raise ConfigurationError("this guard's engine is blocking: use sessionmaker(guard), or begin(guard)")
    return engine


def _shared(guard: Guard) -> object:
    engine = getattr(guard.store, "engine", None)
    if engine is None:
        raise ConfigurationError(
            f"this guard's store shares no engine with the application, it is {guard.store!r}: "
            "build it with Guard(stores.from_engine(engine), ...)"
        )
    return engine


def capacity(engine: Engine) -> int | None:
    """How many connections there may be before somebody has to wait for one."""
    if engine.dialect.name == "sqlite":
        return WRITERS
    match engine.pool:
        case QueuePool() as pool:
            overflow: int = pool._max_overflow  # pyright: ignore[reportPrivateUsage]  # asked for nowhere else
            return pool.size() + overflow if overflow >= 0 else None
        case SingletonThreadPool() | StaticPool() | AssertionPool():
            return 1
        case _:
            return None
