"""Customers: each tries its key until it is answered, some of them twice at once, and some walk away.

What they heard is written down, and held against what is in the database when all is over.
"""

import asyncio
import itertools
import json
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from retrysafe.testing.adapters.client import Answer

PATIENCE = 60.0
"""For one answer.  A worker that is frozen answers when it goes on."""

TRAPS: tuple[tuple[str, str], ...] = (
    ("before Reserve", ""),
    ("inside Reserve", ""),
    ("after Reserve", ""),
    ("before TakeOver", ""),
    ("inside TakeOver", ""),
    ("after TakeOver", ""),
    ("before Run", ""),
    ("after Write crash_orders", ""),
    ("after Write crash_lines", ""),
    ("after Run", ""),
    ("before Commit", ""),
    ("before conclude", ""),
    ("inside conclude", ""),
    ("after conclude", ""),
    ("before COMMIT", ""),
    ("inside COMMIT", ""),
    ("after COMMIT", ""),
    ("after Commit", ""),
    ("before RollBack", "answer 500"),
    ("inside RollBack", "raise"),
    ("after RollBack", "not done"),
    ("before Release", "raise"),
    ("inside Release", "answer 429"),
    ("after Release", "answer 500"),
)
"""Every place, and the mood in which a handler comes there."""

MOODS = ("answer 500", "raise", "not done", "answer 429")

AGAIN = {
    (409, "in-flight"),
    (503, "not-done"),
    (503, "store-unavailable"),
    (500, "handler-failed"),
    (500, None),
    (429, None),
}
"""What tells a client to come again: nothing has happened, or not yet."""


class Heard(NamedTuple):
    """All that was ever answered to one key, and meant to last."""

    answers: list[tuple[int, bytes]]
    replays: list[bool]


class Customers:
    def __init__(self, port: int) -> None:
        self._port = port
        self._traps: Iterator[tuple[str, str]] = itertools.cycle(TRAPS)
        self.heard: defaultdict[str, Heard] = defaultdict(lambda: Heard([], []))
        self.wrongs: list[str] = []
        self.verdicts: Counter[str] = Counter()
        self.waiting: dict[str, float] = {}
        """Keys that somebody wants an answer to, and since when."""
        self.served = 0
        """Answers that were meant to last."""
        self.open = True
        self.trap: Callable[[], str | None] = lambda: None
        """How the next worker is to fall, if it is."""

    async def come(self) -> None:
        """One after the other, while the shop is open."""
        while self.open:
            key = uuid.uuid4().hex
            match random.random():
                case chance if chance < 0.1:
                    await self._ask_once(key)  # and walks away
                case chance if chance < 0.3:
                    await asyncio.gather(self._settle(key), self._settle(key))
                case _:
                    await self._settle(key)
            if random.random() < 0.2 and self.heard[key].answers:
                await self.settle_quietly(key)

    async def _settle(self, key: str) -> None:
        """Ask until there is an answer, whatever happens to it on the way."""
        self.waiting.setdefault(key, asyncio.get_running_loop().time())
        while not await self._ask_once(key):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(random.uniform(0.01, 0.06))
        self.waiting.pop(key, None)

    async def settle_quietly(self, key: str) -> None:
        """The same, asking for no trouble."""
        while not await self._ask(key, []):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)

    async def _ask_once(self, key: str) -> bool:
        fields: list[tuple[str, str]] = []
        how = self.trap() if self.open else None
        if how is not None:
            where, mood = next(self._traps)
            fields = [("Trap", f"{how} {where}"), ("Mood", mood)]
        elif self.open and random.random() < 0.08:
            fields = [("Mood", random.choice(MOODS))]
        return await self._ask(key, fields)

    async def _ask(self, key: str, fields: list[tuple[str, str]]) -> bool:
        """One request; whether it was answered for good."""
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._exchange(key, fields)
        except TimeoutError:
            self.wrongs.append(f"{key}: not answered within {PATIENCE} s")
            return False
        except (OSError, EOFError, ValueError):
            self.verdicts["cut off"] += 1
            return False
        name = answer.code or str(answer.status)
        self.verdicts[name] += 1
        if answer.status == 201:
            heard = self.heard[key]
            heard.answers.append((answer.status, answer.body))
            heard.replays.append(answer.replayed)
            self.served += 1
            return True
        if (answer.status, answer.code) not in AGAIN:
            self.wrongs.append(f"{key}: answered {answer}")
        return False

    async def _exchange(self, key: str, fields: list[tuple[str, str]]) -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head = [("Host", "crash.test"), ("Idempotency-Key", f'"{key}"'), ("Content-Length", "2")]
            lines = [f"{name}: {value}" for name, value in [*head, *fields, ("Connection", "close")]]
            writer.write("\r\n".join(["POST /orders HTTP/1.1", *lines, "", "{}"]).encode())
            said = await reader.readuntil(b"\r\n\r\n")
            first, *rest = said.decode("latin-1").split("\r\n")[:-2]
            pairs = [line.partition(": ")[::2] for line in rest]
            found = tuple((name, value) for name, value in pairs)
            length = next(int(value) for name, value in found if name.lower() == "content-length")
            return Answer(int(first.split()[1]), found, await reader.readexactly(length))
        finally:
            writer.transport.abort()

    # --- what must hold of it

    def contradictions(self) -> list[str]:
        """All answers to one key are the same, and at most one of them was the first."""
        found: list[str] = []
        for key, (answers, replays) in self.heard.items():
            if len(set(answers)) > 1:
                found.append(f"{key}: was answered {set(answers)}")
            if replays.count(False) > 1:
                found.append(f"{key}: was answered {replays.count(False)} times as the first")
        return found

    def id_heard(self, key: str) -> str | None:
        answers = self.heard[key].answers if key in self.heard else []
        return str(json.loads(answers[0][1])["id"]) if answers else None
