"""MariaDB as the target: a server of its own, which can be killed, and whose connections can be cut."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pymysql
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from retrysafe import Guard, stores
from retrysafe import pymysql as joined
from retrysafe.stores.contract import Store
from retrysafe.testing.conversations.mysql import MySQLConversation
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.proxy import Proxy
from tools.crash import audit, traps
from tools.crash.handlers import BlockingHandlers, Handlers, Order, Sessions, SessionsAsync, insert
from tools.crash.links import Statements, ThroughProxy
from tools.crash.targets import Link, Target
from tools.crash.traps import reach

PATIENCE = 2.0
"""Seconds that a handler waits for a connection."""

_RECORDS = audit.RECORDS.replace("SELECT key", "SELECT `key`")

COMMIT, RESERVE, CONCLUDE = (
    ("COMMIT", "^COMMIT"),
    ("reserve", "INSERT INTO retrysafe_records"),
    ("conclude", "UPDATE retrysafe_records AS record SET state|STRAIGHT_JOIN retrysafe_records"),
)
STATEMENTS: Statements = {
    "tx": (COMMIT, CONCLUDE),
    "nested": (COMMIT, CONCLUDE, RESERVE),
    "hold": (RESERVE, CONCLUDE),
    "retry": (RESERVE, CONCLUDE),
    "payload": (COMMIT, CONCLUDE, RESERVE),
    "inbox": (RESERVE, CONCLUDE),
}


class MariaDB(Target):
    ways: ClassVar[Mapping[str, Sequence[str]]] = {
        "pymysql": (),
        "sqlalchemy": (),
        "sqlalchemy async": ("greenlet",),
    }
    has_server: ClassVar[bool] = True
    has_link: ClassVar[bool] = True

    def __init__(self, folder: Path, server: MariaDBServer | None = None) -> None:
        """With a server of its own, unless it is given one, which then is left running."""
        super().__init__(folder)
        self._lent = server is not None
        self._server = server or MariaDBServer()

    def prepare(self) -> str:
        url = self._server.new_database()
        with closing(_connect(url)) as connection, connection.cursor() as cursor:
            for statement in audit.CREATE:
                cursor.execute(statement)
        return url

    def read(self, url: str) -> audit.Snapshot:
        with closing(_connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

            def query(statements: Sequence[str]) -> list[list[Any]]:
                found: list[list[Any]] = []
                for statement in statements:
                    cursor.execute(statement)
                    found.append(list(cursor.fetchall()))
                return found

            return audit.read(query, _RECORDS)

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    @contextmanager
    def link(self, url: str) -> Generator[Link]:
        with Proxy(self._server.port, MySQLConversation) as proxy:
            yield ThroughProxy(proxy, url, STATEMENTS)

    def close(self) -> None:
        if not self._lent:
            self._server.close()

    @classmethod
    def install_traps(cls) -> None:
        traps.commits_of_pymysql()
        traps.commits_of_sqlalchemy()

    @classmethod
    def open(cls, url: str, way: str) -> str | Store:
        match way:
            case "sqlalchemy":
                return stores.from_engine(create_engine(url.replace("mysql:", "mysql+pymysql:")))
            case "sqlalchemy async":
                return stores.from_engine(create_async_engine(url.replace("mysql:", "mysql+asyncmy:")))
            case _:
                return url

    @classmethod
    def handlers(cls, guard: Guard, url: str, way: str) -> Handlers:
        match way:
            case "sqlalchemy":
                return Sessions(guard)
            case "sqlalchemy async":
                return SessionsAsync(guard)
            case _:
                return _Joined(guard, url)


class _Joined(BlockingHandlers):
    """Joined connections, in threads: each call opens one, because PyMySQL has no pool."""

    def __init__(self, guard: Guard, url: str) -> None:
        self._guard = guard
        self._url = url

    def write(self, order: Order, tables: Sequence[str] = audit.TABLES) -> None:
        for table in tables:
            with (
                joined.connection(self._guard, lambda: _connect(self._url)) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(insert(table, "%s"), (order.key, order.id))
            reach("after", f"Write {table}")


def _connect(url: str) -> "pymysql.Connection[Any]":
    found = urlsplit(url)
    return pymysql.connect(
        host=found.hostname,
        port=found.port or 0,
        user=found.username,
        password=found.password or "",
        database=found.path.lstrip("/"),
        connect_timeout=int(PATIENCE),
    )
