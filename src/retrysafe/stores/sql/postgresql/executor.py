"""Runs batches on a connection to PostgreSQL by psycopg: once blocking, once for coroutines."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Call, Outcome, Row
from retrysafe.stores.sql.connecting import Connecting
from retrysafe.stores.sql.postgresql import schema
from retrysafe.stores.sql.postgresql.admin import explained
from retrysafe.stores.sql.postgresql.connect import Source
from retrysafe.stores.sql.postgresql.retry import PostgresTrouble
from retrysafe.stores.sql.postgresql.session import Session, wait, wait_async

Open = Callable[[], Session]


class PostgresExecutor:
    """For one thread at a time."""

    def __init__(self, open: Open) -> None:
        self._connecting = Connecting(open)

    def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:
        session = self._connecting.connected(until)
        with self._connecting.in_use(session):
            return wait(session.run(calls, patience), session.socket, until)

    def close(self) -> None:
        self._connecting.close()


class AsyncPostgresExecutor:
    """For the coroutines of one event loop."""

    def __init__(self, open: Open) -> None:
        self._connecting = Connecting(open)

    async def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:
        session = await self._connecting.connected_async(until, asyncio.get_running_loop())
        with self._connecting.in_use(session):
            try:
                return await wait_async(session.run(calls, patience), session.socket, until)
            except NotImplementedError:
                raise StoreUnavailable(
                    "this event loop cannot watch a socket: on Windows, use asyncio.SelectorEventLoop"
                ) from None

    def close(self) -> None:
        self._connecting.close()


def opened(open: Open, deadline: float, prepare: Callable[[Session, float], None] | None = None) -> Session:
    """A new connection that may be used, to a server that was looked at.

    `deadline` is for all that is asked of the server; to connect takes as long as its address allows.
    """
    session = open()
    until = monotonic() + deadline
    try:
        schema.inspect(lambda name: ask(session, until, name))
        if prepare is not None:
            prepare(session, until)
    except PostgresTrouble as trouble:
        session.close()
        raise trouble.as_error() from None
    except BaseException:
        session.close()
        raise
    return session


def prepare(session: Session, until: float, migrated_by: str | None = None) -> None:
    """Create the tables if they do not exist, or refuse to work without them."""

    def command(sql: str) -> None:
        wait(session.command(sql), session.socket, until)

    schema.prepare(lambda name: ask(session, until, name), command, migrated_by)


def ask(session: Session, until: float, name: str, **arguments: object) -> Sequence[Row]:
    """The rows of one statement."""
    return wait(session.query(name, **arguments), session.socket, until)


class PsycopgAdminConnection:
    """A connection of its own, to any server: one that accepts no writes can still be read."""

    def __init__(self, source: Source) -> None:
        self._session = source.open()

    @property
    def process(self) -> int | None:
        return self._session.pgconn.backend_pid

    @property
    def usable(self) -> bool:
        return self._session.usable

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        with explained():
            conversation = self._session.query(name, **arguments)
            return wait(conversation, self._session.socket, monotonic() + within)

    def command(self, sql: str, within: float) -> None:
        with explained():
            wait(self._session.command(sql), self._session.socket, monotonic() + within)

    def close(self) -> None:
        self._session.close()
