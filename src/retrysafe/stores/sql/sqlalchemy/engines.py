"""How an engine opens its connections, so that ours are opened in the same way.

An engine knows more than its address says: `creator`, `connect_args`, listeners that fetch a password which
is valid for minutes, certificates.  All of it is in its pool.  A copy of that pool opens a connection just as
the engine would, and so never takes one that the application is waiting for.
"""

from typing import NamedTuple, TypeAlias

from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import PoolProxiedConnection

AnyEngine: TypeAlias = Engine | AsyncEngine


def blocking_part(engine: AnyEngine) -> Engine:
    """What both kinds are made of.  That of an asynchronous one works inside of SQLAlchemy's calls only."""
    return engine.sync_engine if isinstance(engine, AsyncEngine) else engine


class Opened(NamedTuple):
    """A new connection that no pool looks after any more."""

    adapted: DBAPIConnection
    """As SQLAlchemy speaks to it."""
    driver: object
    """The driver's own."""


def open_connection(engine: Engine) -> Opened:
    """Open a connection.

    By a copy of the pool, each time: the application's may have been made for one connection only, or may
    have been replaced by `engine.dispose()`.
    """
    return detached(engine.pool.recreate().connect())


def detached(connection: PoolProxiedConnection) -> Opened:
    adapted = connection.dbapi_connection
    assert adapted is not None, "it was just opened"
    opened = Opened(adapted, connection.driver_connection)
    connection.detach()
    return opened


def copy_engine(engine: Engine) -> Engine:
    """An engine of our own to run statements with, whose connections are opened as that engine's are.

    It keeps none of them.  What the application listens to on its engine, and what it logs of it, stays free
    of our statements.  Arguments are keys and answers of clients: they are not for messages.
    """
    return create_engine(
        engine.url, creator=lambda: open_connection(engine).adapted, poolclass=NullPool, hide_parameters=True
    )


def copy_async_engine(engine: AsyncEngine) -> AsyncEngine:
    """The same, for one event loop: SQLAlchemy has locks in its engines, and they belong to a loop."""
    return create_async_engine(
        engine.url,
        creator=lambda: open_connection(engine.sync_engine).adapted,
        poolclass=NullPool,
        hide_parameters=True,
    )
