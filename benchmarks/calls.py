"""How far one request walks through the code: calls of our functions, files, and switches between files.

Not a time: it does not depend on the machine, and says what a reader has to follow.  A call is every entry
into a Python function of the package, and every resumption of a generator or coroutine of it.  A switch is a
call whose file is not that of the call before it in the same thread.  Libraries are not counted.
"""

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import retrysafe
from benchmarks import database
from benchmarks.database import Kind
from benchmarks.inprocess import HEADERS, bare
from benchmarks.load import BODY
from retrysafe import Guard, scopes
from retrysafe.asgi import Middleware

PACKAGE = str(Path(retrysafe.__file__).parent) + os.sep
REPEATED = 15
"""The walk that is found most often is told: now and then one renews a lease or cleans up on its way."""


class Walk(NamedTuple):
    calls: int
    files: int
    switches: int
    threads: int


class Recorder:
    """Notes which file each call is in, in every thread that was started under it."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[tuple[int, str]] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.seen.append((threading.get_ident(), frame.f_code.co_filename.removeprefix(PACKAGE)))

    @contextmanager
    def installed(self) -> Generator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    async def walk(self, serve: Callable[[], Awaitable[None]]) -> Walk:
        self.seen = []
        self.on = True
        await serve()
        self.on = False
        last: dict[int, str] = {}
        switches = 0
        for thread, file in self.seen:
            switches += last.get(thread, file) != file
            last[thread] = file
        return Walk(len(self.seen), len({file for _, file in self.seen}), switches, len(last))


async def _walks(recorder: Recorder, store: str) -> tuple[Walk, Walk]:
    """Of a fresh key and of a replay, once everything that is done once has been done."""
    guard = Guard(store, scope=scopes.header("X-Tenant"))
    app = Middleware(bare, guard)
    fresh, replay = Counter[Walk](), Counter[Walk]()
    for number in range(REPEATED + 2):
        serve = _client(app, os.urandom(16).hex().encode())
        first, second = await recorder.walk(serve), await recorder.walk(serve)
        if number >= 2:
            fresh[first] += 1
            replay[second] += 1
    guard.close()
    return fresh.most_common(1)[0][0], replay.most_common(1)[0][0]


def _client(app: Callable[..., Awaitable[None]], key: bytes) -> Callable[[], Awaitable[None]]:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/charges",
        "query_string": b"",
        "headers": [*HEADERS, (b"idempotency-key", key)],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        pass

    return lambda: app(scope, receive, send)


def measure(folder: Path) -> dict[str, Walk]:
    """By store, fresh and replayed.  One whose server is not installed is left out."""
    recorder = Recorder()
    with ExitStack() as stack:
        addresses = {"memory": "memory:", "SQLite": f"sqlite:///{folder}/calls.db"}
        kinds: tuple[Kind, ...] = ("PostgreSQL", "MariaDB", "Valkey")
        for kind in kinds:
            if not database.missing(kind):
                addresses[kind] = stack.enter_context(database.running(kind, None)).new()
        stack.enter_context(recorder.installed())
        found: dict[str, Walk] = {}
        for name, address in addresses.items():
            fresh, replay = asyncio.run(_walks(recorder, address))
            found |= {f"{name}, fresh": fresh, f"{name}, replay": replay}
    return found
