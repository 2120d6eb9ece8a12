"""A server that stops responding while a transaction is ended: the wait has a limit, and the connection is
given back."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, cast

import psycopg
import pytest
from psycopg.pq import ConnStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine, event, make_url

import retrysafe.psycopg
from retrysafe import Guard, StoreUnavailable, stores
from retrysafe._runtime.watchdog import ending_within
from retrysafe.sqlalchemy import sessionmaker
from retrysafe.stores.sql.join import Joint
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.proxy import Proxy
from retrysafe.wsgi import Middleware
from tests.core.wsgi_calls import Served, an_environ, created
from tests.transactions.calls import Ledger, in_thread
from tests.transactions.ledgers import INSERT, Broken, InServer, a_guard
from tests.transactions.test_semantics import ask

LEASE = 0.6
PATIENCE = 30.0
"""Seconds after which a wait counts as one without a limit."""

Write = Callable[[], None]


# The guard's own connections do not go through the proxy: the lease is renewed all the time.


@contextmanager
def with_psycopg(direct: str, proxied: str) -> Generator[tuple[Guard, Write]]:
    guard = a_guard(direct, lease=LEASE)
    with ConnectionPool(proxied, min_size=1, max_size=1, open=True) as pool:

        def write() -> None:
            with retrysafe.psycopg.connection(guard, pool) as db:
                db.execute("INSERT INTO items VALUES ('a')")

        write()
        yield guard, write
        guard.close()


def with_session(driver: str) -> Any:
    @contextmanager
    def opened(direct: str, proxied: str) -> Generator[tuple[Guard, Write]]:
        url = make_url(direct).set(drivername=f"postgresql+{driver}")
        engine = create_engine(url, pool_size=1, max_overflow=0)
        guard = a_guard(stores.from_engine(engine), lease=LEASE)
        maker = sessionmaker(guard)

        def redirect(_: object, __: object, ___: object, parameters: dict[str, Any]) -> None:
            parameters["port"] = make_url(proxied).port

        def write() -> None:
            with maker.begin() as session:
                session.execute(INSERT, {"name": "a"})

        event.listen(engine, "do_connect", redirect)
        write()
        event.remove(engine, "do_connect", redirect)
        yield guard, write
        guard.close()
        engine.dispose()

    return opened


def by_wsgi(guard: Guard, handler: Write) -> int:
    def app(environ: Any, start_response: Any) -> Any:
        handler()
        return created(environ, start_response)

    return Served(Middleware(app, guard), an_environ()).status


def by_asgi(guard: Guard, handler: Write) -> int:
    client = ask(cast(Any, Ledger(guard)), in_thread(cast(Any, handler)))
    return asyncio.run(client).status


LIBRARIES = {
    "psycopg": with_psycopg,
    "Session, psycopg": with_session("psycopg"),
    "Session, pg8000": with_session("pg8000"),
}


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as worker:
        yield worker


@pytest.mark.parametrize(
    ("library", "drive"),
    [*((library, by_wsgi) for library in LIBRARIES), ("psycopg", by_asgi)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_commit_without_a_response(
    worker: ThreadPoolExecutor,
    proxy: Proxy,
    database: str,
    library: str,
    drive: Callable[[Guard, Write], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """503 after the lease and a little more; the retry runs, with the only connection that the pool has."""
    audit = InServer(database)
    with LIBRARIES[library](database, proxy.through(database)) as (guard, write):

        def handler() -> None:
            write()
            silence.append(proxy.hold("^COMMIT"))

        silence: list[Any] = []
        request: Future[int] = worker.submit(drive, guard, handler)
        try:
            _until(lambda: bool(silence))
            silence[0].wait()
            proxy.swallow()
            assert request.result(PATIENCE) == 503
        finally:
            for trap in silence:
                trap.release()
            proxy.restore()
        assert "it is not known how the transaction ended" in caplog.text
        _until(lambda: drive(guard, write) == 201)  # as soon as the server has noticed
    assert audit() == ["a", "a"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_rollback_without_a_response(
    worker: ThreadPoolExecutor, proxy: Proxy, database: str, library: str
) -> None:
    """The handler's failure is responded to all the same."""
    audit = InServer(database)
    with LIBRARIES[library](database, proxy.through(database)) as (guard, write):

        def handler() -> None:
            write()
            silence.append(proxy.hold("^ROLLBACK"))
            raise Broken

        silence: list[Any] = []
        request: Future[int] = worker.submit(by_wsgi, guard, handler)
        try:
            _until(lambda: bool(silence))
            silence[0].wait()
            proxy.swallow()
            assert request.result(PATIENCE) == 500
        finally:
            for trap in silence:
                trap.release()
            proxy.restore()
        _until(lambda: by_wsgi(guard, write) == 201)
    assert audit() == ["a", "a"]


def _lose(url: str, db: Any) -> None:
    """Have the server end this connection's session, and libpq notice it before anything else is sent."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s)", [db.info.backend_pid])

    def lost() -> bool:
        with suppress(psycopg.Error):
            db.pgconn.consume_input()
        return bool(db.pgconn.status != ConnStatus.OK)

    _until(lost)


def test_psycopg_loses_the_connection_before_it_sends_commit(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg then leaves a transaction without an error, and nothing is committed: 503, and a retry runs.

    With a libpq that cannot send the COMMIT together with the completion.
    """
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: False)
    audit = InServer(database)
    used: list[Any] = []
    perform = Joint.perform

    def perform_and_lose(self: Joint, operation: Any, execute: Any) -> Any:
        performed = perform(self, operation, execute)
        if used:
            _lose(database, used.pop())
        return performed

    monkeypatch.setattr(Joint, "perform", perform_and_lose)
    guard = a_guard(database)
    with ConnectionPool(database, min_size=1, open=True) as pool:

        def write() -> None:
            with retrysafe.psycopg.connection(guard, pool) as db:
                db.execute("INSERT INTO items VALUES ('a')")

        def handler() -> None:
            with retrysafe.psycopg.connection(guard, pool) as db:
                write()
                used.append(db)

        assert (by_wsgi(guard, handler), audit()) == (503, [])
        assert (by_wsgi(guard, write), audit()) == (201, ["a"])
    guard.close()


def test_async_psycopg_loses_the_connection_before_it_sends_commit(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: False)
    audit = InServer(database)
    used: list[Any] = []
    perform = Joint.perform_async

    async def perform_and_lose(self: Joint, operation: Any, execute: Any) -> Any:
        performed = await perform(self, operation, execute)
        if used:
            _lose(database, used.pop())
        return performed

    monkeypatch.setattr(Joint, "perform_async", perform_and_lose)

    async def scenario() -> None:
        guard = a_guard(database)
        async with AsyncConnectionPool(database, min_size=1) as pool:

            async def write() -> None:
                async with retrysafe.psycopg.connection_async(guard, pool) as db:
                    await db.execute("INSERT INTO items VALUES ('a')")

            async def handler() -> None:
                async with retrysafe.psycopg.connection_async(guard, pool) as db:
                    await write()
                    used.append(db)

            ledger = cast(Any, Ledger(guard))
            assert ((await ask(ledger, handler)).status, audit()) == (503, [])
            assert ((await ask(ledger, write)).status, audit()) == (201, ["a"])
        guard.close()

    asyncio.run(scenario())


# --- the watchdog


def _receive(connection: socket.socket) -> None:
    if not connection.recv(1):
        raise StoreUnavailable("the connection was lost")


def test_what_takes_too_long_is_cut() -> None:
    """Also by a deadline that is earlier than the one the watchdog sleeps for."""
    began = time.monotonic()
    near, far = socket.socketpair()
    with (
        near,
        far,
        ending_within(PATIENCE, far.fileno()),
        pytest.raises(StoreUnavailable, match="not known"),
        ending_within(0.05, near.fileno()),
    ):
        _receive(near)
    assert time.monotonic() - began < PATIENCE / 2


def test_what_ends_in_time_is_not_cut() -> None:
    near, far = socket.socketpair()
    with near, far:
        with pytest.raises(StoreUnavailable, match="refused"), ending_within(PATIENCE, near.fileno()):
            raise StoreUnavailable("the connection was refused")
        far.send(b"x")
        with ending_within(PATIENCE, near.fileno()):
            _receive(near)


FORKED = """
import os, socket
from retrysafe._runtime.watchdog import ending_within

near, far = socket.socketpair()
with ending_within(60, near.fileno()):
    pid = os.fork()
    if pid == 0:
        with ending_within(0.05, near.fileno()):
            assert near.recv(1) == b""
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_child_process_has_a_watchdog_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=PATIENCE)


def _until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.02)
