"""The PostgreSQL store for engines that use psycopg, blocking or not.

Its connections are opened as the engine opens its own, and are libpq's from then on.  Those belong to no
event loop, so where the engine is asynchronous, one is opened in a loop that lives just as long.  Opening
happens in a thread, and is given up in time: an engine may have no bound for it.
"""

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import psycopg
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

from retrysafe._core.times import Duration
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql.postgresql.backend import BACKEND
from retrysafe.stores.sql.postgresql.store import PostgresStore
from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine, open_connection
from retrysafe.stores.sql.sqlalchemy.errors import unreachable

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

_LEAST = 2.0
"""Seconds to open a connection, as for an address."""


class EnginePostgresStore(PostgresStore):
    """A PostgreSQL store, and the engine whose database it is in."""

    def __init__(self, engine: AnyEngine, deadline: float, cleanup_interval: Duration | None) -> None:
        super().__init__(
            connect=Opener(engine, max(deadline, _LEAST)),
            deadline=deadline,
            cleanup_interval=cleanup_interval,
        )
        self.engine = engine


class PsycopgConnection:
    """A connection as the store wants it: libpq's part, which commits by itself, and an end."""

    def __init__(self, connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
        # Kept, because it would be closed with its last reference.
        self._connection = connection

    @property
    def pgconn(self) -> "PGconn":
        return self._connection.pgconn

    def close(self) -> None:
        self.pgconn.finish()


class Opener:
    def __init__(self, engine: AnyEngine, patience: float) -> None:
        self._engine = engine
        self._patience = patience

    def __call__(self) -> PsycopgConnection:
        opened: Future[PsycopgConnection] = Future()
        threading.Thread(target=self._open, args=(opened,), name="retrysafe-connect", daemon=True).start()
        try:
            return opened.result(self._patience)
        except TimeoutError:
            opened.add_done_callback(_unwanted)
            raise StoreUnavailable(BACKEND.connect_timed_out) from None

    def _open(self, opened: Future[PsycopgConnection]) -> None:
        try:
            if isinstance(self._engine, Engine):
                opened.set_result(_open(self._engine))
            else:
                # psycopg cannot use the loop that Windows would give.
                with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                    opened.set_result(runner.run(_open_async(self._engine)))
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            refusal = unreachable(error, BACKEND)
            refusal.__cause__ = error
            opened.set_exception(refusal)


def _open(engine: Engine) -> PsycopgConnection:
    connection = cast("psycopg.Connection[Any]", open_connection(engine).driver)
    try:
        # What listeners have set is kept.
        connection.commit()
        connection.autocommit = True
    except BaseException:
        connection.pgconn.finish()
        raise
    return PsycopgConnection(connection)


async def _open_async(engine: AsyncEngine) -> PsycopgConnection:
    opened = await greenlet_spawn(open_connection, engine.sync_engine)
    connection = cast("psycopg.AsyncConnection[Any]", opened.driver)
    try:
        await connection.commit()
        await connection.set_autocommit(True)
    except BaseException:
        connection.pgconn.finish()
        raise
    return PsycopgConnection(connection)


def _unwanted(opened: Future[PsycopgConnection]) -> None:
    if opened.exception() is None:
        opened.result().close()
