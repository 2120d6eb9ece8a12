"""What drivers have in different ways: values of rows, sockets, and how a connection is ended."""

from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from retrysafe.stores.queue import Row

if TYPE_CHECKING:
    import asyncio  # drivers that block have no use for it


def plain(row: Sequence[object]) -> Row:
    """The same values in every driver's row."""
    return [_PLAIN[kind](value) if (kind := type(value)) in _PLAIN else value for value in row]


_PLAIN: dict[type, Callable[[Any], object]] = {memoryview: bytes, bytearray: bytes, Decimal: float}
"""psycopg2 gives bytes as views of its own memory, mysql.connector as arrays; of MySQL sums are decimals."""


class HolderOfSocket(Protocol):
    def fileno(self) -> int: ...


def holder_of_socket(driver: Any) -> HolderOfSocket | None:  # noqa: ANN401 - each driver has its own
    """Whatever of a blocking driver's connection can tell the number of its socket."""
    candidates: list[HolderOfSocket | None] = [
        driver,  # psycopg, psycopg2, mysqlclient
        getattr(driver, "_usock", None),  # pg8000
        getattr(driver, "_sock", None),  # PyMySQL
        getattr(getattr(driver, "_socket", None), "sock", None),  # mysql.connector in pure Python
    ]
    return next((one for one in candidates if hasattr(one, "fileno")), None)


def process_of(driver: object) -> int | None:
    """The server's process or thread for a connection, if the driver was told."""
    for name in ("get_server_pid", "get_backend_pid", "thread_id", "connection_id"):
        found = getattr(driver, name, None)
        if callable(found):
            found = found()
        if isinstance(found, int):
            return found
    return None


class Texts:
    """Runs statements that have their values in them, on cursors of one connection."""

    def __init__(self, driver: object, cursor: Callable[[], Any]) -> None:
        self._driver = driver
        self._cursor = cursor
        self._is_together: bool | None = None

    def together(self, texts: Sequence[str]) -> list[Sequence[Row]]:
        """The rows of each; in one round trip if the driver can."""
        with closing(self._cursor()) as cursor:
            if self._is_together is None:
                self._is_together = _sends_several(self._driver, cursor)
            if not self._is_together:
                return [_run(cursor, text) for text in texts]
            found = [_run(cursor, ";\n".join(texts))]
            for _ in texts[1:]:
                cursor.nextset()
                found.append(_rows(cursor))
            return found


def _run(cursor: Any, sql: str) -> Sequence[Row]:  # noqa: ANN401 - each driver has its own
    cursor.execute(sql)
    return _rows(cursor)


def _rows(cursor: Any) -> Sequence[Row]:  # noqa: ANN401 - each driver has its own
    return [plain(row) for row in cursor.fetchall()] if cursor.description else ()


def _sends_several(driver: Any, cursor: Any) -> bool:  # noqa: ANN401 - each driver has its own
    """Whether a driver of MySQL's takes several statements as one text, on a connection of ours."""
    module = type(driver).__module__.partition(".")[0]
    if module == "pymysql":
        # A capability that is agreed on when the connection begins; this command adds it to the session's.
        driver._execute_command(_SET_OPTION, _MULTI_STATEMENTS_ON)
        driver._read_packet()
    elif module not in ("asyncmy", "aiomysql", "MySQLdb"):
        return False
    try:
        cursor.execute("SELECT 1; SELECT 2")
        cursor.nextset()
        return [tuple(row) for row in cursor.fetchall()] == [(2,)]
    except Exception as error:
        if error.args[:1] == (_SYNTAX,):
            return False
        raise


_SET_OPTION = 0x1B
_MULTI_STATEMENTS_ON = "\0\0"
_SYNTAX = 1064


class Terminable(Protocol):
    """A driver's connection for coroutines, as far as its end is concerned."""

    @property
    def process(self) -> int | None: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None:
        """At once: whatever waits for it gets an error."""
        ...

    async def close(self, patience: float) -> None: ...


def terminable(driver: Any) -> Terminable:  # noqa: ANN401 - each driver has its own
    return _OfPostgreSQL(driver) if hasattr(driver, "terminate") else _OfMySQL(driver)


class _OfPostgreSQL:
    """asyncpg."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - asyncpg need not be installed
        self._driver = driver
        self.is_closed: Callable[[], bool] = driver.is_closed
        self.terminate: Callable[[], None] = driver.terminate

    @property
    def process(self) -> int | None:
        return process_of(self._driver)

    async def close(self, patience: float) -> None:
        await self._driver.close(timeout=patience)


class _OfMySQL:
    """asyncmy and aiomysql, whose own `close` waits until everything is sent."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - neither need be installed
        self._driver = driver

    @property
    def process(self) -> int | None:
        return process_of(self._driver)

    @property
    def _transport(self) -> "asyncio.Transport | None":
        driver = self._driver
        writer = getattr(driver, "_writer", None)  # aiomysql, and asyncmy before it had a protocol of its own
        found: asyncio.Transport | None = getattr(driver, "_transport", None) or getattr(
            writer, "transport", None
        )
        return found

    def is_closed(self) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return True
        reader = getattr(self._driver, "_reader", None)
        return bool(getattr(self._driver, "_stream_broken", False)) or bool(reader and reader.at_eof())

    def terminate(self) -> None:
        transport = self._transport
        if transport is not None:
            transport.abort()
        self._driver.close()

    async def close(self, patience: float) -> None:
        from asyncio import wait_for

        try:
            await wait_for(self._driver.ensure_closed(), patience)
        finally:
            self.terminate()
