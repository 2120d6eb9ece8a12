"""Runs batches on connections to MySQL or MariaDB: once blocking, once for coroutines."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from retrysafe._runtime.threads import in_own_thread
from retrysafe._runtime.watchdog import cutting_after
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Batch, Outcome, Row
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.connecting import Connecting
from retrysafe.stores.sql.connecting_loop import LoopConnecting
from retrysafe.stores.sql.mysql import schema
from retrysafe.stores.sql.mysql.admin import explained
from retrysafe.stores.sql.mysql.connect import Address
from retrysafe.stores.sql.mysql.session import AsyncMySQLSession, MySQLSession

T = TypeVar("T")

Open = Callable[[], MySQLSession]
OpenAsync = Callable[[], Awaitable[AsyncMySQLSession]]

_TIMED_OUT = "timed out waiting for the database"
_CONNECT_TIMED_OUT = "timed out connecting to the database; nothing was done"


class MySQLExecutor:
    """For one thread at a time."""

    def __init__(self, open: Open) -> None:
        self._connecting = Connecting(open)

    def run(self, calls: Batch, until: float, patience: float) -> Sequence[Outcome]:
        session = self._connecting.connected(until)
        with self._connecting.in_use(session):
            return _bounded(session, until, lambda: session.run(calls, patience, alone=calls.alone))

    def close(self) -> None:
        self._connecting.close()


def _bounded(session: MySQLSession, until: float, work: Callable[[], T]) -> T:
    with cutting_after(until - monotonic(), session.fileno()) as watched:
        try:
            return work()
        except Trouble as trouble:
            if watched is not None and watched.cut:
                raise StoreUnavailable(_TIMED_OUT) from trouble
            raise


class AsyncMySQLExecutor:
    """For the coroutines of one event loop."""

    def __init__(self, open: OpenAsync) -> None:
        self._connecting = LoopConnecting(open, _TIMED_OUT, _CONNECT_TIMED_OUT)

    async def run(self, calls: Batch, until: float, patience: float) -> Sequence[Outcome]:
        return await self._connecting.run(
            lambda session: session.run(calls, patience, alone=calls.alone), until
        )

    def close(self) -> None:
        self._connecting.close()


def opened(
    address: Address, deadline: float, prepare: Callable[[MySQLSession], None] | None = None
) -> MySQLSession:
    """A new connection that may be used, to a server that was looked at.

    `deadline` is for all that is asked of the server; to connect takes as long as its address allows.
    """
    session = MySQLSession.open(address)
    try:
        _bounded(session, monotonic() + deadline, session.begin)
        if prepare is not None:
            _bounded(session, monotonic() + deadline, lambda: prepare(session))
    except Trouble as trouble:
        session.discard()
        raise trouble.as_error() from None
    except BaseException:
        session.discard()
        raise
    return session


async def opened_async(
    address: Callable[[], Address], prepare: Callable[[], None] | None = None
) -> AsyncMySQLSession:
    """The same for coroutines; `prepare` blocks, and after it the address is known."""
    if prepare is not None:
        await in_own_thread(prepare)
    session = await AsyncMySQLSession.open(address())
    try:
        await session.begin()
    except BaseException:
        session.cut()
        raise
    return session


def prepare(session: MySQLSession, migrated_by: str | None = None) -> None:
    """Create the tables if they do not exist, or refuse to work without them."""
    schema.prepare(session.query, session.command, migrated_by)


class PyMySQLAdminConnection:
    """A connection of its own, to any server: one that accepts no writes can still be read."""

    def __init__(self, address: Address, deadline: float) -> None:
        self._session = MySQLSession.open(address)
        try:
            self._within(deadline, lambda: self._session.command(";".join(schema.SESSION)))
        except BaseException:
            self._session.discard()
            raise

    @property
    def process(self) -> int | None:
        return self._session.process

    @property
    def usable(self) -> bool:
        return self._session.usable

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        return self._within(within, lambda: self._session.query(name, arguments))

    def command(self, sql: str, within: float) -> None:
        self._within(within, lambda: self._session.command(sql))

    def _within(self, seconds: float, work: Callable[[], T]) -> T:
        with explained():
            return _bounded(self._session, monotonic() + seconds, work)

    def close(self) -> None:
        self._session.close()
