"""Clients that repeat their requests while servers fail, and the audit of what they were told.

The application runs in this process, which survives: what its handler has done is known here, whatever
becomes of the records.  A lost record is one whose client was told that it is stored.
"""

import asyncio
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import httpx

from retrysafe import Guard
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import Connection, Receive, Send
from retrysafe.stores.contract import Store

CLIENTS = 16

DEADLINE = 1.0
"""Seconds that an operation of the store may take: what a client waits for, at most, per attempt."""

LEASE = 2.0
"""Seconds.  A request whose worker's store went away is unsettled for so long."""

PATIENCE = 60.0
"""Seconds until a fail-over that does not end is given up.  Far more than it takes."""

PAUSE = 0.02
"""Seconds between a refusal and the next attempt: many attempts per outage."""

Enter = Callable[[str, str], Awaitable[None]]
"""Enters an order of this id for a key, in the transaction of the guarded call."""

Fault = Callable[["Traffic"], object]
"""Runs in a thread beside the traffic, until the servers are as they are to be afterwards."""


class Outcome(NamedTuple):
    """What came of one fail-over, in keys, except where it says otherwise."""

    acknowledged: int
    """The client was told the result, and that it is stored."""
    lost: int
    """Acknowledged, and afterwards the record was gone: the request was executed again, or refused."""
    contradicted: int
    """Acknowledged, and replayed afterwards with another result."""
    repeated: int
    """The handler's effect happened more than once."""
    unstored: int
    """The client was told the result, and that it could not be stored."""
    unknown: int
    """The client was told that the outcome is unknown."""
    refused: int
    """Attempts to which the response was 503."""
    unexpected: "Counter[str]"
    """Attempts with any other response.  There are none."""
    pause: float
    """Seconds without any acknowledgement: the longest time."""


class Traffic:
    """Of a guarded application.  Without `enter`, its effects are outside of the database: never undone."""

    def __init__(self, store: Store, *, enter: Enter | None = None, clients: int = CLIENTS) -> None:
        self.guard = Guard(
            store,
            scope=lambda _: "failover",
            effects="outside" if enter is None else "database",
            lease=LEASE,
        )
        self._enter = enter
        self._clients = clients
        self.effects: defaultdict[str, list[str]] = defaultdict(list)
        self._acknowledged: dict[str, bytes] = {}
        self._times: list[float] = []
        self._counts: Counter[str] = Counter()
        self._unexpected: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        app: Any = Middleware(self._serve, self.guard)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://shop.test")

    async def _serve(self, scope: Connection, receive: Receive, send: Send) -> None:
        del receive
        key = dict(scope["headers"])[b"idempotency-key"].decode()
        order = uuid.uuid4().hex
        if self._enter is None:
            self.effects[key].append(order)
        else:
            await self._enter(key, order)
        headers = [(b"content-length", b"%d" % len(order))]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": order.encode()})

    async def through(self, fault: Fault, keys: int) -> Outcome:
        """Traffic until so many keys are acknowledged, the fault, so many again, and the audit."""
        clients = [asyncio.create_task(self._client()) for _ in range(self._clients)]
        try:
            await self._until_acknowledged(keys, clients)
            await asyncio.to_thread(fault, self)
            await self._until_acknowledged(len(self._acknowledged) + keys, clients)
        finally:
            self._stopping.set()
            await asyncio.gather(*clients, return_exceptions=True)
        for client in clients:
            client.result()
        return await self._audit()

    # --- for a fault, in its thread

    def wait_for_acknowledged(self, keys: int) -> None:
        """Until so many more are."""
        self._wait_for(lambda: len(self._acknowledged), keys)

    def wait_for_refused(self, attempts: int) -> None:
        """Until so many more are."""
        self._wait_for(lambda: self._counts["refused"], attempts)

    def _wait_for(self, count: Callable[[], int], more: int) -> None:
        until = time.monotonic() + PATIENCE
        wanted = count() + more
        while count() < wanted and not self._stopping.is_set():
            if time.monotonic() > until:
                raise RuntimeError(
                    f"expected {more} more within {PATIENCE:g} s, got {count() - wanted + more}"
                )
            time.sleep(0.005)

    async def close(self) -> None:
        await self._http.aclose()
        await asyncio.to_thread(self.guard.close)

    async def _until_acknowledged(self, keys: int, clients: "list[asyncio.Task[None]]") -> None:
        until = time.monotonic() + PATIENCE
        while len(self._acknowledged) < keys and not any(client.done() for client in clients):
            if time.monotonic() > until:
                raise RuntimeError(
                    f"expected {keys} acknowledged keys, got {len(self._acknowledged)} in {PATIENCE:g} s; "
                    f"responses: {dict(self._counts)} {dict(self._unexpected)}"
                )
            await asyncio.sleep(0.01)

    async def _client(self) -> None:
        while not self._stopping.is_set():
            await self._settle(uuid.uuid4().hex)

    async def _settle(self, key: str) -> None:
        """One request, repeated until its client knows the result, or that it will not."""
        while True:
            response = await self._post(key)
            if response.status_code == 201:
                if "idempotency-stored" in response.headers:
                    self._counts["unstored"] += 1
                else:
                    self._acknowledged[key] = response.content
                    self._times.append(time.monotonic())
                return
            code = _code(response)
            if code == "outcome-unknown":
                self._counts["unknown"] += 1
                return
            if response.status_code == 503:
                self._counts["refused"] += 1
            elif code != "in-flight":
                self._unexpected[code] += 1
            if self._stopping.is_set():
                return
            await asyncio.sleep(PAUSE)

    async def _post(self, key: str) -> httpx.Response:
        return await self._http.post("/orders", headers={"Idempotency-Key": key})

    async def _audit(self) -> Outcome:
        """Repeat each request whose result is known, once."""
        found: Counter[str] = Counter()
        left = iter(self._acknowledged.items())

        async def client() -> None:
            for key, told in left:
                response = await self._settled(key)
                if response.headers.get("idempotent-replayed") != "true":
                    found["lost"] += 1
                elif response.content != told:
                    found["contradicted"] += 1

        await asyncio.gather(*(client() for _ in range(self._clients)))
        return Outcome(
            acknowledged=len(self._acknowledged),
            lost=found["lost"],
            contradicted=found["contradicted"],
            repeated=sum(len(found) > 1 for found in self.effects.values()),
            unstored=self._counts["unstored"],
            unknown=self._counts["unknown"],
            refused=self._counts["refused"],
            unexpected=self._unexpected,
            pause=max(
                (later - one for one, later in zip(self._times, self._times[1:], strict=False)), default=0.0
            ),
        )

    async def _settled(self, key: str) -> httpx.Response:
        until = time.monotonic() + PATIENCE
        while _code(response := await self._post(key)) == "in-flight" or response.status_code == 503:
            if time.monotonic() > until:
                raise RuntimeError(f"expected a result within {PATIENCE:g} s, got {response.text}")
            await asyncio.sleep(PAUSE)
        return response


def _code(response: httpx.Response) -> str:
    if response.headers.get("content-type") == "application/problem+json":
        return str(response.json()["code"])
    return str(response.status_code)


async def outside(store: Store, fault: Fault, keys: int) -> Outcome:
    """Traffic whose effects are outside of the database."""
    traffic = Traffic(store)
    try:
        return await traffic.through(fault, keys)
    finally:
        await traffic.close()
