"""The engine that a guard's store and the application share."""

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard


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
