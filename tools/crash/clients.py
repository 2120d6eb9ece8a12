"""Clients of orders: each retries its key until it has a response that lasts, some of them twice at once, and
some give up.

What they received is compared with the database when all is over.
"""

import asyncio
import uuid
from random import Random
from typing import Literal

from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.linearize.history import Operation, ResponseKind
from tools.crash.callers import SETTLED, Callers, Fields, Order, Received, may_arrive_late
from tools.crash.modes import ENDINGS, LARGE, NESTED, TRANSACTIONAL, Door, Mode

PLACED = frozenset({200, 201})
"""The statuses of an order: as a value of an operation is stored, and as a request is responded to."""


def marks(id: str) -> list[tuple[str, str]]:
    """Header fields of an order, one of them twice: a replay has them as the first response had."""
    return [("Order-Id", id), ("Order-Part", "2"), ("Order-Part", "1")]


def marks_in(reply: Reply) -> list[tuple[str, str]]:
    return [field for field in reply.fields if field[0].lower().startswith("order-")]


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


class Clients(Callers):
    def __init__(
        self, port: int, mode: Mode, random: Random, retry_after: float, door: Door = "request"
    ) -> None:
        super().__init__(port, mode, random, retry_after)
        self.has_large = mode == "hold" and door == "request"

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

    def _fields(self, order: Order | None) -> Fields:
        if order is not None:
            return [("Trap", f"{order.how} {order.place.where}"), ("Ending", order.place.ending)]
        if self.open and self._random.random() < 0.08:
            return [("Ending", self._random.choice(ENDINGS))]
        if self.open and self.has_large and self._random.random() < 0.04:
            return [("Ending", LARGE)]
        return []

    def _is_last(self, kind: ResponseKind) -> bool:
        return is_last(self._mode, kind)

    async def _ask_for_something_else(self, key: str) -> None:
        """A key belongs to the request that it was first sent with."""
        kind = await self._ask(key, [], '{"something": "else"}')
        if kind not in ("mismatch", "open", "nothing"):
            self.violations.append(f"{key}: it was used before, and another request with it got {kind!r}")

    def _understand(self, key: str, asked: Operation, reply: Reply, ended: float) -> Operation:
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

    async def _exchange(self, key: str, fields: Fields, asked: str, flows: asyncio.Event) -> Reply:
        return await self._post("/orders", [("Idempotency-Key", f'"{key}"'), *fields], asked, flows)

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


def _wrong_marks(received: Received) -> str:
    """I4: an order has its own header fields in every response."""
    if received.omitted and received.body:
        return f"the body {received.body!r} came with Idempotency-Body: omitted"
    id = received.id if received.status in PLACED else None
    expected = tuple(marks(id)) if id is not None else ()
    if received.marks == expected:
        return ""
    return f"{received.body!r} came with {received.marks}, and {expected} were expected"
