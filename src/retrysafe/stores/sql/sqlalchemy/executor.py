"""Runs batches on SQLAlchemy's connections: for drivers that block, and for those that know coroutines only.

A batch of several calls is one transaction; a single call commits by itself.  A batch that takes too long has
its connection cut.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from time import monotonic

from retrysafe._runtime import fork
from retrysafe._runtime.threads import in_own_thread
from retrysafe._runtime.watchdog import cutting_after
from retrysafe.errors import StoreUnavailable, UnreadableRecord
from retrysafe.stores.queue import Call, Outcome, Rows
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql import statements
from retrysafe.stores.sql.connecting import Connecting
from retrysafe.stores.sql.postgresql.batch import Combined, is_worth, literal
from retrysafe.stores.sql.postgresql.plans import DISCARD, CachedPlans
from retrysafe.stores.sql.postgresql.retry import DAMAGED, NO_FUNCTION, PostgresTrouble
from retrysafe.stores.sql.sqlalchemy.connection import AsyncStoreConnection, Execute, StoreConnection

OpenAsync = Callable[[], Awaitable[AsyncStoreConnection]]

TIMED_OUT = "timed out waiting for PostgreSQL"
CONNECT_TIMED_OUT = "timed out connecting to PostgreSQL; nothing was done"

_inherited: list[object] = []
"""What children have of their parents, and must leave alone."""

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Said in full: a role or a database may have another default, and a claim that waited for a row must then
see it as it is."""


_ARRAY = re.compile(r"CAST\(:(\w+) AS (\w+\[\])\)")


@cache
def _statements() -> Mapping[str, str]:
    """As the drivers of SQLAlchemy take them: not all have arrays, so these travel as text."""
    known = dict(statements.load("postgresql"))
    known["batch"] = _ARRAY.sub(r"CAST(CAST(:\1 AS text) AS \2)", known["batch"])
    return known


class Runner:
    """Runs the calls of a batch, one after the other, on connections of one executor."""

    def __init__(self) -> None:
        self._combines = True
        """Until it is found that the function for batches does not exist."""
        self._plans = CachedPlans()

    def run(self, execute: Execute, calls: Sequence[Call], patience: float) -> Sequence[Outcome]:
        if self._plans.are_old():
            execute(DISCARD, {})
        if self._combines and is_worth(calls):
            combined = Combined(calls, literal)
            try:
                rows, *others = self._run(execute, combined.calls, patience)
            except PostgresTrouble as trouble:
                if trouble.state not in NO_FUNCTION:
                    raise
                self._combines = False
            except UnreadableRecord as damage:
                # One record is damaged.  All calls were done, and each recognises that when it is alone.
                raise PostgresTrouble(str(damage), DAMAGED) from damage
            else:
                return combined.apart(others, rows)
        if len(calls) > 1:
            return self._run(execute, calls, patience)
        try:
            return self._run(execute, calls, patience)
        except Trouble as trouble:
            if trouble.disconnected:
                raise
            return [trouble]

    def _run(self, execute: Execute, calls: Sequence[Call], patience: float) -> list[Rows]:
        known = _statements()
        if len(calls) == 1:
            [(name, arguments)] = calls
            return [execute(known[name], {**arguments, "patience": patience})]
        execute(_BEGIN, {})
        try:
            rows = [execute(known[name], {**arguments, "patience": patience}) for name, arguments in calls]
            execute("COMMIT", {})
        except UnreadableRecord as damage:
            execute("ROLLBACK", {})
            raise PostgresTrouble(str(damage), DAMAGED) from damage
        except Trouble as trouble:
            if not trouble.disconnected:
                execute("ROLLBACK", {})
            raise
        return rows


class EngineExecutor:
    """For threads, one at a time, by a driver that blocks."""

    def __init__(self, open: Callable[[], StoreConnection]) -> None:
        self._connecting = Connecting(open)
        self._runner = Runner()

    def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:
        connection = self._connecting.connected(until)
        with (
            self._connecting.in_use(connection),
            cutting_after(until - monotonic(), connection.fileno()) as watched,
        ):
            try:
                return self._runner.run(connection.execute, calls, patience)
            except Trouble as trouble:
                if watched is not None and watched.cut:
                    raise StoreUnavailable(TIMED_OUT) from trouble
                raise

    def close(self) -> None:
        self._connecting.close()


class ThreadedEngineExecutor:
    """For coroutines, by a driver that blocks: each batch in a thread."""

    def __init__(self, open: Callable[[], StoreConnection]) -> None:
        self._open = open
        self._executor = EngineExecutor(open)
        self._running: asyncio.Future[Sequence[Outcome]] | None = None

    async def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:
        self._running = running = in_own_thread(self._executor.run, calls, until, patience)
        return await asyncio.shield(running)

    def close(self) -> None:
        executor, self._executor = self._executor, EngineExecutor(self._open)
        if self._running is None or self._running.done():
            executor.close()
        else:
            # The thread ends by its deadline, and the connection is closed then.
            self._running.add_done_callback(lambda _: executor.close())


class AsyncEngineExecutor:
    """For the coroutines of one event loop, by a driver that knows nothing else."""

    def __init__(self, open: OpenAsync) -> None:
        self._open = open
        self._connection: AsyncStoreConnection | None = None
        self._runner = Runner()
        fork.watch(self)

    def forked(self) -> None:
        """The connection is the parent's, and so is the event loop into which its end would reach."""
        _inherited.append(self._connection)
        self._connection = None

    async def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:
        connection = await self._connected(until)
        has_worked = connection.has_worked
        timer = asyncio.get_running_loop().call_later(until - monotonic(), connection.cut)
        try:
            outcomes = await connection.run(lambda execute: self._runner.run(execute, calls, patience))
        except Trouble as trouble:
            if trouble.disconnected:
                trouble.stale = has_worked
                self._drop()
            if monotonic() >= until:
                raise StoreUnavailable(TIMED_OUT) from trouble
            raise
        except BaseException:
            self._drop()
            raise
        finally:
            timer.cancel()
        connection.has_worked = True
        return outcomes

    async def _connected(self, until: float) -> AsyncStoreConnection:
        if self._connection is not None and not self._connection.usable:
            self._drop()
        if self._connection is not None:
            return self._connection
        opening = asyncio.ensure_future(self._open())
        try:
            await asyncio.wait([opening], timeout=until - monotonic())
        finally:
            if not opening.done():
                # Not waited for: drivers take their time even to be cancelled, if the server says nothing.
                opening.cancel()
                opening.add_done_callback(_cut_unwanted)
        if not opening.done():
            raise StoreUnavailable(CONNECT_TIMED_OUT)
        self._connection = opening.result()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cut()

    def close(self) -> None:
        self._drop()


def _cut_unwanted(opening: "asyncio.Future[AsyncStoreConnection]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().cut()
