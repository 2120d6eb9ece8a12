"""Senders of events: they deliver each until it is acknowledged, as real ones do: late, in any order, several
times at once, and again after they were acknowledged; and some never come back.

Where a payload is stored, a sender that was acknowledged does not come back: what is left is for a worker.
"""

import asyncio
import json
import uuid
from collections import defaultdict
from datetime import datetime
from random import Random
from typing import Any, Literal, NamedTuple

from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.linearize.history import Operation, ResponseKind
from tools.crash.callers import Callers, Fields, Order, Received, may_arrive_late
from tools.crash.modes import ENDINGS, INBOX, PAYLOAD, TRANSACTIONAL, WITH_WORKERS, Mode

EVENT = "Event"
"""The header by which the harness knows a delivery.  The application knows it by what is in its body."""

IN_WORKER = "Payload-Trap"
"""Where the worker that handles the payload is interrupted: it travels in the payload."""

HANDLED, ACCEPTED, FAILED = 200, 202, 500
"""What a sender knows of its event from then on.  The last is final in mode `hold` only."""

_PAUSES = 0.1
"""Seconds, at most, by which a delivery is late, so that the events of a run arrive in any order."""

_GIVES_UP = 0.1
_GIVES_UP_WITH_WORKERS = 0.3
"""How many are never delivered again: more where workers handle what such a sender leaves."""


_MOST_WAITING = 100
"""Events that wait for a worker.  With more of them, most would not be handled before faults are over."""


class Told(NamedTuple):
    """What a response says about its event."""

    kind: ResponseKind
    status: int = 0
    """One of the three above, where it lasts."""
    began: float = 0.0
    """When its delivery began, and when the response had arrived."""
    ended: float = 0.0


def read(mode: Mode, reply: Reply) -> Told | Literal["wrong"]:
    """What a sender is told; "wrong" if the door never responds so in this mode."""
    if mode == INBOX:
        return _of_inbox(reply)
    match reply.status, reply.code:
        case 200, None:
            if reply.replayed:
                return Told("replay", HANDLED) if _names_the_original(reply) else "wrong"
            # An acknowledgement of what is not stored would be a lie, however it is marked.
            return "wrong" if may_arrive_late(reply) else Told("first", HANDLED)
        case 503, "in-flight":
            return Told("in-flight") if reply.header("Retry-After") else "wrong"
        case 500, "handler-failed" | None:
            return Told("first", FAILED) if mode == "hold" else Told("open")
        case 409, "previously-failed" if mode == "hold":
            return Told("replay", FAILED)
        case 409, "outcome-unknown" if mode not in TRANSACTIONAL:
            return Told("unknown")
        case 422, "key-reused":
            return Told("mismatch")
        case (503, "not-done" | "store-unavailable") | (429, None):
            return Told("open")
        case _:
            return "wrong"


def _of_inbox(reply: Reply) -> Told | Literal["wrong"]:
    """Its deliveries run no handler, so they tell nothing of one."""
    match reply.status, reply.code, reply.replayed:
        case 202, None, False:
            return Told("first", ACCEPTED)
        case (200 | 202) as status, None, True if _names_the_original(reply):
            return Told("replay", HANDLED if status == 200 else ACCEPTED)
        case 422, "key-reused", _:
            return Told("mismatch")
        case 503, "store-unavailable", _:
            return Told("open")
        case _:
            return "wrong"


def _names_the_original(reply: Reply) -> bool:
    """Whether an acknowledgement of a duplicate says so, and of when the event was received first."""
    document: Any = json.loads(reply.body)
    received = datetime.fromisoformat(document["original_received_at"])
    return document["idempotent_replayed"] is True and received.tzinfo is not None


class Senders(Callers):
    def __init__(self, port: int, mode: Mode, random: Random, retry_after: float) -> None:
        super().__init__(port, mode, random, retry_after)
        self.told: defaultdict[str, list[Told]] = defaultdict(list)
        """By event, all responses but those that say that the store could not be asked."""

    @property
    def _has_workers(self) -> bool:
        return self._mode in WITH_WORKERS

    def send(self, order: Order) -> None:
        # A delivery that comes again would take the payload away from the worker that is to be interrupted.
        times = 1 if order.place.worker and self._mode == PAYLOAD else None
        delivering = self._retry_until_settled(uuid.uuid4().hex, times, order)
        self.sent.add(asyncio.ensure_future(delivering))

    async def keep_asking(self) -> None:
        while self.open:
            if self.backlog > _MOST_WAITING:
                await asyncio.sleep(0.05)
                continue
            run = uuid.uuid4().hex
            events = [f"{run}-{number}" for number in range(self._random.randint(1, 3))]
            await asyncio.gather(*map(self._deliver, events))

    async def _deliver(self, key: str) -> None:
        await asyncio.sleep(self._random.uniform(0, _PAUSES))
        gives_up = _GIVES_UP_WITH_WORKERS if self._has_workers else _GIVES_UP
        match self._random.random():
            case chance if chance < gives_up:
                await self._retry_until_settled(key, times=1)
            case chance if chance < gives_up + 0.2:
                await asyncio.gather(self._retry_until_settled(key), self._retry_until_settled(key))
            case _:
                await self._retry_until_settled(key)
        if self.received[key] and self._random.random() < 0.25:
            self.sent.add(asyncio.ensure_future(self._deliver_late(key)))
        if self.received[key] and self._random.random() < 0.05:
            await self._deliver_something_else(key)

    async def _deliver_late(self, key: str) -> None:
        """A duplicate that was on its way when the event was acknowledged."""
        await asyncio.sleep(self._random.uniform(0, 4) * self._retry_after)
        await self._ask(key, [])

    async def _deliver_something_else(self, key: str) -> None:
        """An id belongs to the event that it was first delivered with."""
        kind = await self._ask(key, [], '{"something": "else"}')
        if kind not in ("mismatch", "open", "nothing"):
            self.violations.append(
                f"{key}: it was delivered before, and another payload with it got {kind!r}"
            )

    async def _reached(self, order: Order, kind: ResponseKind) -> None:
        if order.place.worker and kind != "nothing":
            await asyncio.sleep(2 * self._retry_after)  # a worker has it later

    def _fields(self, order: Order | None) -> Fields:
        if order is not None:
            trap = IN_WORKER if order.place.worker else "Trap"
            return [(trap, f"{order.how} {order.place.where}"), ("Ending", order.place.ending)]
        if self.open and self._random.random() < 0.08:
            return [("Ending", self._random.choice(ENDINGS))]
        return []

    def _is_last(self, kind: ResponseKind) -> bool:
        return kind in ("first", "replay") or (self._mode == "hold" and kind == "unknown")

    async def _exchange(self, key: str, fields: Fields, asked: str, flows: asyncio.Event) -> Reply:
        said = dict(fields)
        event = {
            "callback_id": key,
            "run_id": key.partition("-")[0],
            "asked": asked,
            "ending": said.get("Ending", ""),
            "trap": said.pop(IN_WORKER, ""),
        }
        return await self._post("/events", [(EVENT, key), *said.items()], json.dumps(event), flows)

    def _understand(self, key: str, asked: Operation, reply: Reply, ended: float) -> Operation:
        told = read(self._mode, reply)
        if told == "wrong":
            self.violations.append(f"{key}: the response is not one of this door's: {reply}")
            return asked._replace(received="open")
        if reply.code != "store-unavailable":
            self.told[key].append(told._replace(began=asked.began, ended=ended))
        if told.status:
            self.received[key].append(Received(told.status, reply.body, told.kind == "replay"))
            # All that lasts in an inbox is that the payload is stored.
            lasting = ACCEPTED if self._mode == INBOX else told.status
            return asked._replace(ended=ended, received=told.kind, response=b"%d" % lasting)
        return asked._replace(ended=None if may_arrive_late(reply) else ended, received=told.kind)

    # --- what must hold of it

    def contradictions(self) -> list[str]:
        """An event is handled or has failed, and at most one delivery was the first."""
        found: list[str] = []
        for key, received in self.received.items():
            if {HANDLED, FAILED} <= {response.status for response in received}:
                found.append(f"{key}: its sender was told that it was handled, and that it failed")
            if (firsts := sum(not response.replayed for response in received)) > 1:
                found.append(f"{key}: {firsts} deliveries were told that they were the first")
        return found
