"""The bad connection is as bad as it says, between real clients and a real PostgreSQL."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any

import psycopg
import pytest

from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.proxy import Proxy

asyncpg: Any = import_module("asyncpg")  # it has no types

INSERT = "INSERT INTO marks VALUES (%s)"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync="off") as server:  # it may be killed, but its machine is not
        yield server


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    url = server.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE marks (mark text)")
    yield url
    server.drop_database(url)


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


def connect(url: str, *, autocommit: bool = False) -> "psycopg.Connection[tuple[Any, ...]]":
    return psycopg.connect(url, autocommit=autocommit, connect_timeout=10)


def marks(database: str) -> list[str]:
    with psycopg.connect(database) as direct:
        return [row[0] for row in direct.execute("SELECT mark FROM marks ORDER BY mark")]


def until(wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not wanted():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def in_background(call: Callable[[], object]) -> "Future[object]":
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


def test_a_good_connection(proxy: Proxy, database: str) -> None:
    """Unless told otherwise it is not there: large values both ways, and errors, and several at once."""
    with connect(proxy.through(database)) as one, connect(proxy.through(database)) as two:
        large = "x" * 3_000_000
        assert one.execute("SELECT %s::text", [large]).fetchone() == (large,)
        with pytest.raises(psycopg.errors.UndefinedTable):
            two.execute("SELECT * FROM nothing")
        assert one.execute("SELECT 1").fetchone() == (1,)


def test_where_it_leads(proxy: Proxy, database: str) -> None:
    """An address that it does not lead to is refused, and not passed through unchanged."""
    with pytest.raises(ValueError, match="where this proxy leads"):
        proxy.through("postgresql://postgres@127.0.0.1:1/other")
    driver = proxy.through(database.replace("postgresql:", "postgresql+asyncpg:"))
    assert driver.startswith("postgresql+asyncpg://")
    assert f":{proxy.port}/" in driver


def test_connections_are_counted(proxy: Proxy, database: str) -> None:
    """Those that were closed since, too."""
    before = proxy.accepted
    for _ in range(3):
        connect(proxy.through(database)).close()
    assert proxy.accepted - before == 3


def test_cut(proxy: Proxy, database: str) -> None:
    """Everybody notices at the next word; whoever connects again is served."""
    connections = [connect(proxy.through(database)) for _ in range(3)]
    assert proxy.cut() == 3
    for connection in connections:
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        connection.close()
    with connect(proxy.through(database)) as again:
        assert again.execute("SELECT 1").fetchone() == (1,)


def test_refuse(proxy: Proxy, database: str) -> None:
    """Nobody new gets in, whoever is in stays, and later everybody gets in at the same address."""
    with connect(proxy.through(database)) as old:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError, match="refused"):
            connect(proxy.through(database))
        assert old.execute("SELECT 1").fetchone() == (1,)
        proxy.accept()
        connect(proxy.through(database)).close()


def test_no_server(proxy: Proxy, server: PostgresServer, database: str) -> None:
    """While there is no server behind it, whoever connects is sent away, and the rest is cut."""
    old = connect(proxy.through(database))
    server.kill()
    try:
        with pytest.raises(psycopg.OperationalError):
            connect(proxy.through(database))
        with pytest.raises(psycopg.OperationalError):
            old.execute("SELECT 1")
    finally:
        old.close()
        server.start()
    connect(proxy.through(database)).close()


def test_delay(proxy: Proxy, database: str) -> None:
    with connect(proxy.through(database), autocommit=True) as connection:
        proxy.delay(0.3)
        began = time.monotonic()
        connection.execute("SELECT 1")
        assert time.monotonic() - began >= 0.3
        proxy.restore()


def test_a_black_hole(proxy: Proxy, database: str) -> None:
    """Nothing arrives and nothing breaks, for old connections and new ones; later it all arrives."""
    with connect(proxy.through(database), autocommit=True) as connection:
        proxy.swallow()
        asked = in_background(lambda: connection.execute(INSERT, ["late"]))
        with pytest.raises(psycopg.OperationalError, match="timeout"):
            psycopg.connect(proxy.through(database), connect_timeout=2)
        assert not asked.done()
        assert marks(database) == []
        proxy.restore()
        asked.result(20)
        assert marks(database) == ["late"]


def test_cut_before_a_commit(proxy: Proxy, database: str) -> None:
    """The server never saw it, and has undone the rest."""
    connection = connect(proxy.through(database))
    trap = proxy.cut_before("^COMMIT")
    connection.execute(INSERT, ["never"])
    assert not trap.sprung
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    trap.wait()
    connection.close()
    assert marks(database) == []


def test_cut_during_a_commit(proxy: Proxy, database: str) -> None:
    """The client knows nothing, at once; the server commits all the same, in its own time."""
    connection = connect(proxy.through(database))
    trap = proxy.cut_during("^COMMIT")
    connection.execute(INSERT, ["during"])
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    trap.wait()
    connection.close()
    until(lambda: marks(database) == ["during"])


def test_the_answer_to_a_commit_is_lost(proxy: Proxy, database: str) -> None:
    """When the trap has sprung it is committed, and the client knows nothing."""
    connection = connect(proxy.through(database))
    trap = proxy.lose_response("^COMMIT")
    connection.execute(INSERT, ["lost"])
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    trap.wait()
    assert marks(database) == ["lost"]
    connection.close()


def test_a_statement_of_its_own(proxy: Proxy, database: str) -> None:
    """Without a transaction around it, sent with parameters: the write is there, its answer is not."""
    connection = connect(proxy.through(database), autocommit=True)
    trap = proxy.lose_response(r"insert into\s+marks")
    connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        connection.execute("INSERT  INTO\n marks VALUES (%s)", ["applied"])
    trap.wait()
    assert marks(database) == ["applied"]
    connection.close()


def test_a_prepared_statement(proxy: Proxy, database: str) -> None:
    """Its text was said long ago, under a name: it is recognised by that."""
    connection = connect(proxy.through(database), autocommit=True)
    connection.execute(INSERT, ["1"], prepare=True)
    trap = proxy.lose_response("INSERT INTO marks", nth=2)
    connection.execute(INSERT, ["2"], prepare=True)
    with pytest.raises(psycopg.OperationalError):
        connection.execute(INSERT, ["3"], prepare=True)
    trap.wait()
    assert marks(database) == ["1", "2", "3"]
    connection.close()


def test_the_nth_of_all(proxy: Proxy, database: str) -> None:
    """The empty pattern is every statement; other connections are counted, and then left alone."""
    with connect(proxy.through(database), autocommit=True) as other:
        connection = connect(proxy.through(database), autocommit=True)
        trap = proxy.cut_before("", nth=3)
        connection.execute(INSERT, ["1"])
        other.execute(INSERT, ["2"])
        with pytest.raises(psycopg.OperationalError):
            connection.execute(INSERT, ["3"])
        trap.wait()
        connection.close()
        other.execute(INSERT, ["4"])
    assert marks(database) == ["1", "2", "4"]


def test_one_of_a_pipeline(proxy: Proxy, database: str) -> None:
    """Answers that belong to what was said earlier arrive; those after are lost with the connection."""
    connection = connect(proxy.through(database), autocommit=True)
    trap = proxy.lose_response("SELECT 'second'")
    answers: list[Any] = []

    def talk() -> None:
        with connection.pipeline() as pipeline:
            answers.append(connection.execute("SELECT 'first'"))
            pipeline.sync()
            connection.execute("SELECT 'second'")
            pipeline.sync()
            connection.execute(INSERT, ["third"])

    with pytest.raises(psycopg.OperationalError):
        talk()
    trap.wait()
    assert answers[0].fetchone() == ("first",)
    connection.close()
    assert marks(database) == []


def test_whose_connection_it_is(proxy: Proxy, database: str) -> None:
    """Before it is cut, somebody is told from where it came."""
    told: list[int] = []
    with connect(proxy.through(database)) as one, connect(proxy.through(database)) as other:
        ports = [socket.socket(fileno=os.dup(which.fileno())) for which in (one, other)]
        trap = proxy.cut_before("SELECT 2", before=told.append)
        one.execute("SELECT 1")
        assert told == []
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 2")
        trap.wait()
        assert len(told) == 1
        assert told != [ports[0].getsockname()[1]]
        assert told == [ports[1].getsockname()[1]]
        for port in ports:
            port.close()


def test_hold(proxy: Proxy, database: str) -> None:
    """A statement waits on its way, as long as a test likes, and nothing else does."""
    connection = connect(proxy.through(database))
    trap = proxy.hold("^COMMIT")
    connection.execute(INSERT, ["held"])
    committed = in_background(connection.commit)
    trap.wait()
    assert marks(database) == []
    assert not committed.done()
    trap.release()
    committed.result(20)
    connection.close()
    assert marks(database) == ["held"]


def test_asyncpg(proxy: Proxy, database: str) -> None:
    """Another driver has other habits: it prepares everything, and ends its COMMIT with a semicolon."""

    async def lose(pattern: str, mark: str) -> None:
        connection: Any = await asyncpg.connect(proxy.through(database))
        trap = proxy.lose_response(pattern)
        try:
            with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
                async with connection.transaction():
                    await connection.execute("INSERT INTO marks VALUES ($1)", mark)
            trap.wait()
        finally:
            connection.terminate()

    asyncio.run(lose("^COMMIT", "committed"))
    asyncio.run(lose("^INSERT", "rolled back"))
    until(lambda: marks(database) == ["committed"])


def test_a_trap_that_nothing_falls_into(proxy: Proxy) -> None:
    """Whoever waits for it is told which statement did not come."""
    trap = proxy.lose_response("^VACUUM")
    with pytest.raises(AssertionError, match="VACUUM"):
        trap.wait(0.05)


def test_restored(proxy: Proxy, database: str) -> None:
    """Traps that did not spring are gone."""
    with connect(proxy.through(database)) as connection:
        proxy.cut_before("^COMMIT")
        proxy.restore()
        connection.execute(INSERT, ["kept"])
        connection.commit()
    assert marks(database) == ["kept"]
