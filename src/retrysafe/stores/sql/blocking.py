"""Stores on connections of any driver that blocks: how they are run by threads, coroutines and operators.

Who opens the connections, and what runs statements on them, is SQLAlchemy's in `sqlalchemy/`, and Django's
for MySQL in `django/`.
"""

import asyncio
import contextlib
import os
import selectors
import socket
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any, Protocol, TypeVar

from retrysafe._runtime.threads import in_own_thread
from retrysafe._runtime.watchdog import cutting_after
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Batch, Executor, Outcome, Row
from retrysafe.stores.queue_loop import LoopQueue, LoopQueues
from retrysafe.stores.queue_threads import ThreadQueue
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.backend import Backend, Execute
from retrysafe.stores.sql.connecting import Connecting
from retrysafe.stores.sql.drivers import holder_of_socket, process_of

T = TypeVar("T")

_QUIET = 1.0
"""Seconds after which a connection whose socket cannot be looked at is asked whether it is still there."""


class BlockingConnection:
    """For one thread at a time; others may cut it."""

    def __init__(self, execute: Execute, driver: Any, ping: Callable[[], bool]) -> None:  # noqa: ANN401 - each has its own
        """`ping` asks the server, where the driver shows no socket that could be looked at."""
        self.has_worked = False
        self._execute = execute
        self._driver = driver
        self._ping = ping
        self._socket = _socket_of(driver)
        self._sound = True
        self._process = os.getpid()
        self._used = time.monotonic()

    @property
    def usable(self) -> bool:
        """To be called while it is idle."""
        if not self._sound:
            return False
        if self._socket is None:
            return time.monotonic() - self._used < _QUIET or self._answers()
        with selectors.DefaultSelector() as selector:
            # On an idle connection there is nothing to be read but its end.
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def _answers(self) -> bool:
        try:
            return self._ping()
        except Exception:  # noqa: BLE001 - drivers differ in how they say no
            return False

    @property
    def process(self) -> int | None:
        return process_of(self._driver)

    def run(self, about: Callable[[Execute], T]) -> T:
        """Run several statements, each with what came of the one before it."""
        try:
            answer = about(self._execute)
        except BaseException as error:
            if not isinstance(error, Trouble) or error.disconnected:
                self._sound = False
            raise
        self._used = time.monotonic()
        return answer

    def fileno(self) -> int | None:
        """Its socket, so that a wait for it can be cut; `None` where the driver shows none."""
        return None if self._socket is None else self._socket.fileno()

    def cut(self) -> None:
        """End it at once, also from another thread: a thread that waits for its result gets an error."""
        self._sound = False
        if self._socket is not None and os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def discard(self) -> None:
        self.cut()
        self.close()

    def close(self) -> None:
        self._sound = False
        with contextlib.suppress(Exception):  # whatever is wrong with it now, it is gone
            self._driver.close()
        if self._socket is not None:
            self._socket.close()


def _socket_of(driver: object) -> socket.socket | None:
    """Another handle of the driver's socket, so that it can be looked at, and shut down by another thread."""
    holder = holder_of_socket(driver)
    if holder is not None:
        with contextlib.suppress(OSError):  # then there is none that could be used
            return socket.socket(fileno=socket.dup(holder.fileno()))
    return None


Open = Callable[[], BlockingConnection]
"""Opens a connection that may be used."""


class BlockingExecutor:
    """For threads, one at a time, by a driver that blocks."""

    def __init__(self, open: Open, backend: Backend) -> None:
        self._connecting = Connecting(open)
        self._backend = backend
        self._runner = backend.runner()

    def run(self, calls: Batch, until: float, patience: float) -> Sequence[Outcome]:
        connection = self._connecting.connected(until)
        with (
            self._connecting.in_use(connection),
            cutting_after(until - monotonic(), connection.fileno()) as watched,
        ):
            try:
                return connection.run(lambda execute: self._runner.run(execute, calls, patience))
            except Trouble as trouble:
                if watched is not None and watched.cut:
                    raise StoreUnavailable(self._backend.timed_out) from trouble
                raise

    def close(self) -> None:
        self._connecting.close()


class ThreadedExecutor:
    """For coroutines, by a driver that blocks: each batch in a thread."""

    def __init__(self, open: Open, backend: Backend) -> None:
        self._begin = partial(BlockingExecutor, open, backend)
        self._executor = self._begin()
        self._running: asyncio.Future[Sequence[Outcome]] | None = None

    async def run(self, calls: Batch, until: float, patience: float) -> Sequence[Outcome]:
        self._running = running = in_own_thread(self._executor.run, calls, until, patience)
        return await asyncio.shield(running)

    def close(self) -> None:
        executor, self._executor = self._executor, self._begin()
        if self._running is None or self._running.done():
            executor.close()
        else:
            # The thread ends by its deadline, and the connection is closed then.
            self._running.add_done_callback(lambda _: executor.close())


class BlockingDatabase:
    """What one process has of the database."""

    def __init__(self, open: Open, deadline: float, backend: Backend) -> None:
        self._executor = partial(BlockingExecutor, open, backend)
        self.queue = ThreadQueue(self._executor, deadline)
        self._loops = LoopQueues(lambda _: partial(ThreadedExecutor, open, backend), deadline)
        # A store that is dropped without being closed must not leave connections behind.
        weakref.finalize(self, _close, self.queue, self._loops).atexit = False

    @property
    def async_queue(self) -> LoopQueue:
        return self._loops.here()

    def executor(self) -> Executor:
        return self._executor()

    def close(self) -> None:
        self.queue.close()
        self._loops.close()


class _Closable(Protocol):
    def close(self) -> None: ...


def _close(*all: _Closable) -> None:
    for one in all:
        one.close()


# --- for operators


class AnyAdminConnection(ABC):
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        with self._backend.explained():
            return self._run(lambda execute: self._backend.query(execute, name, arguments), within)

    def command(self, sql: str, within: float) -> None:
        with self._backend.explained():
            self._run(lambda execute: execute(sql, {}), within)

    @abstractmethod
    def _run(self, about: Callable[[Execute], Sequence[Row]], within: float) -> Sequence[Row]: ...


class BlockingAdminConnection(AnyAdminConnection):
    """It has a thread of its own, so that an operator can stop waiting for a server that says nothing."""

    def __init__(self, open: Open, deadline: float, backend: Backend) -> None:
        super().__init__(backend)
        self._deadline = deadline
        self._worker = WorkerThread()
        opening = self._worker.begin(open)
        try:
            with backend.explained():
                self._connection = opening.result(deadline)
        except TimeoutError:
            opening.add_done_callback(_unwanted)
            raise StoreUnavailable(backend.connect_timed_out) from None
        finally:
            if not hasattr(self, "_connection"):
                self._worker.end()

    @property
    def process(self) -> int | None:
        return self._connection.process

    @property
    def usable(self) -> bool:
        return self._connection.usable

    def _run(self, about: Callable[[Execute], Sequence[Row]], within: float) -> Sequence[Row]:
        try:
            return self._worker.begin(lambda: self._connection.run(about)).result(within)
        except TimeoutError:
            self._connection.cut()
            raise StoreUnavailable(self._backend.timed_out) from None

    def close(self) -> None:
        self._worker.begin(self._connection.close)
        self._worker.end().join(self._deadline)


class WorkerThread:
    """A thread that runs one call after the other, and whose end need not be waited for."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="retrysafe-operator", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def do() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)

        self._queue.put(do)
        return future

    def end(self) -> threading.Thread:
        """Let it end when everything is done.  Gives the thread that is about to end."""
        self._queue.put(None)
        return self._thread

    def _work(self) -> None:
        while (do := self._queue.get()) is not None:
            do()


def _unwanted(opening: Future[BlockingConnection]) -> None:
    if opening.exception() is None:
        opening.result().close()
