"""What calls the application from outside, through whichever door: each caller sends its key again until it
has a response that lasts, and some give up.

They judge by the bytes that they receive: a response counts once its last byte has arrived, and one that
ends early counts as none.
"""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import NamedTuple

from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.linearize.history import History, Operation, ResponseKind
from tools.crash.audit import id_in
from tools.crash.modes import MAX_RESPONSE, Interruption, Mode, Place

PATIENCE = 60.0
"""Seconds for one response.  A worker that is frozen responds when it is continued."""

SETTLED: frozenset[ResponseKind] = frozenset({"first", "replay"})
"""Responses that last: every retry gets the same."""

Fields = list[tuple[str, str]]


class Order(NamedTuple):
    """To have a worker interrupted."""

    how: Interruption
    place: Place


class Received(NamedTuple):
    """A response that lasts, all of whose bytes have arrived."""

    status: int
    body: bytes
    replayed: bool
    marks: tuple[tuple[str, str], ...] = ()
    """The header fields of an order."""
    omitted: bool = False
    """A replay that declares that its body was too large to store."""

    @property
    def id(self) -> str | None:
        """Of the order; a replay without a body has it in a header."""
        return dict(self.marks).get("Order-Id") if self.omitted else id_in(self.body)

    @property
    def stored(self) -> tuple[int, bytes]:
        """What the store must have of it, and what every other response to its key has in common with it."""
        return self.status, stored_body(self.body)


def stored_body(body: bytes) -> bytes:
    """What the store has of a body: all of it, or nothing."""
    return body if len(body) <= MAX_RESPONSE else b""


class Callers(ABC):
    has_large = False
    """Whether responses may flow."""

    def __init__(self, port: int, mode: Mode, random: Random, retry_after: float) -> None:
        self._port = port
        self._mode: Mode = mode
        self._random = random
        self._retry_after = retry_after
        self.received: defaultdict[str, list[Received]] = defaultdict(list)
        """By key, all responses that last."""
        self.histories: defaultdict[str, History] = defaultdict(list)
        self.unknown: set[str] = set()
        """Keys whose outcome was reported as unknown."""
        self.violations: list[str] = []
        self.verdicts: Counter[str] = Counter()
        self.waiting: set[str] = set()
        """Keys that a caller is retrying."""
        self.served = 0
        """Responses that last.  A caller whose outcome is unknown was not served."""
        self.backlog = 0
        """Payloads that wait for a worker, as the last audit found them."""
        self.open = True
        self.successor_order: Callable[[], Order | None] = lambda: None
        """What a caller that retries a key whose owner is gone is to do to its worker."""
        self.over: Callable[[Order], None] = lambda _: None
        self.sent: set[asyncio.Task[None]] = set()
        """Callers that were started because of an order, or to have a response flow."""

    def send(self, order: Order) -> None:
        """One more caller, for an interruption at a named place: a new key gets everywhere."""
        self.sent.add(asyncio.ensure_future(self._retry_until_settled(uuid.uuid4().hex, order=order)))

    @abstractmethod
    async def keep_asking(self) -> None:
        """One key after the other, until the round closes."""

    async def until_one_flows(self) -> None:
        """Until the first bytes of a large response have arrived, and not its last."""
        raise NotImplementedError

    async def settle(self, key: str) -> None:
        """Retry until there is a response that lasts, without asking for any trouble."""
        while not self._is_last(await self._ask(key, [])):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.05)

    # --- one key

    async def _retry_until_settled(
        self, key: str, times: int | None = None, order: Order | None = None
    ) -> None:
        """Retry until there is a response that lasts, whatever happens to it on the way."""
        self.waiting.add(key)
        successor = False
        while times != 0:
            times = times and times - 1
            if successor and order is None and self.open:
                order = self.successor_order()
            # A successor that asks twice would be too late: the request without an order would take over.
            patience = self._retry_after * (3 if order and order.place.successor else 1)
            kind = await self._ask_with_retry(key, self._fields(order), patience)
            done = self._is_last(kind)
            # A successor gets to its place only when the lease has ended.
            if order and (not order.place.successor or done or kind == "nothing" or times == 0):
                await self._reached(order, kind)
                self.over(order)
                order = None
            if done:
                break
            successor = successor or kind == "nothing"
            await asyncio.sleep(self._random.uniform(0.01, 0.06))
        self.waiting.discard(key)

    async def _reached(self, order: Order, kind: ResponseKind) -> None:  # noqa: B027 - for most, it has
        """Wait until a request that was sent to a place must have got there."""

    async def _ask_with_retry(self, key: str, fields: Fields, patience: float) -> ResponseKind:
        """Wait for the response, and retry meanwhile: so a worker that is frozen is overtaken."""
        asking = asyncio.ensure_future(self._ask(key, fields))
        try:
            await asyncio.wait({asking}, timeout=patience)
            if not asking.done():
                await self.settle(key)
            return await asking
        finally:
            asking.cancel()

    @abstractmethod
    def _fields(self, order: Order | None) -> Fields:
        """What a request asks of the worker that serves it."""

    @abstractmethod
    def _is_last(self, kind: ResponseKind) -> bool:
        """Whether a caller has no reason to retry."""

    # --- one request

    async def _ask(
        self, key: str, fields: Fields, asked: str = "{}", flows: asyncio.Event | None = None
    ) -> ResponseKind:
        """One request, and what came of it."""
        operation = Operation(monotonic(), None, asked, "nothing")
        try:
            operation = await self._request(operation, key, fields, flows or asyncio.Event())
        finally:
            self.histories[key].append(operation)
        if operation.received in SETTLED:
            self.served += 1
        if operation.received == "unknown":
            self.unknown.add(key)
        return operation.received

    async def _request(self, asked: Operation, key: str, fields: Fields, flows: asyncio.Event) -> Operation:
        try:
            async with asyncio.timeout(PATIENCE):
                reply = await self._exchange(key, fields, asked.asked, flows)
        except TimeoutError:
            self.violations.append(f"{key}: no response within {PATIENCE} s")
            return asked
        except (OSError, EOFError):
            self.verdicts["broken off" if flows.is_set() else "cut off"] += 1
            return asked
        except (ValueError, LookupError) as error:
            self.violations.append(f"{key}: the response is not valid HTTP: {error!r}")
            return asked
        ended = monotonic()
        self.verdicts["replayed" if reply.replayed else reply.code or str(reply.status)] += 1
        return self._understand(key, asked, reply, ended)

    @abstractmethod
    def _understand(self, key: str, asked: Operation, reply: Reply, ended: float) -> Operation:
        """What a response means, in the words of a history."""

    @abstractmethod
    async def _exchange(self, key: str, fields: Fields, asked: str, flows: asyncio.Event) -> Reply: ...

    async def _post(self, path: str, fields: Fields, body: str, flows: asyncio.Event) -> Reply:
        """One request over a connection of its own; `flows` is set when a body begins that has no length."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head = [
                ("Host", "crash.test"),
                ("Content-Length", str(len(body.encode()))),
                *fields,
                ("Connection", "close"),
            ]
            lines = [f"{name}: {value}" for name, value in head]
            writer.write("\r\n".join([f"POST {path} HTTP/1.1", *lines, "", body]).encode())
            received = await reader.readuntil(b"\r\n\r\n")
            first, *rest = received.decode("latin-1").split("\r\n")[:-2]
            pairs = [line.partition(": ")[::2] for line in rest]
            found = tuple((name, value) for name, value in pairs)
            status = int(first.split()[1])
            if any(field == ("transfer-encoding", "chunked") for field in _lower(found)):
                flows.set()
                return Reply(status, found, await _read_chunks(reader))
            [length] = [int(value) for name, value in found if name.lower() == "content-length"]
            return Reply(status, found, await reader.readexactly(length))
        finally:
            writer.transport.abort()


def may_arrive_late(reply: Reply) -> bool:
    """Whether what was sent to the store may arrive there after the caller has its response."""
    return reply.code == "store-unavailable" or reply.header("Idempotency-Stored") == "false"


def _lower(fields: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(name.lower(), value.lower()) for name, value in fields]


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """RFC 9112, 7.1: a body is whole only with its last chunk, the empty one."""
    body = b""
    while length := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(length)
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk is longer than its length")
    if await reader.readexactly(2) != b"\r\n":
        raise ValueError("the last chunk is followed by something else")
    return body
