"""On psycopg the completion and the COMMIT are sent together: one round trip, and the same promises.

The application's connection goes through a proxy, and the store's own do not.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

import retrysafe.psycopg
from retrysafe import CommitRefused, Guard, current, stores
from retrysafe.sqlalchemy import async_sessionmaker, sessionmaker
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.proxy import Proxy
from tests.transactions.calls import Ledger
from tests.transactions.ledgers import InServer, a_guard
from tests.transactions.test_semantics import ask

INSERT = "INSERT INTO items VALUES ('a')"
TOGETHER, APART = 3, 4
"""Round trips of a transaction with one statement: BEGIN, the statement, the completion with the COMMIT."""

COMPLETION = "UPDATE retrysafe_records AS record SET state"

Execute = Callable[[str], Coroutine[Any, Any, None]]


class Library(NamedTuple):
    """A guard, and a way to execute something in the transaction of its calls, always on one connection."""

    guard: Guard
    execute: Execute


Open = Callable[[str, str], Any]


def with_psycopg(**options: Any) -> Open:
    @asynccontextmanager
    async def opened(direct: str, proxied: str) -> AsyncGenerator[Library]:
        guard = a_guard(direct, lease=LEASE)
        with ConnectionPool(proxied, min_size=1, max_size=1, open=True, kwargs=options) as pool:

            def execute(sql: str) -> None:
                with retrysafe.psycopg.connection(guard, pool) as db:
                    db.execute(sql.encode())

            yield Library(guard, lambda sql: asyncio.to_thread(execute, sql))
            guard.close()

    return opened


@asynccontextmanager
async def with_async_psycopg(direct: str, proxied: str) -> AsyncGenerator[Library]:
    guard = a_guard(direct, lease=LEASE)
    async with AsyncConnectionPool(proxied, min_size=1, max_size=1) as pool:

        async def execute(sql: str) -> None:
            async with retrysafe.psycopg.connection_async(guard, pool) as db:
                await db.execute(sql.encode())

        yield Library(guard, execute)
        guard.close()


def redirection(proxied: str) -> Callable[..., None]:
    """For SQLAlchemy's event: only what the application opens meanwhile goes through the proxy."""

    def redirect(_: object, __: object, ___: object, parameters: dict[str, Any]) -> None:
        parameters["port"] = make_url(proxied).port

    return redirect


@asynccontextmanager
async def with_session(direct: str, proxied: str) -> AsyncGenerator[Library]:
    engine = create_engine(make_url(direct).set(drivername="postgresql+psycopg"), pool_size=1, max_overflow=0)
    guard = a_guard(stores.from_engine(engine), lease=LEASE)
    sessions = sessionmaker(guard)

    def execute(sql: str) -> None:
        with sessions.begin() as session:
            session.execute(text(sql))

    redirect = redirection(proxied)
    event.listen(engine, "do_connect", redirect)
    execute("SELECT 1")
    event.remove(engine, "do_connect", redirect)
    yield Library(guard, lambda sql: asyncio.to_thread(execute, sql))
    guard.close()
    engine.dispose()


@asynccontextmanager
async def with_async_session(direct: str, proxied: str) -> AsyncGenerator[Library]:
    url = make_url(direct).set(drivername="postgresql+psycopg_async")
    engine = create_async_engine(url, pool_size=1, max_overflow=0)
    guard = a_guard(stores.from_engine(engine), lease=LEASE)
    sessions = async_sessionmaker(guard)

    async def execute(sql: str) -> None:
        async with sessions.begin() as session:
            await session.execute(text(sql))

    redirect = redirection(proxied)
    event.listen(engine.sync_engine, "do_connect", redirect)
    await execute("SELECT 1")
    event.remove(engine.sync_engine, "do_connect", redirect)
    yield Library(guard, execute)
    guard.close()
    await engine.dispose()


LEASE = 1.0

LIBRARIES: dict[str, Open] = {
    "psycopg": with_psycopg(),
    "async psycopg": with_async_psycopg,
    "Session": with_session,
    "AsyncSession": with_async_session,
}

Scenario = Callable[[Library], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def audit(database: str) -> InServer:
    return InServer(database)


@pytest.fixture(params=LIBRARIES)
def play(request: pytest.FixtureRequest, proxy: Proxy, database: str, audit: InServer) -> Play:
    def run(scenario: Scenario) -> None:
        in_library(LIBRARIES[request.param], proxy, database, scenario)

    return run


def in_library(library: Open, proxy: Proxy, database: str, scenario: Scenario) -> None:
    async def in_loop() -> None:
        async with library(database, proxy.through(database)) as opened:
            await scenario(opened)

    asyncio.run(in_loop())


async def request(
    library: Library, handler: Any, key: bytes = b"k", *, raises: type[Exception] | None = None
) -> Any:
    return await ask(Ledger(library.guard), handler, key=key, raises=raises)  # type: ignore[arg-type]


async def count(library: Library, proxy: Proxy) -> int:
    """The round trips of one request, on a connection that is open already."""
    await request(library, lambda: library.execute(INSERT), key=b"opens-connections")
    before = proxy.round_trips
    assert (await request(library, lambda: library.execute(INSERT))).status == 201
    return proxy.round_trips - before


def test_together(play: Play, proxy: Proxy, audit: InServer) -> None:
    async def scenario(library: Library) -> None:
        assert await count(library, proxy) == TOGETHER
        assert audit() == ["a", "a"]
        again = await request(library, lambda: library.execute(INSERT))
        assert (again.status, again.replayed, again.body) == (201, True, b"answer")

    play(scenario)


def test_a_libpq_that_cannot(
    play: Play, proxy: Proxy, audit: InServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, as with other drivers."""
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: False)

    async def scenario(library: Library) -> None:
        assert await count(library, proxy) == APART
        assert audit() == ["a", "a"]

    play(scenario)


def test_another_encoding(proxy: Proxy, database: str, audit: InServer) -> None:
    """Texts are then for psycopg to encode."""

    async def scenario(library: Library) -> None:
        assert await count(library, proxy) == APART
        assert (await request(library, lambda: library.execute(INSERT))).replayed

    in_library(with_psycopg(client_encoding="latin1"), proxy, database, scenario)
    assert audit() == ["a", "a"]


def test_a_connection_in_autocommit(proxy: Proxy, database: str, audit: InServer) -> None:
    """It is in autocommit again afterwards, and psycopg knows of no transaction any more."""

    async def scenario(library: Library) -> None:
        assert await count(library, proxy) == TOGETHER
        await library.execute(INSERT)  # outside of a guarded call

    in_library(with_psycopg(autocommit=True), proxy, database, scenario)
    assert audit() == ["a", "a", "a"]


def test_a_fence_undoes_everything(
    play: Play, proxy: Proxy, database: str, audit: InServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What is committed is the other attempt's; the connection is as good as before."""

    async def scenario(library: Library) -> None:
        async def overtaken() -> None:
            await library.execute(INSERT)
            with psycopg.connect(database) as other:
                other.execute("UPDATE retrysafe_records SET token = '\\x00'")

        fenced = await request(library, overtaken)
        assert (fenced.status, audit()) == (409, [])
        connections = proxy.accepted
        assert (await request(library, lambda: library.execute(INSERT), b"other")).status == 201
        assert (proxy.accepted, audit(), audit.idle_in_transaction()) == (connections, ["a"], 0)

    play(scenario)
    assert "22P02" not in caplog.text
    assert "invalid input" not in caplog.text


@pytest.mark.parametrize("text", ["retrysafe completion fenced", "something else"])
def test_an_error_like_that_of_a_fence(play: Play, database: str, audit: InServer, text: str) -> None:
    """It comes from the COMMIT, so it is a constraint of the application's that was violated."""
    with psycopg.connect(database) as db:
        db.execute(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM CAST('{text}' AS integer); RETURN NULL; END $$".encode()
        )
        db.execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON items DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )

    async def scenario(library: Library) -> None:
        refused = await request(library, lambda: library.execute(INSERT), raises=CommitRefused)
        assert (refused.status, audit(), audit.idle_in_transaction()) == (500, [], 0)
        with psycopg.connect(database) as db:
            db.execute("DROP FUNCTION refuse CASCADE")
        assert (await request(library, lambda: library.execute(INSERT))).status == 201
        assert audit() == ["a"]

    play(scenario)


def test_a_record_that_is_locked(play: Play, database: str, audit: InServer) -> None:
    """The completion waits for the lease, and everything is undone: another time it will work."""

    async def scenario(library: Library) -> None:
        async def handler() -> None:
            await library.execute(INSERT)
            other.execute("SELECT FROM retrysafe_records FOR UPDATE")

        with psycopg.connect(database) as other:
            locked = await request(library, handler, raises=CommitRefused)
            assert (locked.status, b"not-done" in locked.body) == (503, True), locked.body
        assert audit() == []
        assert audit.idle_in_transaction() == 0

    play(scenario)


@pytest.mark.parametrize("statement", [COMPLETION, "^COMMIT"])
def test_the_connection_is_lost_before_the_commit(
    play: Play, proxy: Proxy, audit: InServer, statement: str
) -> None:
    """The record says that nothing was committed, and the retry runs."""

    async def scenario(library: Library) -> None:
        async def handler() -> None:
            await library.execute(INSERT)
            traps.append(proxy.cut_before(statement))

        traps: list[Any] = []
        lost = await request(library, handler)
        assert traps[0].sprung
        assert (lost.status, audit()) == (503, [])
        again = await request(library, lambda: library.execute(INSERT))
        assert (again.status, again.replayed, audit()) == (201, False, ["a"])

    play(scenario)


@pytest.mark.parametrize("statement", [COMPLETION, "^COMMIT"])
def test_the_connection_is_lost_after_the_commit(
    play: Play, proxy: Proxy, audit: InServer, statement: str
) -> None:
    """The record says that all of it was committed, and its callbacks are called."""

    async def scenario(library: Library) -> None:
        async def handler() -> None:
            await library.execute(INSERT)
            current().on_commit(lambda: called.append(True))
            traps.append(proxy.lose_response(statement))

        traps: list[Any] = []
        called: list[bool] = []
        lost = await request(library, handler)
        assert traps[0].sprung
        assert (lost.status, lost.body, audit(), called) == (201, b"answer", ["a"], [True])
        assert (await request(library, lambda: library.execute(INSERT))).replayed

    play(scenario)


def test_events_of_sqlalchemy(database: str, audit: InServer) -> None:
    """The commit is SQLAlchemy's, and its listeners are called once."""
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    guard = a_guard(stores.from_engine(engine))
    sessions = sessionmaker(guard)
    heard: list[str] = []

    def write() -> None:
        with sessions.begin() as session:
            session.execute(text(INSERT))

    event.listen(engine, "commit", lambda _: heard.append("commit"))
    event.listen(engine, "rollback", lambda _: heard.append("rollback"))
    library = Library(guard, lambda _: asyncio.to_thread(write))
    assert asyncio.run(request(library, lambda: library.execute(INSERT))).status == 201
    assert heard == ["commit"]
    assert audit() == ["a"]
    guard.close()
    engine.dispose()


def test_the_statement_says_that_it_is_fenced(postgres: PostgresServer, play: Play, database: str) -> None:
    """An operator finds it in the server's log, and no value of the record with it."""
    before = len(postgres.log)

    async def scenario(library: Library) -> None:
        async def overtaken() -> None:
            await library.execute(INSERT)
            with psycopg.connect(database) as other:
                other.execute("UPDATE retrysafe_records SET token = '\\x00'")

        assert (await request(library, overtaken)).status == 409

    play(scenario)
    assert re.search(
        'ERROR:  invalid input syntax for type integer: "retrysafe completion fenced', postgres.log[before:]
    )
    assert "answer" not in postgres.log[before:]
