"""Starting it: one process, or several that share one listening socket.

One process serves by itself, so that `/crash` ends it.  With several, the parent binds, forks and
watches: it starts a worker anew when one was killed, passes SIGTERM on, and its death, however it
comes, ends the workers: each holds the reading end of a pipe that only the parent could write to.

The application is built before the fork, on purpose.  That is what gunicorn does with `preload`,
and whatever holds a thread or a connection has to survive it.
"""

import asyncio
import contextlib
import math
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import uvicorn

from retrysafe import Guard
from retrysafe.testing.reference.asgi_layers import App

# Connections that wait to be accepted: a burst of a test must not be refused by the kernel.
BACKLOG = 2048

# What a process may need after its grace to close what it holds.
MARGIN = 1.0


def serve(app: App, guard: Guard, *, port: int, workers: int, grace: float) -> None:
    """Serve until SIGTERM."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def announce() -> None:
        sys.stdout.write(f"ready {address}\n")
        sys.stdout.flush()

    def work(ready: Callable[[], None]) -> None:
        _Server(app, guard, grace, ready).run([listener])

    if workers == 1:
        work(announce)
    else:
        _Parent(work, workers).run(announce)


class _Server(uvicorn.Server):
    def __init__(self, app: App, guard: Guard, grace: float, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=max(1, math.ceil(grace)),
        )
        super().__init__(config)
        self._guard = guard
        self._grace = grace
        self._ready = ready

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn raises the signal that stopped it once more when it has stopped, for other
        # handlers.  To be stopped is how this program ends well, so there are none.
        signal.signal(signal.SIGTERM, _ignore)
        with contextlib.suppress(KeyboardInterrupt):
            super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A handler that is still running when the grace is over is given up, like one that was
        # killed.
        last_resort = threading.Timer(self._grace + MARGIN, os._exit, [1])
        last_resort.daemon = True
        last_resort.start()
        # The lifespan would say it only when the last connection is closed: too late for new
        # claims.
        draining = asyncio.ensure_future(self._guard.drain_async(self._grace))
        await super().shutdown(sockets)
        await draining
        last_resort.cancel()


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    pass


class _Parent:
    def __init__(self, work: Callable[[Callable[[], None]], None], workers: int) -> None:
        self._work = work
        self._workers = workers
        self._children: set[int] = set()
        self._stopping = False
        self._life = os.pipe()
        self._readiness = os.pipe()

    def run(self, announce: Callable[[], None]) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        for _ in range(self._workers):
            self._fork()
        ready = b""
        while len(ready) < self._workers and not self._stopping:
            # A worker that cannot start says why and is gone: without this, we would wait for it.
            died, status = os.waitpid(-1, os.WNOHANG)
            if died:
                self._end(f"a worker did not start (wait status {status})")
            ready += self._poll_readiness()
        if not self._stopping:
            announce()
        while self._children:
            died, _ = os.wait()
            self._children.discard(died)
            if not self._stopping:
                self._fork()

    def _poll_readiness(self) -> bytes:
        readable, _, _ = select.select([self._readiness[0]], [], [], 0.05)
        return os.read(self._readiness[0], self._workers) if readable else b""

    def _fork(self) -> None:
        # Between fork and the worker's own handlers, a SIGTERM must not run ours in the child.
        blocked = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
            self._live()
        self._children.add(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)

    def _live(self) -> NoReturn:
        """A worker's whole life; it never returns into the parent's code."""
        os.close(self._life[1])
        threading.Thread(target=self._die_with_parent, daemon=True).start()
        status = 1
        try:
            self._work(self._say_ready)
            status = 0
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _say_ready(self) -> None:
        os.write(self._readiness[1], b".")

    def _die_with_parent(self) -> None:
        os.read(self._life[0], 1)
        os._exit(1)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._stopping = True
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    def _end(self, reason: str) -> NoReturn:
        self._stop(signal.SIGTERM, None)
        raise SystemExit(f"reference: {reason}")
