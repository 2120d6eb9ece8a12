"""Connections to the server: one for threads, by PyMySQL, and one for an event loop, by asyncmy.

Both send the steps of a batch as one text, so that they are one round trip, and read the rows of each.  A
connection that was cut, whose server is gone, or whose conversation broke off in the middle is never used
again: what still comes would be taken for what belongs to the next call.

A child process inherits connections, and must leave them alone.  It closes its end of a socket without a word
to the server, and of an event loop not even that.
"""

import contextlib
import os
import selectors
import socket
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar, cast

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE

from retrysafe._runtime.watchdog import cutting_after
from retrysafe.errors import ConfigurationError, StoreUnavailable
from retrysafe.stores.queue import Call, Outcome, Row, Rows
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.mysql import schema
from retrysafe.stores.sql.mysql.batch import Conversation, converse, manner, within
from retrysafe.stores.sql.mysql.connect import Address, set_options
from retrysafe.stores.sql.mysql.retry import trouble
from retrysafe.stores.sql.mysql.schema import Server
from retrysafe.stores.sql.mysql.texts import with_literals

T = TypeVar("T")

_FLAGS: Final = CLIENT.MULTI_STATEMENTS

_Selector: Callable[[], selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""The cheapest that takes any number of a socket, where there is one."""

_INTEGERS = (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.INT24)
_FRACTIONS = (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE, FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL)

_READERS: Final[dict[int | type[Any], Callable[[Any], Any]]] = {
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_FRACTIONS, float),
}
"""Everything else is bytes or text."""


class _Patience:
    """How long the server waits for a lock, in whole seconds, which is a setting of the session."""

    def __init__(self) -> None:
        self._seconds = 1

    def steps(self, seconds: float) -> Sequence[str]:
        """What sets it, if it is not so already."""
        wanted = max(int(seconds), 1)
        if wanted == self._seconds:
            return ()
        self._seconds = wanted
        return (f"SET SESSION innodb_lock_wait_timeout = {wanted}, lock_wait_timeout = {wanted}",)


class MySQLSession:
    """For one thread at a time; others may cut it."""

    def __init__(self, connection: "pymysql.Connection[Any]", opened: socket.socket) -> None:
        self.has_worked = False
        self.largest = 1 << 20
        self._connection = connection
        self._socket = opened
        self._cursor = connection.cursor()
        self._patience = _Patience()
        self._sound = True
        self._process = os.getpid()

    @classmethod
    def open(cls, address: Address) -> "MySQLSession":
        """Connect.  It blocks, for as long as the address allows."""
        opened = None
        try:
            opened = address.connect()
            # Another handle of it: the driver may put TLS in the place of its own.
            ours = socket.socket(fileno=socket.dup(opened.fileno()))
        except OSError as error:
            if opened is not None:
                opened.close()
            raise unreachable(error) from None
        try:
            options: dict[str, Any] = {}
            if address.ssl_mode != "preferred":  # which is what the driver does by itself
                tls = address.tls()
                options.update({"ssl_disabled": True} if tls is None else {"ssl": tls})
            connection: pymysql.Connection[Any] = pymysql.Connection(
                host=address.host,
                user=address.user,
                password=address.secret,
                database=address.database,
                charset="utf8mb4",
                conv=_READERS,
                client_flag=_FLAGS,
                autocommit=None,
                defer_connect=True,
                program_name="retrysafe",
                **options,
            )
            with cutting_after(address.timeout, ours.fileno()):
                connection.connect(opened)
        except BaseException as error:
            ours.close()
            opened.close()
            if isinstance(error, (pymysql.MySQLError, OSError)):
                raise unreachable(error) from None
            raise
        return cls(connection, ours)

    def begin(self) -> Server:
        """Make it a session of ours, on a server that may hold a store."""
        self.command(";".join(schema.SESSION))
        server = schema.inspect(self.query)
        self.largest = server.largest
        return server

    @property
    def usable(self) -> bool:
        """To be called while it is idle."""
        if not self._sound or os.getpid() != self._process:
            return False
        with _Selector() as selector:
            # On an idle connection there is nothing to be read but its end.
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def run(self, calls: Sequence[Call], patience: float, *, alone: bool) -> Sequence[Outcome]:
        """The rows of each call, or its own trouble.  Raises the trouble of a batch, all undone."""
        try:
            for before in self._patience.steps(patience):
                self._execute(before)
            return self._converse(converse(calls, manner(patience, alone=alone)))
        except Trouble as trouble:
            if trouble.disconnected or len(calls) > 1:
                raise
            return [trouble]

    def query(self, name: str, arguments: Mapping[str, object] | None = None) -> Rows:
        """One call by its name."""
        return self._converse(within(name, arguments or {}))

    def command(self, sql: str) -> None:
        """SQL without arguments or rows, and perhaps several statements."""
        self._execute(sql)

    def _converse(self, conversation: Conversation[T]) -> T:
        try:
            steps = next(conversation)
            while True:
                try:
                    found = self._execute(";".join(with_literals(steps, self.largest)))
                except Trouble as trouble:
                    steps = conversation.throw(trouble)
                else:
                    steps = conversation.send(found)
        except StopIteration as end:
            result: T = end.value
            return result

    def _execute(self, text: str) -> list[Rows]:
        """The rows of each statement of a text."""
        cursor = self._cursor
        sound, self._sound = self._sound, False
        try:
            cursor.execute(text)
            found: list[Rows] = [cursor.fetchall()]
            while cursor.nextset():
                found.append(cursor.fetchall())
        except (pymysql.MySQLError, OSError) as error:
            said = trouble(error)
            self._sound = sound and not said.disconnected
            raise said from error
        self._sound = sound
        return found

    @property
    def has_tls(self) -> bool:
        """Whether the server has it."""
        capabilities: int = getattr(self._connection, "server_capabilities", 0)
        return bool(capabilities & CLIENT.SSL)

    @property
    def process(self) -> int:
        """The number of its thread in the server."""
        return cast(int, self._connection.thread_id())  # type: ignore[no-untyped-call]

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        if not self.usable:
            self.discard()
            return
        self._end()

    def discard(self) -> None:
        """Without a word, and also if something is under way on it."""
        self._sound = False
        if os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._end()

    def _end(self) -> None:
        self._sound = False
        with contextlib.suppress(Exception):  # whatever is wrong with it now, it is gone
            self._connection.close()
        self._socket.close()


# --- for event loops


class _Result(Protocol):
    rows: Sequence[Row] | None
    has_next: bool


class _Transport(Protocol):
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_extra_info(self, name: str) -> Any: ...  # noqa: ANN401 - asyncio's


_transport_of: Callable[[object], _Transport | None] = attrgetter("_transport")
_result_of: Callable[[object], _Result] = attrgetter("_result")
"""asyncmy's connections have no other way to be ended at once, and their cursors copy what is here."""


class _Driver(Protocol):
    """What is used of asyncmy's connections."""

    async def connect(self) -> object: ...
    async def query(self, sql: str) -> object: ...
    async def next_result(self) -> object: ...
    def close(self) -> None: ...


_inherited: list[object] = []
"""What children have of their parents: its end would reach into the parent's event loop."""


class AsyncMySQLSession:
    """For the coroutines of the event loop that opened it."""

    def __init__(self, driver: _Driver) -> None:
        self.has_worked = False
        self.largest = 1 << 20
        self._driver = driver
        self._patience = _Patience()
        self._sound = True
        self._process = os.getpid()

    @classmethod
    async def open(cls, address: Address) -> "AsyncMySQLSession":
        """Connect, to an address that says whether TLS is used."""
        errors, connection = _asyncmy()
        tls = address.tls()
        driver = cast(
            _Driver,
            connection(
                host=address.host,
                port=address.port,
                unix_socket=address.unix_socket,
                user=address.user,
                password=address.secret,
                database=address.database,
                charset="utf8mb4",
                conv=_READERS,
                autocommit=None,
                connect_timeout=address.timeout,
                program_name="retrysafe",
                ssl=tls,
            ),
        )
        try:
            await driver.connect()
        except (TimeoutError, errors.MySQLError, OSError) as error:
            raise unreachable(error) from None
        session = cls(driver)
        if address.unix_socket is None:
            set_options(session._transport().get_extra_info("socket"))
        return session

    async def begin(self) -> Server:
        await self._execute(";".join(schema.SESSION))
        found = await self._converse(within("server", {}))

        def ask(name: str, arguments: object = None, /) -> Rows:  # noqa: ARG001 - asked already
            return found

        server = schema.inspect(ask)
        self.largest = server.largest
        return server

    def _transport(self) -> _Transport:
        transport = _transport_of(self._driver)
        assert transport is not None
        return transport

    @property
    def usable(self) -> bool:
        if not self._sound or os.getpid() != self._process:
            return False
        transport = _transport_of(self._driver)
        # The event loop has noticed by now if the server went away while it was idle.
        return transport is not None and not transport.is_closing()

    async def run(self, calls: Sequence[Call], patience: float, *, alone: bool) -> Sequence[Outcome]:
        try:
            for before in self._patience.steps(patience):
                await self._execute(before)
            return await self._converse(converse(calls, manner(patience, alone=alone)))
        except Trouble as trouble:
            if trouble.disconnected or len(calls) > 1:
                raise
            return [trouble]

    async def _converse(self, conversation: Conversation[T]) -> T:
        try:
            steps = next(conversation)
            while True:
                try:
                    found = await self._execute(";".join(with_literals(steps, self.largest)))
                except Trouble as trouble:
                    steps = conversation.throw(trouble)
                else:
                    steps = conversation.send(found)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _execute(self, text: str) -> list[Rows]:
        errors, _ = _asyncmy()
        driver = self._driver
        sound, self._sound = self._sound, False
        try:
            await driver.query(text)
            result = _result_of(driver)
            found: list[Rows] = [result.rows or ()]
            while result.has_next:
                await driver.next_result()
                result = _result_of(driver)
                found.append(result.rows or ())
        except (errors.MySQLError, OSError) as error:
            said = trouble(error)
            self._sound = sound and not said.disconnected
            raise said from error
        self._sound = sound
        return found

    def cut(self) -> None:
        """End it at once: a result that is being waited for does not come any more."""
        self._sound = False
        if os.getpid() != self._process:
            _inherited.append(self._driver)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it whatever was in it
            transport = _transport_of(self._driver)
            if transport is not None:
                transport.abort()


def _asyncmy() -> tuple[Any, Any]:
    try:
        from asyncmy import errors
        from asyncmy.connection import Connection
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"mysql: in an event loop needs a package that is missing ({missing}): pip install "
            "'retrysafe[mysql]'"
        ) from None
    return errors, Connection


def unreachable(error: BaseException) -> StoreUnavailable:
    """Without its traceback, which has the password in its frames."""
    said = trouble(error)
    if isinstance(error, OSError) and not said.code:
        words = error.strerror or type(error).__name__
        return StoreUnavailable(f"cannot connect to the database: {words}")
    return StoreUnavailable(f"cannot connect to the database: {said.described}")
