"""The servers that faults happen to: what is started, how it is spoken to, and the books that stand on it.

One row of `DATABASES` for each.  A statement is named by what the proxy sees of it.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol

import psycopg
import pytest

from retrysafe.testing.adapters import mariadb, postgres, valkey
from retrysafe.testing.adapters.on_server import Program
from retrysafe.testing.conversations import Conversation
from retrysafe.testing.conversations.mysql import MySQLConversation
from retrysafe.testing.conversations.postgresql import PostgresConversation
from retrysafe.testing.conversations.redis import RedisConversation
from retrysafe.testing.proxy import Proxy
from retrysafe.testing.reference.databases import connect_to_mysql
from tests.any_store import arm
from tests.faults.books import Books, create, create_in_mariadb, opened, opened_elsewhere, opened_in_mariadb
from tests.faults.wire import fresh
from tests.servers import missing

Mode = Literal["tx", "lease"]


class Server(Protocol):
    """What every server of `retrysafe.testing` can be made to do."""

    @property
    def port(self) -> int: ...

    def new_database(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def close(self) -> None: ...


class Database(NamedTuple):
    name: str
    modes: tuple[Mode, ...]
    program: Program[Any]
    conversation: Callable[[], Conversation]
    opened: Callable[..., AbstractAsyncContextManager[Books]]
    """Given the store's address, the application's and the auditor's, and options of the guard."""
    prepare: Callable[[str], None]
    """Makes the application's tables."""
    locked: Callable[[Any, str], AbstractContextManager[None]]
    """While entered, no client gets a record read or written, and each may wait for that."""
    read_only: Callable[[str], AbstractContextManager[None]]
    """While entered, the server takes no writes, as one that has been demoted."""
    claim: str
    completion: str

    def started(self) -> Server:
        if not self.program.is_available():
            missing(self.program.missing)
        server: Server = self.program.start()
        return server

    def new(self, server: Server) -> str:
        url = server.new_database()
        self.prepare(url)
        return url

    @asynccontextmanager
    async def behind_proxy(
        self, server: Server, mode: Mode, lease: float = 30.0, abandoned: str = "hold"
    ) -> AsyncGenerator[tuple[Books, Proxy]]:
        url = self.new(server)
        more = {"effects": "outside", "abandoned": abandoned} if mode == "lease" else {}
        with Proxy(server.port, self.conversation) as proxy:
            through = proxy.through(url)
            async with self.opened(through, through, url, lease=lease, **more) as books:
                await books.settled(fresh())  # everybody is connected
                yield books, proxy


@contextmanager
def _locked_in_postgresql(_: Server, url: str) -> Generator[None]:
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE retrysafe_records IN ACCESS EXCLUSIVE MODE")
        yield
        other.rollback()


@contextmanager
def _read_only_postgresql(url: str) -> Generator[None]:
    # The role's default holds for sessions that begin from now on, and ours is older.
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on")
        yield
        other.execute("ALTER ROLE CURRENT_USER RESET default_transaction_read_only")


@contextmanager
def _read_only_mariadb(url: str) -> Generator[None]:
    with closing(connect_to_mysql(url)) as other, other.cursor() as cursor:
        cursor.execute("SET GLOBAL read_only = 1")
        yield
        cursor.execute("SET GLOBAL read_only = 0")


@contextmanager
def _read_only_valkey(url: str) -> Generator[None]:
    client: Any = import_module("redis").Redis  # its own types are incomplete
    with client.from_url(url) as other:
        other.execute_command("REPLICAOF", "127.0.0.1", "1")  # where no primary is
        yield
        other.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def _locked_in_mariadb(_: Server, url: str) -> Generator[None]:
    with closing(connect_to_mysql(url)) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES retrysafe_records WRITE")
        yield
        cursor.execute("UNLOCK TABLES")


@contextmanager
def _locked_in_valkey(_: Server, url: str) -> Generator[None]:
    """Scripts wait, as they do behind one that is slow."""
    client: Any = import_module("redis").Redis  # its own types are incomplete
    with client.from_url(url) as other:
        other.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        yield
        other.execute_command("CLIENT", "UNPAUSE")


DATABASES = (
    Database(
        "PostgreSQL",
        ("tx", "lease"),
        postgres.PROGRAM,
        PostgresConversation,
        opened,
        create,
        _locked_in_postgresql,
        _read_only_postgresql,
        claim="INSERT INTO retrysafe_records",
        completion="UPDATE retrysafe_records AS record SET state",
    ),
    Database(
        "MariaDB",
        ("tx", "lease"),
        mariadb.PROGRAM,
        MySQLConversation,
        opened_in_mariadb,
        create_in_mariadb,
        _locked_in_mariadb,
        _read_only_mariadb,
        claim="INSERT INTO retrysafe_records",
        completion="STRAIGHT_JOIN retrysafe_records AS record FORCE INDEX",
    ),
    Database(
        "Valkey",
        ("lease",),
        valkey.PROGRAM,
        RedisConversation,
        opened_elsewhere,
        arm,
        _locked_in_valkey,
        _read_only_valkey,
        claim="^EVALSHA .*-- Reserve a key that has no record",
        completion="^EVALSHA .*-- Store the outcome of a running record",
    ),
)

IN_BOTH_MODES = [
    pytest.param((database, mode), id=f"{database.name}-{mode}")
    for database in DATABASES
    for mode in database.modes
]
