"""A pool that the application made for the store alone: one half of the store takes its connections from it.

They are taken when they are needed and given back when the store is closed, or when they are broken.  What
the pool cannot give, because it is of the other kind or opened in another event loop, is opened as the pool
opens its connections.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout

from retrysafe.errors import ConfigurationError, StoreUnavailable
from retrysafe.stores.sql.postgresql.connect import Address, Connection, Source, unreachable
from retrysafe.stores.sql.postgresql.session import Session

AnyPool = ConnectionPool[Any] | AsyncConnectionPool[Any]

_OF_PSYCOPG = frozenset({"autocommit", "context", "cursor_factory", "prepare_threshold", "row_factory"})
"""What is meant for psycopg's own cursors, of which we use none."""


def connect_as(pool: AnyPool, deadline: float) -> Callable[[], Connection]:
    """How this pool opens its connections, for those that it does not open."""
    if callable(pool.conninfo) or callable(pool.kwargs):
        raise ConfigurationError(
            "the conninfo or kwargs of this pool is a function, which the store cannot use: pass "
            "PostgresStore(connect=...) a function that returns a psycopg.Connection"
        )
    given = conninfo_to_dict(pool.conninfo)
    kwargs = pool.kwargs or {}
    given.update({name: value for name, value in kwargs.items() if name not in _OF_PSYCOPG})
    return Address.complete(given, deadline).connect


class ApplicationPool:
    """Opens sessions for one half of the store from a pool."""

    def __init__(self, pool: AnyPool, source: Source, deadline: float) -> None:
        self._pool = pool
        self._source = source
        self._deadline = deadline
        self._process = os.getpid()
        self._free = threading.Semaphore(pool.max_size or pool.min_size)
        self._loop: asyncio.AbstractEventLoop | None = None

    def serves(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Whether this pool is for threads, or for this event loop: the first one that asks.

        In a child process it serves neither: its connections are the parent's.
        """
        if os.getpid() != self._process:
            return False
        if loop is None or isinstance(self._pool, ConnectionPool):
            return loop is None and isinstance(self._pool, ConnectionPool)
        if self._loop is None:
            self._loop = loop
        return self._loop is loop

    def open(self) -> Session:
        """Take a connection; or open one as the pool does, if the store has all of the pool's already.

        It blocks, and is called in a thread of its own.
        """
        if not self._free.acquire(blocking=False):
            return self._source.open()
        try:
            if isinstance(self._pool, ConnectionPool):
                return self._from_threads(self._pool)
            return self._from_loop(self._pool, cast(asyncio.AbstractEventLoop, self._loop))
        except (psycopg.Error, PoolClosed, PoolTimeout) as error:
            self._free.release()
            raise unreachable(error) from None
        except BaseException:
            self._free.release()
            raise

    def _from_threads(self, pool: "ConnectionPool[Any]") -> Session:
        connection = pool.getconn(timeout=self._deadline)

        def end() -> None:
            if connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.close()
            pool.putconn(connection)
            self._free.release()

        return self._source.adopt(connection, end)

    def _from_loop(self, pool: "AsyncConnectionPool[Any]", loop: asyncio.AbstractEventLoop) -> Session:
        taken = asyncio.run_coroutine_threadsafe(pool.getconn(timeout=self._deadline), loop)
        try:
            connection = taken.result(2 * self._deadline)
        except TimeoutError:
            taken.cancel()
            raise StoreUnavailable("timed out waiting for a connection of the application's pool") from None

        def end() -> None:
            # The pool replaces what comes back closed.  The connection is closed here and now, because its
            # event loop may never run again.
            connection.pgconn.finish()
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(pool.putconn(connection), loop)
            self._free.release()

        return self._source.adopt(connection, end)
