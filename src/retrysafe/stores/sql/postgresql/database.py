"""What one process has of the database: connections for threads, and for each event loop some of its own.

Operations run here.  What may pass is tried again, see `retry.py`; what was not answered in time is given
up, and its connection with it.
"""

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

from retrysafe._runtime import fork
from retrysafe.stores.sql.operations import Operation
from retrysafe.stores.sql.postgresql import looping, pooling
from retrysafe.stores.sql.postgresql.connect import Source
from retrysafe.stores.sql.postgresql.executor import Executor, PsycopgAdminConnection, opened, prepare
from retrysafe.stores.sql.postgresql.listen import Listener, Wake
from retrysafe.stores.sql.postgresql.looping import LoopPool
from retrysafe.stores.sql.postgresql.pooling import Pool
from retrysafe.stores.sql.postgresql.retry import Retries, Trouble
from retrysafe.stores.sql.postgresql.session import Session
from retrysafe.stores.sql.postgresql.waiting import wait

T = TypeVar("T")

Make = Callable[[], Operation[T]]
"""Makes an operation, once for every try."""


class ApplicationPool(Protocol):
    """Whose connections one half of the store uses: see `application_pool.py`."""

    @property
    def most(self) -> int: ...
    def serves(self, loop: asyncio.AbstractEventLoop | None) -> bool: ...
    def open(self) -> Session: ...


class Database:
    """Runs operations, for threads and for coroutines."""

    def __init__(self, source: Source, deadline: float, own_pool: ApplicationPool | None = None) -> None:
        self._source = source
        self._deadline = deadline
        self._own_pool = own_pool
        self._begin()
        fork.watch(self)

    def _begin(self) -> None:
        """With nothing: at first, in a child process, and after it was closed."""
        self._resources = Resources(self._source, self._deadline, self._own_pool)
        # A store that is dropped without being closed must not leave connections and threads behind.
        self._dropped = weakref.finalize(self, self._resources.close)

    def forked(self) -> None:
        # The connections are the parent's; `session.py` has seen to that.
        self._dropped.detach()
        self._begin()

    def close(self) -> None:
        resources = self._resources
        self._dropped.detach()
        self._begin()
        resources.close()

    def run(self, make: Make[T]) -> T:
        until = time.monotonic() + self._deadline
        pool = self._resources.pool
        retries = Retries(until)
        while True:
            session = pool.take(until)
            has_worked = session.has_worked
            try:
                return wait(session.perform(make(), until), session.socket, until)
            except Trouble as trouble:
                if trouble.ends_session:
                    session.retire()
                    pool.empty()
                pause = retries.after(trouble, has_worked=has_worked)
            finally:
                pool.give(session)
            time.sleep(pause)

    async def run_async(self, make: Make[T]) -> T:
        until = time.monotonic() + self._deadline
        pool = self._resources.pool_of(asyncio.get_running_loop())
        retries = Retries(until)
        while True:
            connection = await pool.take(until)
            session = connection.session
            has_worked = session.has_worked
            try:
                return await connection.wait(session.perform(make(), until), until)
            except Trouble as trouble:
                if trouble.ends_session:
                    session.retire()
                    pool.empty()
                pause = retries.after(trouble, has_worked=has_worked)
            finally:
                pool.give(connection)
            await asyncio.sleep(pause)

    def executor(self) -> Executor:
        """A blocking connection beside the pools."""
        return Executor(self._source, self._deadline)

    def operator(self) -> PsycopgAdminConnection:
        """An operator's connection, which any server gives that answers."""
        return PsycopgAdminConnection(self._source)

    def subscribe(self, id: bytes, wake: Wake) -> Callable[[], None]:
        return self._resources.listener.subscribe(id, wake)


class Resources:
    """Everything that has to be given back."""

    def __init__(self, source: Source, deadline: float, own_pool: ApplicationPool | None) -> None:
        self._source = source
        self._deadline = deadline
        self._own_pool = own_pool
        self._are_tables_there = False
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self.pool = Pool(*self._opening(None, pooling.MOST))
        self.listener = Listener(source)

    def pool_of(self, loop: asyncio.AbstractEventLoop) -> LoopPool:
        try:
            return self._loops[loop]
        except KeyError:
            pass
        with self._lock:
            for other in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(other).shut()
            pool = self._loops[loop] = LoopPool(loop, *self._opening(loop, looping.MOST))
            return pool

    def close(self) -> None:
        self.listener.close()
        self.pool.shut()
        with self._lock:
            loops, self._loops = self._loops, {}
        for loop, pool in loops.items():
            if loop.is_running() and loop is not _running_loop():
                loop.call_soon_threadsafe(pool.shut)
            else:
                pool.shut()

    def _opening(
        self, loop: asyncio.AbstractEventLoop | None, most: int
    ) -> tuple[Callable[[], Session], int]:
        """How connections are opened for this loop, or for threads; and how many there may be."""
        if self._own_pool is not None and self._own_pool.serves(loop):
            own_pool = self._own_pool
            return lambda: self._opened(own_pool.open), min(most, own_pool.most)
        return lambda: self._opened(self._source.open), most

    def _opened(self, open: Callable[[], Session]) -> Session:
        session = opened(open, self._deadline, None if self._are_tables_there else prepare)
        self._are_tables_there = True
        return session


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
