"""How an engine opens its connections, so that ours are opened in the same way.

An engine knows more than its address says: `creator`, `connect_args`, listeners that fetch a password which
is valid for minutes, certificates.  All of it is in its pool.  A copy of that pool opens a connection just as
the engine would, and so never takes one that the application is waiting for.
"""

from typing import TypeAlias

from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import PoolProxiedConnection

AnyEngine: TypeAlias = Engine | AsyncEngine


def blocking_part(engine: AnyEngine) -> Engine:
    """What both kinds are made of.  That of an asynchronous one works inside of SQLAlchemy's calls only."""
    return engine.sync_engine if isinstance(engine, AsyncEngine) else engine


def draw(engine: Engine) -> PoolProxiedConnection:
    """A new connection that belongs to no pool.

    From a copy of the pool each time: the application's pool may have been made for one connection only, or
    may be replaced by `engine.dispose()`.
    """
    connection = engine.pool.recreate().connect()
    connection.detach()
    return connection


def twin(engine: Engine) -> Engine:
    """An engine of our own to run statements with, whose connections are opened as that engine's are.

    It keeps none of them.  What the application listens to on its engine, and what it logs of it, stays free
    of our statements.  Arguments are keys and answers of clients: they are not for messages.
    """
    return create_engine(
        engine.url, creator=lambda: draw(engine).dbapi_connection, poolclass=NullPool, hide_parameters=True
    )


def async_twin(engine: AsyncEngine) -> AsyncEngine:
    return create_async_engine(
        engine.url,
        creator=lambda: draw(engine.sync_engine).dbapi_connection,
        poolclass=NullPool,
        hide_parameters=True,
    )
