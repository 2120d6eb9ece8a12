"""Several processes, forked from one that has used its guard already, race for a few keys while others purge.

    python tests/faults/racer.py FOLDER --store URL --processes N --seconds S [--retention S] [--failures]

Every process serves requests for the same few keys in process, in several tasks at once, and purges all the
while.  Records expire after a fraction of a second, so that claims, replays, take-overs and removals of the
same row meet all the time.  What was seen goes into one file per process, a JSON document per line:

    {"run": id, "key": k, "begun": t, "ended": t}      a handler ran; times are those of the host's one clock
    {"told": id, "key": k, "replayed": bool, "asked": t, "heard": t}
    {"refused": code, "key": k}
    {"purged": n}

The parent uses its guard before the fork and again after it (F9): what a child inherits must not be shared.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retrysafe import Guard, scopes, stores
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import Connection, Message, Receive, Send

KEYS = 4
TASKS = 4


def now() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Oops(Exception):
    pass


class Racer:
    def __init__(self, folder: Path, store: str, retention: float, failures: bool) -> None:
        self._folder = folder
        self._failures = failures
        self.guard = Guard(
            stores.open(store, deadline=20.0),
            scope=scopes.header("X-Tenant"),
            effects="repeatable",
            retention=retention,
            lease=30.0,
        )
        self._app = Middleware(self._handle, self.guard)
        self._say: Callable[[dict[str, object]], object] = lambda _: None

    def log_to(self, name: str) -> None:
        file = open(self._folder / f"{name}.log", "w")  # noqa: SIM115 - it lives as long as the process
        lock = threading.Lock()

        def say(entry: dict[str, object]) -> None:
            with lock:
                file.write(json.dumps(entry) + "\n")
                file.flush()

        self._say = say

    async def _handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        key = scope["path"].removeprefix("/")
        run, begun = uuid.uuid4().hex, now()
        await asyncio.sleep(random.random() * 0.004)
        fails = self._failures and key.startswith("key-") and random.random() < 0.3
        self._say({"run": run, "key": key, "begun": begun, "ended": now(), "failed": fails})
        if fails:
            raise Oops
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": run.encode()})

    async def ask(self, key: str) -> None:
        sent: list[Message] = []
        scope: Connection = {
            "type": "http",
            "method": "POST",
            "path": f"/{key}",
            "query_string": b"",
            "headers": [(b"idempotency-key", key.encode()), (b"x-tenant", b"7")],
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        asked = now()
        try:
            await self._app(scope, receive, send)
        except Oops:
            return
        status, headers = sent[0]["status"], dict(sent[0]["headers"])
        body: bytes = sent[1]["body"]
        if status == 201:
            replayed = headers.get(b"idempotent-replayed") == b"true"
            told: dict[str, object] = {"told": body.decode(), "key": key, "replayed": replayed}
            self._say({**told, "asked": asked, "heard": now()})
        else:
            document: dict[str, Any] = json.loads(body)
            self._say({"refused": document["code"], "key": key})

    async def race(self, seconds: float) -> None:
        until = now() + seconds

        async def ask_on() -> None:
            while now() < until:
                await self.ask(f"key-{random.randrange(KEYS)}")
                await asyncio.sleep(random.random() * 0.005)

        async def purge_on() -> None:
            while now() < until:
                self._say({"purged": (await asyncio.to_thread(self.guard.store.purge, 50)).records})

        async with asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(ask_on())
            group.create_task(purge_on())


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--store", required=True)
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument("--seconds", type=float, default=1.5)
    arguments.add_argument("--retention", type=float, default=0.08)
    arguments.add_argument("--failures", action="store_true")
    given = arguments.parse_args()
    racer = Racer(given.folder, given.store, given.retention, given.failures)
    racer.log_to("before")
    asyncio.run(racer.ask("used-before-the-fork"))
    assert any(thread.name.startswith("retrysafe") for thread in threading.enumerate()), "nothing to inherit"
    children: list[int] = []
    for number in range(given.processes - 1):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                racer.log_to(f"child-{number}")
                asyncio.run(racer.race(given.seconds))
                racer.guard.close()
                status = 0
            except Exception as error:
                sys.excepthook(type(error), error, error.__traceback__)
                raise
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    racer.log_to("parent")
    asyncio.run(racer.race(given.seconds))
    failed = [status for child in children if (status := os.waitpid(child, 0)[1])]
    asyncio.run(racer.ask("used-after-the-fork"))
    racer.guard.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
