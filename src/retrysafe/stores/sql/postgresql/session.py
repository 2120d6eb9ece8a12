"""One connection, and what is said on it: a conversation that yields whenever it has to wait.

psycopg opens the connection; from then on its `pgconn`, which is libpq, is used directly: it costs less than
a cursor, and leaves the waiting to us.  So there is one conversation, and two ways to wait for it:
`waiting.py` for threads, with a deadline, and `looping.py` for coroutines.

A connection whose conversation broke off in the middle is never used again: its answer would be taken for the
next one's.
"""

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import psycopg
from psycopg import pq

from retrysafe.stores.sql.operations import Arguments, Operation, Row
from retrysafe.stores.sql.postgresql import wire
from retrysafe.stores.sql.postgresql.retry import Trouble
from retrysafe.stores.sql.postgresql.wire import BINARY, Statement

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

T = TypeVar("T")

READ, WRITE = 1, 2

Conversation = Generator[int, None, T]
"""Yields what it waits for: READ, or both.  It goes on when the connection is ready for one of them."""

_GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_UNPREPARED = frozenset({"26000", "42P05"})
"""A prepared statement is not there, or there already: the session behind the connection is not the same all
the time."""

_SHARE = 0.8
"""Of the time that is left, for the server to wait for a lock: it must say so before we give up."""

_LEAST = 0.001


class Raw(Protocol):
    """What is needed of a connection of psycopg, blocking or not."""

    @property
    def pgconn(self) -> "PGconn": ...


class SendMode:
    """How statements are sent, for all connections of a store."""

    __slots__ = ("named",)

    def __init__(self) -> None:
        self.named = True
        """Prepared once per connection.  Behind a pooler that gives every transaction another session this
        does not work; the first one to notice turns it off for good."""


class Session:
    """A connection that is open, and belongs to one conversation at a time."""

    def __init__(self, connection: Raw, mode: SendMode, end: Callable[[], None]) -> None:
        self.pgconn = connection.pgconn
        self.pgconn.nonblocking = 1
        self.socket = self.pgconn.socket
        self.has_worked = False
        """Whether a conversation has succeeded on it since it was opened."""
        self._is_retired = False
        self._connection = connection
        self._mode = mode
        self._end = end
        self._prepared: set[bytes] = set()
        self._statements = wire.known()
        _sessions.add(self)

    # --- what is said

    def perform(self, operation: Operation[T], until: float) -> Conversation[T]:
        """The statements of an operation, and its answer."""
        statements = self._statements
        try:
            name, arguments = next(operation)
            while True:
                arguments["patience"] = max((until - time.monotonic()) * _SHARE, _LEAST)
                name, arguments = operation.send((yield from self._execute(statements[name], arguments)))
        except StopIteration as answer:
            self.has_worked = True
            result: T = answer.value
            return result

    def query(self, name: str, **arguments: object) -> Conversation[Sequence[Row]]:
        """One statement by its name."""
        return (yield from self._execute(self._statements[name], arguments))

    def command(self, sql: str) -> Conversation[None]:
        """SQL without arguments or rows, and perhaps several statements, as one transaction."""
        self._send(lambda: self.pgconn.send_query(sql.encode()))
        yield from self._result()

    def _execute(self, statement: Statement, arguments: Arguments) -> Conversation[Sequence[Row]]:
        values, formats = statement.bind(arguments)
        pgconn = self.pgconn
        if statement.hot and self._mode.named:
            try:
                if statement.name not in self._prepared:
                    self._send(lambda: pgconn.send_prepare(statement.name, statement.text))
                    yield from self._result()
                    self._prepared.add(statement.name)
                self._send(lambda: pgconn.send_query_prepared(statement.name, values, formats, BINARY))
                return statement.read((yield from self._result()))
            except Trouble as trouble:
                if trouble.state not in _UNPREPARED:
                    raise
                self._mode.named = False
        self._send(lambda: pgconn.send_query_params(statement.text, values, None, formats, BINARY))
        return statement.read((yield from self._result()))

    def _send(self, send: Callable[[], None]) -> None:
        try:
            send()
        except psycopg.Error as error:
            raise _lost(error) from None

    def _result(self) -> "Conversation[PGresult]":
        """The last result of what was sent.  All must have been fetched before anything else is sent."""
        pgconn = self.pgconn
        result: PGresult | None = None
        refusal: PGresult | None = None
        try:
            while pgconn.flush():
                yield READ | WRITE
                pgconn.consume_input()
            while True:
                while pgconn.is_busy():
                    yield READ
                    pgconn.consume_input()
                more = pgconn.get_result()
                if more is None:
                    break
                result = more
                if more.status not in _GOOD:
                    refusal = more
        except psycopg.Error as error:
            if refusal is None:
                raise _lost(error) from None
        if refusal is not None:
            raise _refused(refusal)
        if result is None:
            raise Trouble("the connection returned no result")
        return result

    # --- its life

    @property
    def is_idle(self) -> bool:
        """Whether another conversation may begin: the last one is over, and the connection lives."""
        return (
            not self._is_retired
            and self.pgconn.status == pq.ConnStatus.OK
            and self.pgconn.transaction_status == pq.TransactionStatus.IDLE
        )

    def retire(self) -> None:
        """It answers, but is of no more use: its server takes no more writes, or its statements are stale."""
        self._is_retired = True

    def close(self) -> None:
        _sessions.discard(self)
        self._end()

    def disown(self) -> None:
        """In a child process: drop the parent's connection without a message to the server.

        The socket is shared, and a goodbye would end the parent's session.  So the child's end of it is
        replaced by nothing before it is closed.  One that a thread of the parent's was using is not even
        closed, because what is in its memory may be half written.
        """
        try:
            socket = self.pgconn.socket
        except psycopg.Error:
            return  # it was lost, and its number may be another file's by now
        with contextlib.suppress(OSError):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, socket)
            os.close(nothing)
        if self.is_idle:
            self.pgconn.finish()
        else:
            _left.append(self)


def _refused(result: "PGresult") -> Trouble:
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    if message is None:
        return Trouble(_first_line(result.error_message.decode(errors="replace")))
    return Trouble(message.decode(errors="replace"), (state or b"").decode())


def _lost(error: psycopg.Error) -> Trouble:
    return Trouble(_first_line(str(error)))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "the connection was lost")


_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()
_left: list[Session] = []


def _after_in_child() -> None:
    for session in list(_sessions):
        session.disown()
    _sessions.clear()


if hasattr(os, "register_at_fork"):  # where there is no fork, nothing is inherited
    os.register_at_fork(after_in_child=_after_in_child)
