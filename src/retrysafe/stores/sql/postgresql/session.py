"""One connection, and what is said on it: a conversation that yields whenever it has to wait.

psycopg opens the connection; from then on its `pgconn`, which is libpq, is used with psycopg's generators: it
costs less than a cursor.  So there is one conversation, and two ways to wait for it, both psycopg's: one for
threads and one for coroutines.

A batch of several calls is one pipeline and one transaction: one round trip and one flush.  A single call
commits by itself.

A connection whose conversation broke off in the middle is never used again: its result would be taken for
that of the next call.
"""

import contextlib
import os
import select
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psycopg
from psycopg import generators, pq, waiting

from retrysafe.errors import StoreUnavailable, UnreadableRecord
from retrysafe.stores.queue import Arguments, Call, Outcome, Row
from retrysafe.stores.sql.postgresql import wire
from retrysafe.stores.sql.postgresql.batch import Combined, binary, is_worth
from retrysafe.stores.sql.postgresql.plans import DISCARD, CachedPlans
from retrysafe.stores.sql.postgresql.retry import DAMAGED, NO_FUNCTION, PostgresTrouble, lost
from retrysafe.stores.sql.postgresql.wire import BINARY, Statement

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

T = TypeVar("T")

Conversation = Generator[Any, Any, T]
"""Yields what it waits for, as psycopg's own generators do."""

_GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_UNPREPARED = frozenset({"26000", "42P05"})
"""A prepared statement is not there, or there already: the session behind the connection is not the same all
the time."""

_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
"""Said in full: a role or a database may have another default, and a claim that waited for a row must then
see it as it is."""


_CANCEL = 1.0
"""Seconds for asking the server to stop."""


class Raw(Protocol):
    """What is needed of a connection of psycopg, blocking or not."""

    @property
    def pgconn(self) -> "PGconn": ...


class SendMode:
    """How statements are sent, for all connections of a store."""

    __slots__ = ("combined", "named")

    def __init__(self) -> None:
        self.named = True
        """Prepared once per connection.  Behind a pooler that gives every transaction another session this
        does not work; the first one to notice turns it off for good."""
        self.combined = True
        """Reservations and completions of a batch are one call of a function.  Where there is none, because
        no role that may create it has migrated the tables, the first to notice turns it off for good."""


class Session:
    """A connection that is open, and belongs to one conversation at a time."""

    def __init__(self, connection: Raw, mode: SendMode, end: Callable[[], None]) -> None:
        self.pgconn = connection.pgconn
        self.pgconn.nonblocking = 1
        self.socket = self.pgconn.socket
        self.has_worked = False
        """Whether a conversation has succeeded on it since it was opened."""
        self._connection = connection
        self._mode = mode
        self._end = end
        self._prepared: set[bytes] = set()
        self._plans = CachedPlans()
        self._statements = wire.known()
        _sessions.add(self)

    # --- what is said

    def run(self, calls: Sequence[Call], patience: float) -> Conversation[Sequence[Outcome]]:
        """The rows of each call, or its own trouble.  Raises the trouble of a batch, all undone."""
        if self._plans.are_old() and self._mode.named:
            yield from self.command(DISCARD)
        if len(calls) > 1:
            outcomes = yield from self._batch(calls, patience)
        else:
            [(name, arguments)] = calls
            arguments["patience"] = patience
            try:
                outcomes = [(yield from self._execute(self._statements[name], arguments))]
            except PostgresTrouble as trouble:
                if trouble.disconnected:
                    raise
                outcomes = [trouble]
        return outcomes

    def _batch(self, calls: Sequence[Call], patience: float) -> Conversation[Sequence[Outcome]]:
        if self._mode.combined and is_worth(calls):
            combined = Combined(calls, binary)
            try:
                rows, *others = yield from self._all(combined.calls, patience)
            except PostgresTrouble as trouble:
                if trouble.state not in NO_FUNCTION:
                    raise
                self._mode.combined = False
            else:
                if isinstance(rows, Exception):
                    # One record is damaged.  All calls were done, and each recognises that when it is alone.
                    raise PostgresTrouble(str(rows), DAMAGED)
                return combined.apart(others, rows)
        return (yield from self._pipeline(calls, patience))

    def _all(self, calls: Sequence[Call], patience: float) -> Conversation[list[Outcome]]:
        """Several calls, or one that commits by itself."""
        if len(calls) > 1:
            return (yield from self._pipeline(calls, patience))
        [(name, arguments)] = calls
        arguments["patience"] = patience
        try:
            return [(yield from self._execute(self._statements[name], arguments))]
        except UnreadableRecord as damage:
            return [damage]

    def query(self, name: str, **arguments: object) -> Conversation[Sequence[Row]]:
        """One statement by its name."""
        return (yield from self._execute(self._statements[name], arguments))

    def command(self, sql: str) -> Conversation[None]:
        """SQL without arguments or rows, and perhaps several statements, as one transaction."""
        self._send(lambda: self.pgconn.send_query(sql.encode()))
        yield from self._result()

    def _pipeline(self, calls: Sequence[Call], patience: float) -> Conversation[list[Outcome]]:
        statements = [self._statements[name] for name, _ in calls]
        for statement in statements:
            if self._is_prepared(statement) is False:
                yield from self._prepare(statement)
        pgconn = self.pgconn
        named = self._mode.named
        try:
            pgconn.enter_pipeline_mode()
            pgconn.send_query_params(_BEGIN, None)
            for statement, (_, arguments) in zip(statements, calls, strict=True):
                arguments["patience"] = patience
                values, formats = statement.bind(arguments)
                if named and statement.hot:
                    pgconn.send_query_prepared(statement.name, values, formats, BINARY)
                else:
                    pgconn.send_query_params(statement.text, values, None, formats, BINARY)
            pgconn.send_query_params(b"COMMIT", None)
            pgconn.pipeline_sync()
            yield from generators.send(pgconn)
            results = yield from self._results_of_pipeline()
            pgconn.exit_pipeline_mode()
        except psycopg.Error as error:
            raise lost(error) from None
        refused = next((result for result in results if result.status not in _GOOD), None)
        if refused is not None:
            trouble = _refused(refused)
            if not trouble.disconnected:
                yield from self.command("ROLLBACK")
            if trouble.state in _UNPREPARED:
                self._mode.named = False
                return (yield from self._pipeline(calls, patience))
            raise trouble
        _, *kept, commit = results
        if commit.command_status != b"COMMIT":
            raise PostgresTrouble("the batch was rolled back without a reason")
        return [_read(statement, result) for statement, result in zip(statements, kept, strict=True)]

    def _results_of_pipeline(self) -> "Conversation[list[PGresult]]":
        results: list[PGresult] = []
        while True:
            result = yield from generators.fetch(self.pgconn)
            if result is None:
                continue  # the end of one statement's results
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return results
            results.append(result)

    def _is_prepared(self, statement: Statement) -> bool | None:
        """`None`: it need not be."""
        if not statement.hot or not self._mode.named:
            return None
        return statement.name in self._prepared

    def _prepare(self, statement: Statement) -> Conversation[None]:
        self._send(lambda: self.pgconn.send_prepare(statement.name, statement.text))
        try:
            yield from self._result()
        except PostgresTrouble as trouble:
            if trouble.state not in _UNPREPARED:
                raise
            self._mode.named = False
        self._prepared.add(statement.name)

    def _execute(self, statement: Statement, arguments: Arguments) -> Conversation[Sequence[Row]]:
        values, formats = statement.bind(arguments)
        pgconn = self.pgconn
        if self._is_prepared(statement) is False:
            yield from self._prepare(statement)
        if self._is_prepared(statement):
            try:
                self._send(lambda: pgconn.send_query_prepared(statement.name, values, formats, BINARY))
                return statement.read((yield from self._result()))
            except PostgresTrouble as trouble:
                if trouble.state not in _UNPREPARED:
                    raise
                self._mode.named = False
        self._send(lambda: pgconn.send_query_params(statement.text, values, None, formats, BINARY))
        return statement.read((yield from self._result()))

    def _send(self, send: Callable[[], None]) -> None:
        try:
            send()
        except psycopg.Error as error:
            raise lost(error) from None

    def _result(self) -> "Conversation[PGresult]":
        """The last result of what was sent, or the first refusal."""
        try:
            results: list[PGresult] = yield from generators.execute(self.pgconn)
        except psycopg.Error as error:
            raise lost(error) from None
        for result in results:
            if result.status not in _GOOD:
                raise _refused(result)
        if not results:
            raise PostgresTrouble("the connection returned no result")
        return results[-1]

    # --- its life

    @property
    def usable(self) -> bool:
        """Whether another conversation may begin: the last one is over, and the connection lives."""
        return (
            self.pgconn.status == pq.ConnStatus.OK
            and self.pgconn.transaction_status == pq.TransactionStatus.IDLE
        )

    def close(self) -> None:
        if not self.usable:
            self.discard()
            return
        self.end()

    def discard(self) -> None:
        """Close it in a thread, so that no caller waits; and have the server stop what is under way on it.

        To close a connection does not stop the server, which may wait for a lock on a whole table, which no
        `lock_timeout` inside the statement could bound.
        """
        try:
            threading.Thread(target=self._stop_and_end, name="retrysafe-discard", daemon=True).start()
        except RuntimeError:  # no thread can be started: the interpreter ends, or the machine is at its limit
            self.end()

    def end(self) -> None:
        _sessions.discard(self)
        self._end()

    def _stop_and_end(self) -> None:
        try:
            self._cancel()
        finally:
            self.end()

    def _cancel(self) -> None:
        if self.pgconn.status != pq.ConnStatus.OK or pq.version() < 170000:
            return  # gone already; or a libpq that could ask only without a deadline and without encryption
        until = monotonic() + _CANCEL
        with contextlib.suppress(psycopg.Error, OSError):  # it was worth a try
            request = self.pgconn.cancel_conn()
            request.start()
            while (status := request.poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
                left = until - monotonic()
                if left <= 0:
                    break
                reading = status == pq.PollingStatus.READING
                sockets = [request.socket]
                select.select(sockets if reading else [], [] if reading else sockets, [], left)
            request.finish()

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
        if self.usable:
            self.pgconn.finish()
        else:
            _left.append(self)


def _read(statement: Statement, result: "PGresult") -> Outcome:
    try:
        return statement.read(result)
    except UnreadableRecord as damage:
        return damage


def _refused(result: "PGresult") -> PostgresTrouble:
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    if message is None:
        return lost(result.error_message.decode(errors="replace"))
    return PostgresTrouble(message.decode(errors="replace"), (state or b"").decode())


def within(conversation: Conversation[T], until: float) -> Conversation[T]:
    """The conversation, broken off with a `StoreUnavailable` when its time is over.

    psycopg's waiting functions look at it whenever something arrives, and after the interval that they are
    given.
    """
    try:
        wanted = next(conversation)
        while True:
            ready = yield wanted
            if not ready and monotonic() >= until:
                raise StoreUnavailable("timed out waiting for PostgreSQL")
            wanted = conversation.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


def wait(conversation: Conversation[T], socket: int, until: float) -> T:
    """Wait for a conversation in a thread."""
    return waiting.wait(within(conversation, until), socket, _interval(until))


async def wait_async(conversation: Conversation[T], socket: int, until: float) -> T:
    """Wait for a conversation in a coroutine."""
    return await waiting.wait_async(within(conversation, until), socket, _interval(until))


def _interval(until: float) -> float:
    # A little longer than what is left: the look at the clock that follows must find it over.
    return max(until - monotonic(), 0.0) + 0.001


_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()
_left: list[Session] = []


def _after_in_child() -> None:
    for session in list(_sessions):
        session.disown()
    _sessions.clear()


if hasattr(os, "register_at_fork"):  # where there is no fork, nothing is inherited
    os.register_at_fork(after_in_child=_after_in_child)
