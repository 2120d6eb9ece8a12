"""Clients: each retries its key until it has a response that lasts, some of them twice at once, and some give
up.

They judge by the bytes that they receive: a response counts once its last byte has arrived, and one that
ends early counts as none.  What they received is compared with the database when all is over.
"""

import asyncio
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Literal, NamedTuple

from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.linearize.history import History, Operation, ResponseKind
from tools.crash.audit import id_in
from tools.crash.modes import (
    ENDINGS,
    LARGE,
    MAX_RESPONSE,
    NESTED,
    TRANSACTIONAL,
    Door,
    Interruption,
    Mode,
    Place,
)

PATIENCE = 60.0
"""Seconds for one response.  A worker that is frozen responds when it is continued."""

SETTLED: frozenset[ResponseKind] = frozenset({"first", "replay"})
"""Responses that last: every retry gets the same."""


PLACED = frozenset({200, 201})
"""The statuses of an order: as a value of an operation is stored, and as a request is responded to."""


def marks(id: str) -> list[tuple[str, str]]:
    """Header fields of an order, one of them twice: a replay has them as the first response had."""
    return [("Order-Id", id), ("Order-Part", "2"), ("Order-Part", "1")]


def marks_in(reply: Reply) -> list[tuple[str, str]]:
    return [field for field in reply.fields if field[0].lower().startswith("order-")]


def stored_body(body: bytes) -> bytes:
    """What the store has of a body: all of it, or nothing."""
    return body if len(body) <= MAX_RESPONSE else b""


def classify(mode: Mode, reply: Reply) -> ResponseKind | Literal["wrong"]:
    """What a response means, in the words of a history; "wrong" if the application never responds so."""
    lasting = reply.status in PLACED or (mode == "hold" and reply.status == 500)
    if reply.replayed:
        return "replay" if lasting else "wrong"
    if lasting:
        return "open" if reply.header("Idempotency-Stored") == "false" else "first"
    match reply.status, reply.code:
        case 409, "in-flight":
            return "in-flight"
        case 409, "outcome-unknown" if mode not in TRANSACTIONAL:
            return "unknown"
        case 422, "key-reused":
            return "mismatch"
        case (503, "not-done" | "store-unavailable") | (500, "handler-failed" | None) | (429, None):
            return "open"
        case _:
            return "wrong"


def is_last(mode: Mode, kind: ResponseKind) -> bool:
    """Whether a client has no reason to retry."""
    return kind in SETTLED or (mode == "hold" and kind == "unknown")


def may_arrive_late(reply: Reply) -> bool:
    """Whether what was sent to the store may arrive there after the client has its response."""
    return reply.code == "store-unavailable" or reply.header("Idempotency-Stored") == "false"


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


class Clients:
    def __init__(
        self, port: int, mode: Mode, random: Random, retry_after: float, door: Door = "request"
    ) -> None:
        self._port = port
        self._mode: Mode = mode
        self._door: Door = door
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
        """Keys that a client is retrying."""
        self.served = 0
        """Responses that last.  A client whose outcome is unknown was not served."""
        self.open = True
        self.successor_order: Callable[[], Order | None] = lambda: None
        """What a client that retries a key whose owner is gone is to do to its worker."""
        self.over: Callable[[Order], None] = lambda _: None
        self.sent: set[asyncio.Task[None]] = set()
        """Clients that were started because of an order, or to have a response flow."""

    @property
    def has_large(self) -> bool:
        """Whether responses may flow."""
        return self._mode == "hold" and self._door == "request"

    def send(self, order: Order) -> None:
        """One more client, for an interruption at a named place: a new key gets everywhere."""
        self.sent.add(asyncio.ensure_future(self._retry_until_settled(uuid.uuid4().hex, order=order)))

    async def until_one_flows(self) -> None:
        """Until the first bytes of a large response have arrived, and not its last."""
        while True:
            key, flows = uuid.uuid4().hex, asyncio.Event()
            asking = asyncio.ensure_future(self._ask(key, [("Ending", LARGE)], flows=flows))
            self.sent.add(asyncio.ensure_future(self._after_large(key, asking)))
            flowing = asyncio.ensure_future(flows.wait())
            try:
                await asyncio.wait({asking, flowing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                flowing.cancel()
            if not asking.done():
                return

    async def _after_large(self, key: str, asking: "asyncio.Task[ResponseKind]") -> None:
        if not is_last(self._mode, await asking):
            await self._retry_until_settled(key)
        elif self.open:
            # The retry that a response which arrived whole promises: it must be a replay.
            await self.settle(key)

    async def keep_asking(self) -> None:
        """One key after the other, until the round closes."""
        while self.open:
            key = uuid.uuid4().hex
            match self._random.random():
                case chance if chance < 0.1:
                    await self._retry_until_settled(key, times=1)  # and gives up
                case chance if chance < 0.3 and self._mode == NESTED:
                    # Two orders that share a part: one of them does it, and the other gets its value.
                    other, key = f"{key}-1", f"{key}-2"
                    await asyncio.gather(self._retry_until_settled(other), self._retry_until_settled(key))
                case chance if chance < 0.3:
                    await asyncio.gather(self._retry_until_settled(key), self._retry_until_settled(key))
                case _:
                    await self._retry_until_settled(key)
            if self.received[key] and self._random.random() < 0.2:
                await self.settle(key)
            if self.received[key] and self._random.random() < 0.05:
                await self._ask_for_something_else(key)

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
            done = is_last(self._mode, kind)
            # A successor gets to its place only when the lease has ended.
            if order and (not order.place.successor or done or kind == "nothing" or times == 0):
                self.over(order)
                order = None
            if done:
                break
            successor = successor or kind == "nothing"
            await asyncio.sleep(self._random.uniform(0.01, 0.06))
        self.waiting.discard(key)

    async def _ask_with_retry(self, key: str, fields: list[tuple[str, str]], patience: float) -> ResponseKind:
        """Wait for the response, and retry meanwhile: so a worker that is frozen is overtaken."""
        asking = asyncio.ensure_future(self._ask(key, fields))
        try:
            await asyncio.wait({asking}, timeout=patience)
            if not asking.done():
                await self.settle(key)
            return await asking
        finally:
            asking.cancel()

    def _fields(self, order: Order | None) -> list[tuple[str, str]]:
        if order is not None:
            return [("Trap", f"{order.how} {order.place.where}"), ("Ending", order.place.ending)]
        if self.open and self._random.random() < 0.08:
            return [("Ending", self._random.choice(ENDINGS))]
        if self.open and self.has_large and self._random.random() < 0.04:
            return [("Ending", LARGE)]
        return []

    async def settle(self, key: str) -> None:
        """Retry until there is a response that lasts, without asking for any trouble."""
        while not is_last(self._mode, await self._ask(key, [])):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.05)

    async def _ask_for_something_else(self, key: str) -> None:
        """A key belongs to the request that it was first sent with."""
        kind = await self._ask(key, [], '{"something": "else"}')
        if kind not in ("mismatch", "open", "nothing"):
            self.violations.append(f"{key}: it was used before, and another request with it got {kind!r}")

    async def _ask(
        self, key: str, fields: list[tuple[str, str]], body: str = "{}", flows: asyncio.Event | None = None
    ) -> ResponseKind:
        """One request, and what came of it."""
        operation = Operation(monotonic(), None, body, "nothing")
        try:
            operation = await self._request(operation, key, fields, flows or asyncio.Event())
        finally:
            self.histories[key].append(operation)
        if operation.received in SETTLED:
            self.served += 1
        if operation.received == "unknown":
            self.unknown.add(key)
        return operation.received

    async def _request(
        self, asked: Operation, key: str, fields: list[tuple[str, str]], flows: asyncio.Event
    ) -> Operation:
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
        kind = classify(self._mode, reply)
        if kind == "wrong":
            self.violations.append(f"{key}: the response is not one of the application's: {reply}")
            return asked._replace(received="open")
        if kind in SETTLED:
            found = tuple((name.title(), value) for name, value in marks_in(reply))
            omitted = reply.header("Idempotency-Body") == "omitted"
            received = Received(reply.status, reply.body, reply.replayed, found, omitted)
            self.received[key].append(received)
            return asked._replace(ended=ended, received=kind, response=b"%d %s" % received.stored)
        return asked._replace(ended=None if may_arrive_late(reply) else ended, received=kind)

    async def _exchange(
        self, key: str, fields: list[tuple[str, str]], body: str, flows: asyncio.Event
    ) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head = [
                ("Host", "crash.test"),
                ("Idempotency-Key", f'"{key}"'),
                ("Content-Length", str(len(body))),
                *fields,
                ("Connection", "close"),
            ]
            lines = [f"{name}: {value}" for name, value in head]
            writer.write("\r\n".join(["POST /orders HTTP/1.1", *lines, "", body]).encode())
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

    # --- what must hold of it

    def contradictions(self) -> list[str]:
        """All responses to one key are the same, with the same headers, and at most one is not a replay."""
        found: list[str] = []
        for key, received in self.received.items():
            distinct = {response.stored for response in received}
            if len(distinct) > 1:
                found.append(f"{key}: got different responses: {sorted(distinct)}")
            found += [f"{key}: {wrong}" for wrong in dict.fromkeys(map(_wrong_marks, received)) if wrong]
            if (firsts := sum(not response.replayed for response in received)) > 1:
                found.append(f"{key}: got {firsts} responses that are not replays")
        return found

    def broken_promises(self) -> list[str]:
        """A response that has arrived whole, and is not marked as not stored, promises that it is stored.

        So no retry of it may get `outcome-unknown`.  That no retry runs again is checked by the executions.
        """
        return [
            f"{key}: a response arrived whole, and a retry of it got outcome-unknown"
            for key, history in self.histories.items()
            if any(
                whole.ended is not None and whole.ended < retry.began and retry.asked == whole.asked
                for whole in history
                if whole.received in SETTLED
                for retry in history
                if retry.received == "unknown"
            )
        ]


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


def _wrong_marks(received: Received) -> str:
    """I4: an order has its own header fields in every response."""
    if received.omitted and received.body:
        return f"the body {received.body!r} came with Idempotency-Body: omitted"
    id = received.id if received.status in PLACED else None
    expected = tuple(marks(id)) if id is not None else ()
    if received.marks == expected:
        return ""
    return f"{received.body!r} came with {received.marks}, and {expected} were expected"
