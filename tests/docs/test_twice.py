"""The table "failure by failure" of the page about running twice, played out line by line.

Two guards on one store are two processes.  One of them *dies* when nobody renews its leases or awaits its
handlers any more; it *freezes* when it comes back later.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import pytest

from retrysafe import Guard, NotDone, StoreUnavailable, asgi, scopes
from retrysafe._core.model import Claim, Final, Reservation
from retrysafe.policy import Options
from retrysafe.stores.memory import AsyncMemoryStore, MemoryStore
from retrysafe.testing import ManualClock
from tests.docs.pages import page

Mode = Literal["outside", "repeatable"]
Stop = Literal["before", "after", "flowing"]

LEASE = 30.0


class Shaky(AsyncMemoryStore):
    """A store that is down as long as it is told to be."""

    down = ""

    async def reserve(self, claim: Claim) -> Reservation:
        self._check("reserve")
        return await super().reserve(claim)

    async def finish(self, claim: Claim, final: Final) -> bool:
        self._check("finish")
        return await super().finish(claim, final)

    def _check(self, operation: str) -> None:
        if self.down == operation:
            raise StoreUnavailable("down")


class Told(NamedTuple):
    status: int
    code: str | None
    replayed: bool


class Stage:
    """A service of two processes, and what its handler has done."""

    def __init__(self, mode: Mode, lease: float = LEASE) -> None:
        self.clock = ManualClock()
        store = MemoryStore(self.clock)
        self.store = store.aio = Shaky(store)
        options: Options = {"scope": scopes.public(), "effects": mode, "lease": lease, "max_response": 1000}
        self.guards = [Guard(store, **options) for _ in range(2)]
        self.apps = [asgi.Middleware(self.handle, guard) for guard in self.guards]
        self.runs = self.effects = 0
        self.answers: list[int | Exception] = []
        """What the handler does the first times: a status, or raise this.  Then it answers 201."""
        self.stop: Stop | None = None
        """Where the first run stops, until it is resumed."""
        self.stopped, self.resumed = asyncio.Event(), asyncio.Event()

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        self.runs += 1
        answer = self.answers.pop(0) if self.answers else 201
        stop, self.stop = self.stop, None
        await self.reach("before", stop)
        if isinstance(answer, Exception):
            raise answer
        self.effects += answer == 201
        await self.reach("after", stop)
        await send({"type": "http.response.start", "status": answer, "headers": []})
        large = b"x" * 2000 if stop == "flowing" else b""
        await send({"type": "http.response.body", "body": large, "more_body": True})
        await self.reach("flowing", stop)
        await send({"type": "http.response.body", "body": b"done"})

    async def reach(self, here: Stop, stop: Stop | None) -> None:
        if here == stop:
            self.stopped.set()
            await self.resumed.wait()

    async def send(self, process: int = 0) -> Told:
        """One request, always the same."""
        said: list[Any] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"{}"}

        async def send(message: object) -> None:
            said.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/pay",
            "headers": [(b"idempotency-key", b"k" * 20)],
        }
        with contextlib.suppress(RuntimeError):  # the handler's own, raised again for the server's log
            await self.apps[process](scope, receive, send)
        head, body = dict(said[0]["headers"]), b"".join(message.get("body", b"") for message in said)
        code = re.search(rb'"code": "([\w-]+)"', body)
        return Told(said[0]["status"], code[1].decode() if code else None, b"idempotent-replayed" in head)

    async def begin(self) -> "asyncio.Task[Told]":
        """A request whose handler has come to its stop."""
        task = asyncio.ensure_future(self.send())
        await self.stopped.wait()
        return task

    async def die(self) -> None:
        """The first process is gone, and its lease ends."""
        self.guards[0].runtime.leases.close()
        assert (await self.send(1)).code == "in-flight"
        self.clock.elapse(LEASE + 1)

    async def retry(self) -> Told:
        """What the other process says, asked three times; the last is what it stays with."""
        return [await self.send(1) for _ in range(3)][-1]


Play = Callable[[Stage], Awaitable[Told]]


async def nothing(stage: Stage) -> Told:
    return await stage.send()


async def lost(stage: Stage) -> Told:
    await stage.send()
    return await stage.retry()


async def hung_up(stage: Stage) -> Told:
    stage.stop = "before"
    task = await stage.begin()
    task.cancel()
    await asyncio.wait({task})
    stage.resumed.set()
    while stage.guards[0].runtime.unfinished():  # noqa: ASYNC110 - nobody is told when it is over
        await asyncio.sleep(0)
    return await stage.retry()


async def crowd(stage: Stage) -> Told:
    stage.stop = "before"
    first = await stage.begin()
    others = await asyncio.gather(*(stage.send(number % 2) for number in range(20)))
    assert {told.code for told in others} == {"in-flight"}
    stage.resumed.set()
    await first
    return await stage.retry()


async def never_arrived(stage: Stage) -> Told:
    return await stage.retry()


async def down_at_first(stage: Stage) -> Told:
    stage.store.down = "reserve"
    assert (await stage.send()).code == "store-unavailable"
    stage.store.down = ""
    return await stage.retry()


def killed(where: Stop) -> Play:
    async def play(stage: Stage) -> Told:
        stage.stop = where
        task = await stage.begin()
        await stage.die()
        told = await stage.retry()
        task.cancel()
        return told

    return play


async def killed_when_kept(stage: Stage) -> Told:
    await stage.send()
    stage.guards[0].runtime.leases.close()
    stage.clock.elapse(LEASE + 1)
    return await stage.retry()


def answering(*answers: int | Exception) -> Play:
    async def play(stage: Stage) -> Told:
        stage.answers = list(answers)
        await stage.send()
        return await stage.retry()

    return play


async def frozen(stage: Stage) -> Told:
    stage.stop = "after"
    task = await stage.begin()
    await stage.die()
    meanwhile = await stage.retry()
    stage.resumed.set()
    awake = await task
    last = await stage.retry()
    assert (meanwhile.code == "outcome-unknown") == (stage.runs == 1)
    assert awake.replayed == (stage.runs == 2), "an overtaken attempt tells what its successor made of it"
    return last


async def down_at_the_end(stage: Stage) -> Told:
    stage.store.down = "finish"
    assert (await stage.send()).status == 201
    stage.store.down = ""
    stage.clock.elapse(LEASE + 1)
    return await stage.retry()


class Line(NamedTuple):
    """A line of the table, as it begins; how to play it; and what the last retry gets in either mode."""

    title: str
    play: Play
    outside: str
    repeatable: str
    effects: tuple[int, int] = (1, 1)


LINES = [
    Line("nothing", nothing, "first", "first"),
    Line("the response is lost", lost, "replay", "replay"),
    Line("the client disconnects", hung_up, "replay", "replay"),
    Line("duplicates at the same moment", crowd, "replay", "replay"),
    Line("the process is killed **before**", never_arrived, "replay", "replay"),
    Line("… after it, before the effect", killed("before"), "outcome-unknown", "replay", (0, 1)),
    Line("… after the effect", killed("after"), "outcome-unknown", "replay", (1, 2)),
    Line("… while a response too large", killed("flowing"), "outcome-unknown", "outcome-unknown"),
    Line("… after the response is stored", killed_when_kept, "replay", "replay"),
    Line("the handler raises", answering(RuntimeError(), 500), "handler-failed", "replay", (0, 1)),
    Line("the handler responds 401", answering(401, NotDone()), "replay", "replay"),
    Line("[a worker freezes]", frozen, "replay", "replay", (1, 2)),
    Line("the store is down when the request", down_at_first, "replay", "replay"),
    Line("the store is down when the response", down_at_the_end, "outcome-unknown", "replay", (1, 2)),
]


def table() -> list[list[str]]:
    rows = page("docs/twice.md").text.partition('| what happens | `"outside"`')[2].partition("\n\n")[0]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows.splitlines()[2:]]


def claimed(title: str, mode: Mode) -> range:
    """How many runs the page says there are."""
    [cells] = [cells for cells in table() if cells[0].startswith(title)]
    said = cells[1] if mode == "outside" or cells[2] == "the same" else cells[2]
    number = re.match(r"\**(\d)( or more)?", said)
    assert number is not None, cells
    return range(int(number[1]), 10 if number[2] else int(number[1]) + 1)


@pytest.mark.parametrize("mode", ["outside", "repeatable"])
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.title)
def test_line(line: Line, mode: Mode) -> None:
    """The handler runs as often as the page says, and so does the effect; the retry gets what it says."""

    async def play() -> tuple[Stage, Told]:
        stage = Stage(mode, lease=0.5 if line.play is down_at_the_end else LEASE)
        told = await line.play(stage)
        for guard in stage.guards:
            guard.close()
        return stage, told

    stage, told = asyncio.run(play())
    assert stage.runs in claimed(line.title, mode)
    assert stage.effects == line.effects[mode == "repeatable"]
    wanted = line.outside if mode == "outside" else line.repeatable
    assert wanted == (told.code or ("replay" if told.replayed else "first"))


def test_no_line_is_forgotten() -> None:
    """But for the disk that is full, which is said to be a store that is down."""
    titles = [cells[0] for cells in table()]
    assert [title for title in titles if not any(title.startswith(line.title) for line in LINES)] == [
        "the disk is full"
    ]
