"""Starting the WSGI application under a real server: gunicorn with its workers, or waitress.

gunicorn loads the application in each worker, after the fork, or once before it (`preload`).  waitress is one
process with threads.  The hooks are those that the documentation of `retrysafe.wsgi` recommends.
"""

import math
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any, Literal, NamedTuple
from wsgiref.types import WSGIApplication

from retrysafe import Guard
from retrysafe.testing.reference.journal import Journal

Server = Literal["gthread", "sync", "waitress"]

# Connections that wait to be accepted: a burst of a test must not be refused by the kernel.
BACKLOG = 2048

# More than any test has in progress at once, those that wait for each other included.
THREADS = 32


class Loaded(NamedTuple):
    app: WSGIApplication
    guard: Guard
    journal: Journal


Load = Callable[[], Loaded]


class Serving(NamedTuple):
    """How it is to be served."""

    server: Server
    port: int
    workers: int
    grace: float
    preload: bool


def serve(load: Load, how: Serving) -> None:
    """Serve until SIGTERM."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", how.port))
    listener.listen(BACKLOG)
    if how.server == "waitress":
        _waitress(load, how, listener)
    else:
        _gunicorn(load, how, listener)


def _announce(port: int) -> None:
    sys.stdout.write(f"ready http://127.0.0.1:{port}\n")
    sys.stdout.flush()


def _end_it(_signal: int, _frame: FrameType | None) -> None:
    sys.exit()


def _waitress(load: Load, how: Serving, listener: socket.socket) -> None:
    # The servers have no types of their own.
    waitress: Any = import_module("waitress")
    app, guard, journal = load()
    signal.signal(signal.SIGTERM, _end_it)  # waitress has no handler of its own
    guard.drain_on(signal.SIGTERM)
    guard.check()
    journal.open()
    server = waitress.create_server(app, sockets=[listener], threads=THREADS, backlog=BACKLOG)
    _announce(server.effective_port)
    server.run()
    guard.drain(how.grace)
    journal.close()
    guard.close()


def _gunicorn(load: Load, how: Serving, listener: socket.socket) -> None:
    base: Any = import_module("gunicorn.app.base")
    loaded: list[Loaded] = []
    port: int = listener.getsockname()[1]
    descriptor = listener.detach()  # gunicorn's from now on

    class Reference(base.BaseApplication):  # type: ignore[misc]  # see above
        cfg: Any

        def load_config(self) -> None:
            settings: dict[str, object] = {
                "bind": f"fd://{descriptor}",
                "backlog": BACKLOG,
                "workers": how.workers,
                "worker_class": how.server,
                "threads": THREADS if how.server == "gthread" else 1,
                "preload_app": how.preload,
                "graceful_timeout": max(1, math.ceil(how.grace)),
                "loglevel": "warning",
                "when_ready": _ready,
                "post_worker_init": _begin,
                "worker_exit": _end,
            }
            for name, value in settings.items():
                self.cfg.set(name, value)

        def load(self) -> WSGIApplication:
            loaded.append(load())
            return loaded[-1].app

    def _ready(_server: object) -> None:
        _announce(port)

    def _begin(_worker: object) -> None:
        for _, guard, journal in loaded:
            guard.check()
            guard.drain_on(signal.SIGTERM)
            journal.open()

    def _end(_server: object, _worker: object) -> None:
        for _, guard, journal in loaded:
            guard.drain(how.grace)
            journal.close()
            guard.close()

    application: Any = Reference()
    application.run()
