"""Customers: each tries its key until it is answered, some of them twice at once, and some walk away.

What they heard is written down, and held against what is in the database when all is over.
"""

import asyncio
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Literal, NamedTuple

from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.linearize.history import Heard, History, Operation
from tools.crash.audit import id_in
from tools.crash.modes import MOODS, Mode, Place, Stroke

SETTLED: frozenset[Heard] = frozenset({"first", "replay"})
"""Answers that are meant to last."""


def marks(id: str) -> list[tuple[str, str]]:
    """Header fields of an order, one of them twice: a replay has them as the first answer had."""
    return [("Order-Id", id), ("Order-Part", "2"), ("Order-Part", "1")]


def marks_in(answer: Reply) -> list[tuple[str, str]]:
    return [field for field in answer.fields if field[0].lower().startswith("order-")]


def hear(mode: Mode, answer: Reply) -> Heard | Literal["wrong"]:
    """In the words of a history; or something that this service never says."""
    lasting = answer.status == 201 or (mode == "hold" and answer.status == 500)
    if answer.replayed:
        return "replay" if lasting else "wrong"
    if lasting:
        return "open" if answer.header("Idempotency-Stored") == "false" else "first"
    match answer.status, answer.code:
        case 409, "in-flight":
            return "in-flight"
        case 409, "outcome-unknown" if mode != "tx":
            return "unknown"
        case 422, "key-reused":
            return "mismatch"
        case (503, "not-done" | "store-unavailable") | (500, "handler-failed" | None) | (429, None):
            return "open"
        case _:
            return "wrong"


def last_word(mode: Mode, heard: Heard) -> bool:
    """Whether a client has nothing more to ask for."""
    return heard in SETTLED or (mode == "hold" and heard == "unknown")


def may_still_act(answer: Reply) -> bool:
    """Whether what was sent to the store may arrive there after the client has been told."""
    return answer.code == "store-unavailable" or answer.header("Idempotency-Stored") == "false"


PATIENCE = 60.0
"""For one answer.  A worker that is frozen answers when it goes on."""


class Order(NamedTuple):
    """To have a worker fall."""

    how: Stroke
    place: Place


class Told(NamedTuple):
    """An answer that is meant to last."""

    status: int
    body: bytes
    replayed: bool
    marks: tuple[tuple[str, str], ...] = ()
    """The header fields of an order."""


class Customers:
    def __init__(self, port: int, mode: Mode, random: Random, impatience: float) -> None:
        self._port = port
        self._mode: Mode = mode
        self._random = random
        self._impatience = impatience
        self.told: defaultdict[str, list[Told]] = defaultdict(list)
        """All that was ever answered to one key, and meant to last."""
        self.histories: defaultdict[str, History] = defaultdict(list)
        self.unknown: set[str] = set()
        """Keys of which somebody was told that their outcome is unknown."""
        self.wrongs: list[str] = []
        self.verdicts: Counter[str] = Counter()
        self.waiting: set[str] = set()
        """Keys that somebody wants an answer to."""
        self.served = 0
        """Answers that are meant to last.  To be told that an outcome is unknown is not to be served."""
        self.open = True
        self.inherited: Callable[[], Order | None] = lambda: None
        """What an heir, who comes back for a key whose owner is gone, is to do to its worker."""
        self.over: Callable[[Order], None] = lambda _: None
        self.sent: set[asyncio.Task[None]] = set()
        """Those who have come because of an order."""

    def send(self, order: Order) -> None:
        """One more customer, for a stroke at a named place: whoever comes first gets everywhere."""
        self.sent.add(asyncio.ensure_future(self._insist(uuid.uuid4().hex, order=order)))

    async def come(self) -> None:
        """One after the other, while the shop is open."""
        while self.open:
            key = uuid.uuid4().hex
            match self._random.random():
                case chance if chance < 0.1:
                    await self._insist(key, times=1)  # and walks away
                case chance if chance < 0.3:
                    await asyncio.gather(self._insist(key), self._insist(key))
                case _:
                    await self._insist(key)
            if self.told[key] and self._random.random() < 0.2:
                await self.settle(key)
            if self.told[key] and self._random.random() < 0.05:
                await self._ask_for_something_else(key)

    async def _insist(self, key: str, times: int | None = None, order: Order | None = None) -> None:
        """Ask until there is an answer, whatever happens to it on the way."""
        self.waiting.add(key)
        heir = False
        while times != 0:
            times = times and times - 1
            if heir and order is None and self.open:
                order = self.inherited()
            # An heir who asks twice would come too late: the one without an order would take over.
            patience = self._impatience * (3 if order and order.place.heir else 1)
            heard = await self._ask_impatiently(key, self._fields(order), patience)
            done = last_word(self._mode, heard)
            # Only an heir comes to the place that is meant for it, and only when the lease has ended.
            if order and (not order.place.heir or done or heard == "nothing" or times == 0):
                self.over(order)
                order = None
            if done:
                break
            heir = heir or heard == "nothing"
            await asyncio.sleep(self._random.uniform(0.01, 0.06))
        self.waiting.discard(key)

    async def _ask_impatiently(self, key: str, fields: list[tuple[str, str]], patience: float) -> Heard:
        """Listen to the end, and ask once more meanwhile: so whoever sleeps over a key is overtaken."""
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
            return [("Trap", f"{order.how} {order.place.where}"), ("Mood", order.place.mood)]
        if self.open and self._random.random() < 0.08:
            return [("Mood", self._random.choice(MOODS))]
        return []

    async def settle(self, key: str) -> None:
        """Ask until there is an answer, and ask for no trouble."""
        while not last_word(self._mode, await self._ask(key, [])):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)

    async def _ask_for_something_else(self, key: str) -> None:
        """A key that has been answered belongs to what it was first sent with."""
        heard = await self._ask(key, [], '{"something": "else"}')
        if heard not in ("mismatch", "open", "nothing"):
            self.wrongs.append(f"{key}: it was answered before, and for something else it was {heard!r}")

    async def _ask(self, key: str, fields: list[tuple[str, str]], body: str = "{}") -> Heard:
        """One request, and what came of it."""
        operation = Operation(monotonic(), None, body, "nothing")
        try:
            operation = await self._hear(operation, key, fields)
        finally:
            self.histories[key].append(operation)
        if operation.heard in SETTLED:
            self.served += 1
        if operation.heard == "unknown":
            self.unknown.add(key)
        return operation.heard

    async def _hear(self, asked: Operation, key: str, fields: list[tuple[str, str]]) -> Operation:
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._exchange(key, fields, asked.asked)
        except TimeoutError:
            self.wrongs.append(f"{key}: not answered within {PATIENCE} s")
            return asked
        except (OSError, EOFError):
            self.verdicts["cut off"] += 1
            return asked
        except (ValueError, LookupError) as error:
            self.wrongs.append(f"{key}: what was answered is not HTTP: {error!r}")
            return asked
        ended = monotonic()
        self.verdicts["replayed" if answer.replayed else answer.code or str(answer.status)] += 1
        heard = hear(self._mode, answer)
        if heard == "wrong":
            self.wrongs.append(f"{key}: answered {answer}")
            return asked._replace(heard="open")
        if heard in SETTLED:
            found = tuple((name.title(), value) for name, value in marks_in(answer))
            self.told[key].append(Told(answer.status, answer.body, answer.replayed, found))
            return asked._replace(ended=ended, heard=heard, answer=b"%d %s" % (answer.status, answer.body))
        return asked._replace(ended=None if may_still_act(answer) else ended, heard=heard)

    async def _exchange(self, key: str, fields: list[tuple[str, str]], body: str) -> Reply:
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
            said = await reader.readuntil(b"\r\n\r\n")
            first, *rest = said.decode("latin-1").split("\r\n")[:-2]
            pairs = [line.partition(": ")[::2] for line in rest]
            found = tuple((name, value) for name, value in pairs)
            [length] = [int(value) for name, value in found if name.lower() == "content-length"]
            return Reply(int(first.split()[1]), found, await reader.readexactly(length))
        finally:
            writer.transport.abort()

    # --- what must hold of it

    def contradictions(self) -> list[str]:
        """All answers to one key are the same, with the same headers, and one at most was the first."""
        found: list[str] = []
        for key, told in self.told.items():
            answers = {(answer.status, answer.body) for answer in told}
            if len(answers) > 1:
                found.append(f"{key}: was answered {sorted(answers)}")
            found += [f"{key}: {wrong}" for wrong in dict.fromkeys(map(_mismarked, told)) if wrong]
            if (firsts := sum(not answer.replayed for answer in told)) > 1:
                found.append(f"{key}: was answered {firsts} times as the first")
        return found


def _mismarked(told: Told) -> str:
    """I4: an order has the header fields of its own, however often it is told."""
    id = id_in(told.body) if told.status == 201 else None
    expected = tuple(marks(id)) if id is not None else ()
    if told.marks == expected:
        return ""
    return f"was answered {told.body!r} with {told.marks}, and {expected} were expected"
