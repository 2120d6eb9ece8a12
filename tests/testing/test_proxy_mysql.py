"""The bad connection where MySQL is spoken: it meets statements, and knows where the replies to them end."""

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import pymysql
import pytest
from pymysql.constants import CLIENT

from retrysafe.testing.conversations.mysql import MySQLConversation
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.proxy import Proxy

INSERT = "INSERT INTO marks VALUES (%s)"


@pytest.fixture
def proxy(mariadb: MariaDBServer) -> Iterator[Proxy]:
    with Proxy(mariadb.port, MySQLConversation) as proxy:
        yield proxy


@pytest.fixture
def database(mariadb: MariaDBServer) -> Iterator[str]:
    url = mariadb.new_database()
    with connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE marks (mark text)")
    yield url
    mariadb.drop_database(url)


def arguments(url: str) -> dict[str, Any]:
    found = urlsplit(url)
    return {
        "host": found.hostname,
        "port": found.port,
        "user": found.username,
        "password": found.password,
        "database": found.path.lstrip("/"),
    }


def connect(url: str) -> "pymysql.Connection[Any]":
    return pymysql.connect(**arguments(url), autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS)


def marks(url: str) -> list[str]:
    with connect(url) as direct, direct.cursor() as cursor:
        cursor.execute("SELECT mark FROM marks ORDER BY mark")
        return [row[0] for row in cursor.fetchall()]


def test_a_good_connection(proxy: Proxy, database: str) -> None:
    """Unless told otherwise it is not there: large values, errors, rows and several results."""
    with connect(proxy.through(database)) as connection, connection.cursor() as cursor:
        large = "x" * 3_000_000
        cursor.execute("SELECT %s", [large])
        assert cursor.fetchone() == (large,)
        with pytest.raises(pymysql.ProgrammingError):
            cursor.execute("SELECT * FROM nothing")
        cursor.execute("SELECT 1; INSERT INTO marks VALUES ('first'); SELECT 3, 4 UNION SELECT 5, 6")
        results = [list(cursor.fetchall())]
        while cursor.nextset():
            results.append(list(cursor.fetchall()))
        assert results == [[(1,)], [], [(3, 4), (5, 6)]]
        connection.ping(reconnect=False)
        with connect(proxy.through(database)) as other, other.cursor() as also:
            also.execute("SELECT mark FROM marks")
            assert also.fetchall() == (("first",),)


@pytest.mark.parametrize(("action", "left"), [("cut_before", ["a"]), ("lose_response", ["a", "b"])])
def test_at_a_statement(action: str, left: list[str], proxy: Proxy, database: str) -> None:
    """The server has performed it, or has never seen it; other connections go on."""
    with connect(proxy.through(database)) as other, other.cursor() as beside:
        connection = connect(proxy.through(database))
        cursor = connection.cursor()
        cursor.execute(INSERT, ["a"])
        trap = getattr(proxy, action)("^INSERT INTO marks .*'b'")
        with pytest.raises(pymysql.OperationalError):
            cursor.execute(INSERT, ["b"])
        trap.wait()
        assert marks(database) == left
        beside.execute(INSERT, ["c"])
    assert marks(database) == [*left, "c"]


def test_the_reply_with_rows_is_kept_whole(proxy: Proxy, database: str) -> None:
    """A statement that returns rows is committed when the last of them was said, and not before."""
    connection = connect(proxy.through(database))
    trap = proxy.lose_response("RETURNING")
    with pytest.raises(pymysql.OperationalError), connection.cursor() as cursor:
        cursor.execute(f"{INSERT}, (%s) RETURNING mark", ["x" * 60_000, "y"])
    trap.wait()
    assert len(marks(database)) == 2


def test_a_driver_for_coroutines(proxy: Proxy, database: str) -> None:
    """The other driver in use here: the greeting, rows, an error and a trap."""

    async def run() -> None:
        found = arguments(proxy.through(database))
        connection = await asyncmy.connect(**{**found, "db": found.pop("database")}, autocommit=True)
        async with connection.cursor() as cursor:
            await cursor.execute(INSERT, ["a"])
            await cursor.execute("SELECT mark FROM marks")
            assert list(await cursor.fetchall()) == [("a",)]
            with pytest.raises(asyncmy.errors.ProgrammingError):
                await cursor.execute("SELECT * FROM nothing")
            trap = proxy.lose_response("^INSERT")
            with pytest.raises(asyncmy.errors.OperationalError):
                await cursor.execute(INSERT, ["b"])
            await asyncio.to_thread(trap.wait)

    asyncio.run(run())
    assert marks(database) == ["a", "b"]


def test_it_can_be_away(proxy: Proxy, database: str) -> None:
    """Refused and cut, and then there again."""
    proxy.refuse()
    proxy.cut()
    with pytest.raises(pymysql.OperationalError):
        connect(proxy.through(database))
    proxy.restore()
    with connect(proxy.through(database)) as connection:
        connection.ping(reconnect=False)
