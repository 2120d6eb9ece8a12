"""A handful of connections for the coroutines of one event loop, and how they wait for a conversation.

The loop watches each connection for as long as it is open, which saves telling it before and after every
statement.  Whatever arrives carries the conversation on right there; the coroutine is woken once, when it is
over.

A connection belongs to its loop.  Another loop of the process has another of these, and a loop that was
closed is forgotten with its connections.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg import pq

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.sql.postgresql.discard import discard
from retrysafe.stores.sql.postgresql.pooling import no_thread, start
from retrysafe.stores.sql.postgresql.session import WRITE, Session

T = TypeVar("T")

MOST = 8
"""Connections for the coroutines of an event loop.  One loop serves what several processes of threads do, and
its statements wait for the same disk: commits that wait together are written together."""


class LoopConnection:
    """A session at an event loop."""

    __slots__ = ("_conversation", "_future", "_is_watched", "_is_writing", "_loop", "_lost", "session")

    def __init__(
        self, session: Session, loop: asyncio.AbstractEventLoop, lost: "Callable[[LoopConnection], None]"
    ) -> None:
        self.session = session
        self._loop = loop
        self._lost = lost
        self._conversation: Generator[int, None, Any] | None = None
        self._future: asyncio.Future[Any] | None = None
        self._is_writing = False
        self._is_watched = True
        loop.add_reader(session.socket, self._go_on)

    async def wait(self, conversation: Generator[int, None, T], until: float) -> T:
        """The answer of a conversation.  One that broke off is left in the middle: see `Session.is_idle`."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._conversation, self._future = conversation, future
        timer = self._loop.call_later(until - time.monotonic(), self._expire, future)
        try:
            self._go_on()
            return await future
        finally:
            timer.cancel()
            self._conversation = self._future = None
            self._rest()

    def _go_on(self) -> None:
        conversation, future = self._conversation, self._future
        if conversation is None or future is None:
            self._while_idle()
            return
        if future.done():  # timed out or cancelled, and the caller is about to leave
            return
        try:
            wanted = next(conversation)
        except StopIteration as answer:
            future.set_result(answer.value)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self._look_away_if_lost()
            future.set_exception(error)
        else:
            if not wanted & WRITE:
                self._rest()
            elif not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self.session.socket, self._go_on)

    def _rest(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self.session.socket)

    def _while_idle(self) -> None:
        """The server has sent something unasked; mostly it closes the connection."""
        try:
            self.session.pgconn.consume_input()
        except psycopg.Error:
            self._look_away_if_lost()
            self._lost(self)

    def _look_away_if_lost(self) -> None:
        """At once: libpq has closed the socket, and its number may be another connection's a moment later."""
        if self.session.pgconn.status != pq.ConnStatus.OK:
            self._look_away()

    def _look_away(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._rest()
            if not self._loop.is_closed():
                self._loop.remove_reader(self.session.socket)

    def _expire(self, future: "asyncio.Future[Any]") -> None:
        if not future.done():
            future.set_exception(StoreUnavailable("timed out waiting for PostgreSQL"))

    def leave(self) -> Session:
        """Stop watching it, and return its session."""
        self._look_away()
        return self.session


class LoopPool:
    """At most so many sessions at a time, dying ones included.  Used by its loop's thread alone."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, open: Callable[[], Session], most: int = MOST
    ) -> None:
        self.loop = loop
        self._open = open
        self._most = most
        self._count = 0
        self._idle: list[LoopConnection] = []
        self._waiting: deque[asyncio.Future[LoopConnection]] = deque()
        self._is_shut = False

    async def take(self, until: float) -> LoopConnection:
        if self._idle:
            return self._idle.pop()
        future: asyncio.Future[LoopConnection] = self.loop.create_future()
        if self._count < self._most:
            self._fetch(future)
        else:
            self._waiting.append(future)
        timer = self.loop.call_later(until - time.monotonic(), self._expire, future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give(future.result())
            raise
        finally:
            timer.cancel()

    def give(self, connection: LoopConnection) -> None:
        """Take it back, if it can be used again."""
        if not connection.session.is_idle:
            discard(connection.leave(), self._discarded)
        elif self._is_shut:
            connection.leave().close()
            self._one_less()
        else:
            self._pass_on(connection)

    def empty(self) -> None:
        """One was found dead, so its idle siblings are not trusted."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.leave().close()
            self._one_less()

    def shut(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        self._is_shut = True
        self.empty()

    def _pass_on(self, connection: LoopConnection) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(connection)
                return
        self._idle.append(connection)

    def _fetch(self, future: "asyncio.Future[LoopConnection]") -> None:
        self._count += 1

        def work() -> None:
            session: Session | None = None
            error: BaseException | None = None
            try:
                session = self._open()
            except BaseException as trouble:  # noqa: BLE001 - the caller gets it
                error = trouble
            try:
                self.loop.call_soon_threadsafe(self._fetched, future, session, error)
            except RuntimeError:  # the loop was closed in the meantime
                if session is not None:
                    session.close()

        if not start(work):
            self.loop.call_soon(self._fetched, future, None, no_thread())

    def _fetched(
        self, future: "asyncio.Future[LoopConnection]", session: Session | None, error: BaseException | None
    ) -> None:
        if session is not None:
            try:
                connection = LoopConnection(session, self.loop, self._lost)
            except NotImplementedError:
                session.close()
                error = StoreUnavailable(
                    "this event loop cannot watch a socket: on Windows, use asyncio.SelectorEventLoop"
                )
            else:
                if future.done():
                    self.give(connection)
                else:
                    future.set_result(connection)
                return
        if not future.done():
            told = error if isinstance(error, StoreError) else None
            future.set_exception(told or StoreUnavailable(f"cannot connect to PostgreSQL: {error!r}"))
        self._one_less()

    def _lost(self, connection: LoopConnection) -> None:
        """The server closed an idle connection."""
        if connection in self._idle:
            self._idle.remove(connection)
            connection.leave().close()
            self._one_less()

    def _discarded(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed, and this is forgotten with it
            self.loop.call_soon_threadsafe(self._one_less)

    def _one_less(self) -> None:
        self._count -= 1
        while self._waiting and self._count < self._most:
            future = self._waiting.popleft()
            if not future.done():
                self._fetch(future)

    def _expire(self, future: "asyncio.Future[LoopConnection]") -> None:
        if not future.done():
            future.set_exception(
                StoreUnavailable(
                    "timed out connecting to PostgreSQL, or waiting for one of the connections in use"
                )
            )
