"""One connection to a server, once it is open: commands go out together, and replies come in in their order.

A connection on which an exchange was not brought to its end is never used again: the replies that are still
to come belong to commands whose callers have left.
"""

import asyncio
import contextlib
import socket
import ssl
import weakref
from time import monotonic
from typing import Any

from retrysafe._runtime import fork
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.redis.errors import lost
from retrysafe.stores.redis.replies import Replies

_PIECE = 1 << 18
"""Bytes that are read at once: a batch of replies mostly has a few thousand."""

_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Session:
    """Belongs to one thread or one event loop at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.has_worked = False
        self._is_busy = False
        self._is_closed = False
        self._watched: _Watched | None = None

        fork.watch(self)

    def forked(self) -> None:
        """In a child process: close its copy of the socket, and leave the parent's event loop alone."""
        self._is_closed = True
        if self._watched is not None:
            self._watched.disown()
        self._socket.close()

    @property
    def usable(self) -> bool:
        return not (self._is_busy or self._is_closed) and (self._watched is None or self._watched.reads)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._watched is not None:
            self._watched.end()
        with contextlib.suppress(OSError):
            self._socket.close()

    discard = close
    """Nothing is waited for in either case."""

    def send(self, data: bytes, until: float) -> None:
        """In a thread."""
        self._is_busy = True
        try:
            self._socket.settimeout(_left(until))
            self._socket.sendall(data)
        except TimeoutError:
            raise timed_out() from None
        except OSError as error:
            raise lost(error) from None

    def receive(self, number: int, until: float) -> list[Any]:
        """In a thread: the replies to what was sent."""
        replies = Replies(number)
        read = self._socket.recv
        try:
            while True:
                self._socket.settimeout(_left(until))
                data = read(_PIECE)
                if not data:
                    raise lost()
                if replies.feed(data):
                    self._is_busy = False
                    return replies.found
        except TimeoutError:
            raise timed_out() from None
        except (OSError, ValueError) as error:
            raise lost(error) from None

    def exchange(self, data: bytes, number: int, until: float) -> list[Any]:
        self.send(data, until)
        return self.receive(number, until)

    def begin(self, data: bytes, number: int, until: float) -> "asyncio.Future[list[Any]]":
        """In an event loop: send, and give what the replies will be in."""
        if self._watched is None:
            self._socket.setblocking(False)
            self._watched = _Watched(self._socket)
        self._is_busy = True
        future = self._watched.begin(data, Replies(number), until)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, future: "asyncio.Future[list[Any]]") -> None:
        if not future.cancelled() and future.exception() is None:
            self._is_busy = False


class _Watched:
    """A socket that an event loop reads from whenever something arrives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._file = connected.fileno()
        self._loop = asyncio.get_running_loop()
        self._replies = Replies(0)
        self._unsent = memoryview(b"")
        self._writes = False
        self._future: asyncio.Future[list[Any]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # The loop must not keep a connection alive that was dropped without being closed.
        me = weakref.ref(self)

        def readable() -> None:
            watched = me()
            if watched is not None:
                watched._read()

        try:
            self._loop.add_reader(self._file, readable)
        except NotImplementedError:
            raise StoreUnavailable(
                "this event loop cannot watch a socket: on Windows, use asyncio.SelectorEventLoop"
            ) from None
        self.reads = True
        """Until the connection has come to its end."""
        self._dropped = weakref.finalize(self, _forget, self._loop, self._file)
        self._dropped.atexit = False

    def begin(self, data: bytes, replies: Replies, until: float) -> "asyncio.Future[list[Any]]":
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        self._future = future
        self._replies = replies
        self._unsent = memoryview(data)
        self._timer = self._loop.call_later(max(until - monotonic(), 0.0), self._expire)
        self._write()
        return future

    def end(self) -> None:
        self._stop(lost())

    def disown(self) -> None:
        # What watches the socket is shared with the parent, which goes on reading.
        self.reads = False
        self._dropped.detach()

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except _NOT_NOW:
            if not self._writes:
                self._writes = True
                self._loop.add_writer(self._file, self._write)
            return
        except OSError as error:
            self._stop(lost(error))
        if self._writes:
            self._writes = False
            self._loop.remove_writer(self._file)

    def _read(self) -> None:
        try:
            while True:
                data = self._socket.recv(_PIECE)
                if not data:
                    self._stop(lost())
                    return
                if self._future is None:
                    # Nothing was asked for.  Whatever it is, the next replies could not be told from it.
                    self._stop(lost())
                    return
                if self._replies.feed(data):
                    self._finish()
                    return
                if not isinstance(self._socket, ssl.SSLSocket):
                    return  # the loop calls again, if there is more
        except _NOT_NOW:
            if self._unsent:
                self._write()
        except (OSError, ValueError) as error:
            self._stop(lost(error))

    def _finish(self) -> None:
        future, self._future = self._future, None
        if self._timer is not None:
            self._timer.cancel()
        if future is not None and not future.done():
            future.set_result(self._replies.found)

    def _expire(self) -> None:
        self._stop(timed_out())

    def _stop(self, error: Exception) -> None:
        """Read no more: the connection is at its end, or what it brings belongs to nothing."""
        future, self._future = self._future, None
        if self._timer is not None:
            self._timer.cancel()
        self.reads = False
        self._dropped()
        if future is not None and not future.done():
            future.set_exception(error)


def _forget(loop: asyncio.AbstractEventLoop, file: int) -> None:
    with contextlib.suppress(RuntimeError, OSError, ValueError):  # the loop may have been closed
        loop.remove_reader(file)
        loop.remove_writer(file)


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise timed_out()
    return left


def timed_out() -> StoreUnavailable:
    return StoreUnavailable("timed out waiting for Redis")
