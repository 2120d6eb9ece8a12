"""The MariaDB server that tests have: it is their own, and can be treated badly."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

from retrysafe.testing import mariadb as mariadb_server
from retrysafe.testing.adapters.client import until
from retrysafe.testing.mariadb import MariaDBServer
from tests.servers import missing


@pytest.fixture(autouse=True)
def _installed() -> None:
    if not mariadb_server.is_available():
        missing("MariaDB is not installed: run `make services`, or install Debian's mariadb-server")


def connect(url: str, **options: Any) -> "pymysql.Connection[Any]":
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 0,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.removeprefix("/"),
        autocommit=True,
        **options,
    )


def execute(connection: "pymysql.Connection[Any]", statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def test_every_database_is_empty(mariadb: MariaDBServer) -> None:
    """Two tests that use the same name do not meet, and a database is gone when it is dropped."""
    one, other = mariadb.new_database(), mariadb.new_database()
    with connect(one) as first, connect(other) as second:
        execute(first, "CREATE TABLE name (value INT)")
        assert execute(second, "SHOW TABLES") == ()
        mariadb.drop_database(one)
    with pytest.raises(pymysql.OperationalError, match="Unknown database"):
        connect(one)
    with pytest.raises(ValueError, match="not a database that this server created"):
        mariadb.drop_database(mariadb.url("mysql"))


def test_only_its_own_clients_are_served(mariadb: MariaDBServer) -> None:
    """A client that was meant for another server, which had this port before, gets nowhere; nor does root."""
    for user in ("test", "root", ""):
        with pytest.raises(pymysql.OperationalError, match="denied"):
            pymysql.connect(host="127.0.0.1", port=mariadb.port, user=user)


def test_it_has_a_socket_too(mariadb: MariaDBServer) -> None:
    """A client can come by the file system."""
    with connect(mariadb.new_database(), unix_socket=str(mariadb.socket)) as connection:
        assert execute(connection, "SELECT 1") == ((1,),)


def test_it_can_be_killed_and_frozen() -> None:
    """What was committed is there after `kill -9`; frozen, it is silent until it thaws."""
    with MariaDBServer() as server:
        url = server.new_database()
        with connect(url, read_timeout=0.2) as connection:
            execute(connection, "CREATE TABLE name (value INT)")
            execute(connection, "INSERT INTO name VALUES (1)")
            server.freeze()
            with pytest.raises(pymysql.OperationalError, match="timed out"):
                execute(connection, "SELECT value FROM name")
        server.thaw()
        with connect(url) as connection:
            assert execute(connection, "SELECT value FROM name") == ((1,),)
            server.kill()
            with pytest.raises(pymysql.OperationalError):
                execute(connection, "SELECT value FROM name")
        for end in (None, server.stop):
            if end is not None:
                end()
            server.start()
            with connect(url) as connection:
                assert execute(connection, "SELECT value FROM name") == ((1,),)


def test_a_setting_that_it_refuses() -> None:
    """It says what the server's log says, and nothing is left running."""
    with pytest.raises(RuntimeError, match=r"did not start(?s:.)*forgetful"):
        MariaDBServer(innodb_flush_method="forgetful")


_OWNER = """
import sys
from retrysafe.testing.mariadb import MariaDBServer
server = MariaDBServer(innodb_flush_method="nosync")
if "frozen" in sys.argv:
    server.freeze()
print(server.log_file.parent, server.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["running", "frozen"])
def test_it_does_not_outlive_its_owner(state: str) -> None:
    """A test run that is killed leaves neither a server nor its folder."""
    command = [sys.executable, "-c", _OWNER, state]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder, pid = owner.stdout.readline().split()
        assert Path(folder, "pid").exists()
        owner.kill()
    until(lambda: not Path(folder).exists() and not Path(f"/proc/{pid}").exists())
