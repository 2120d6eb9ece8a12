"""Cancelled at any await, once and again, by anybody: nothing is lost, stuck, leaked or run twice (F27-F29).

Each test plays one scene over and over and cuts it at its first suspension, at its second, and so on, until
it comes through uncut.  After every cut the books must balance: nothing is held any more, and a retry gets
what was stored or runs.
"""

import asyncio
import gc
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from retrysafe import Guard
from retrysafe._core.model import Claim, Reservation
from retrysafe.asgi.types import Message
from retrysafe.stores.contract import Store
from retrysafe.stores.memory import MemoryStore
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing import ManualClock
from tests.faults.scalpel import Moment, Scalpel
from tests.faults.stage import SCENES, Scene, Stage
from tests.faults.wire import PATIENCE, Deliberate, Heard, Wire, fresh, until

LONG = "RETRYSAFE_LONG" in os.environ

Knife = Literal["request", "request twice", "timeout", "everything", "everything twice", "disconnect"]

KNIVES: tuple[Knife, ...] = (
    "request",
    "request twice",
    "timeout",
    "everything",
    "everything twice",
    "disconnect",
)


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[ManualClock], Store]:
    if request.param == "memory":
        return lambda clock: MemoryStore(clock)
    return lambda clock: SQLiteStore(tmp_path / "keys.db", deadline=PATIENCE, clock=clock)


@contextmanager
def nothing_left_behind() -> Generator[None]:
    """No thread, no connection, no file, once the guard is closed."""
    gc.collect()
    threads, files = set(threading.enumerate()), _files()
    yield
    gc.collect()
    assert set(threading.enumerate()) <= threads
    assert set(_files()) <= set(files)


def _files() -> list[str]:
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own
            found.append(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found


class Show:
    """One play of a scene, with one cut."""

    def __init__(self, stage: Stage, knife: Knife, at: int, moment: Moment) -> None:
        self.stage = stage
        self.key = fresh()
        self.knife: Knife = knife
        self.wire = Wire(*stage.scene.pieces)
        self.scalpel = Scalpel(at, moment, self.cut)
        self.limit: asyncio.Timeout | None = None
        self.task: asyncio.Task[None] | None = None
        self.spared = set[asyncio.Task[Any]]()

    def cut(self) -> None:
        loop = asyncio.get_running_loop()
        match self.knife:
            case "disconnect":
                self.wire.gone.set()
            case "timeout":
                assert self.limit is not None
                self.limit.reschedule(loop.time() - 1)
            case "request" | "request twice":
                self._cancel(1 if self.knife == "request" else 3)
            case "everything" | "everything twice":
                self._cancel_all(1 if self.knife == "everything" else 3)

    def _cancel(self, times: int) -> None:
        assert self.task is not None
        self.task.cancel()
        if times > 1:
            asyncio.get_running_loop().call_soon(self._cancel, times - 1)

    def _cancel_all(self, times: int) -> None:
        for task in asyncio.all_tasks() - self.spared:
            task.cancel()
        if times > 1:
            asyncio.get_running_loop().call_soon(self._cancel_all, times - 1)

    async def _timed(self) -> None:
        async with asyncio.timeout(PATIENCE) as self.limit:
            await self.stage.play(self.key, self.wire)

    async def run(self) -> bool:
        """Play it.  False: it was over before it could be cut."""
        self.spared = asyncio.all_tasks()
        with pytest.MonkeyPatch.context() as patch:
            async with self._prepared(patch) as first:
                self.scalpel.install(patch)
                work = self._timed() if self.knife == "timeout" else self.stage.play(self.key, self.wire)
                self.task = asyncio.get_running_loop().create_task(work)
                if first is not None:
                    asyncio.get_running_loop().call_later(0.03, self.stage.shop.doors[self.key].set)
                await asyncio.wait({self.task})
                await self.stage.quiet(self.spared)
                asyncio.get_running_loop().set_task_factory(None)
        error = None if self.task.cancelled() else self.task.exception()
        assert error is None or (isinstance(error, TimeoutError) and self.knife == "timeout"), error
        return self.scalpel.used

    @asynccontextmanager
    async def _prepared(self, patch: pytest.MonkeyPatch) -> AsyncGenerator["asyncio.Task[Heard] | None"]:
        stage = self.stage
        match stage.scene.before:
            case "nothing":
                yield None
            case "answered":
                await stage.retry(self.key)
                yield None
            case "running":
                stage.shop.doors[self.key] = asyncio.Event()
                first = asyncio.ensure_future(stage.retry(self.key))
                await until(lambda: stage.shop.begun[self.key] > 0)
                yield first
                await asyncio.wait({first})
            case "draining":
                stage.guard.runtime.draining = True
                yield None
                stage.guard.resume()
            case "drain after the claim":
                _drain_after_claim(stage.guard, patch)
                yield None
                stage.guard.resume()


def _drain_after_claim(guard: Guard, patch: pytest.MonkeyPatch) -> None:
    reserve = guard.runtime.aio.reserve

    async def and_drain(claim: Claim) -> Reservation:
        reservation = await reserve(claim)
        guard.runtime.draining = True
        return reservation

    patch.setattr(guard.runtime.aio, "reserve", and_drain)


JUST_DONE: tuple[Knife, ...] = KNIVES if LONG else ("request", "everything")
CUTS: list[tuple[Knife, Moment]] = [
    *((knife, "pending") for knife in KNIVES),
    *((knife, "done") for knife in JUST_DONE),
]


@pytest.mark.parametrize(("knife", "moment"), CUTS, ids=[f"{knife}, {moment}" for knife, moment in CUTS])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_cut_at_every_await(
    make_store: Callable[[ManualClock], Store],
    caplog: pytest.LogCaptureFixture,
    scene: Scene,
    knife: Knife,
    moment: Moment,
) -> None:
    """F27, F28, F29: wherever a request is cut off, a retry is answered as if it had not been.

    The handler runs to its end once it has begun, unless the event loop itself is being torn down
    ("everything"); then its key is free again, or taken over, when its lease has ended.
    """

    clock = ManualClock()
    with nothing_left_behind():
        asyncio.run(cut_everywhere(lambda: Stage(make_store(clock), clock, scene), knife, moment))
    assert_no_surprise(caplog)


async def cut_everywhere(make_stage: Callable[[], Stage], knife: Knife, moment: Moment) -> None:
    """Play the scene again and again, cut at its first suspension, its second, and so on."""
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    stage = make_stage()
    cuts = 0
    for at in range(1, 500):
        show = Show(stage, knife, at, moment)
        used = await show.run()
        stage.assert_nothing_is_held()
        await assert_balanced(stage, show)
        gc.collect(0)
        assert not troubles, f"cut {at}: {troubles}"
        if not used:
            break
        cuts += 1
    assert cuts >= 3, "nothing was cut"
    stage.guard.close()


def assert_no_surprise(caplog: pytest.LogCaptureFixture) -> None:
    """The log tells of no error but those that handlers raised on purpose."""
    for record in caplog.records:
        if record.levelno >= logging.ERROR and record.exc_info is not None:
            assert isinstance(record.exc_info[1], Deliberate), record.exc_info[1]


async def assert_balanced(stage: Stage, show: Show) -> None:
    """What must hold after a cut, whichever it was."""
    shop, key, heard = stage.shop, show.key, show.wire.heard
    where = f"cut {show.scalpel._at}, heard {heard}"
    loop_dies = show.knife.startswith("everything")
    # Where the answer does not wait for the handler's end, the one may be lost and the other have come.
    apart = loop_dies and stage.scene.options.get("background") == "after"
    interrupted = shop.begun[key] > shop.returned[key] or (apart and not show.wire.complete)
    assert loop_dies or not interrupted, f"the handler was cancelled with its request: {where}"
    doors = shop.doors.get(key)
    if doors is not None:
        doors.set()
    effects_before = shop.effects[key]
    answer = await stage.assert_recovers(key, interrupted=interrupted)
    if interrupted and stage.scene.options.get("max_response") and answer.code == "outcome-unknown":
        # Bytes had left: nobody may run it again, not even under abandoned="retry".
        assert shop.effects[key] == 1, where
        return
    assert answer.status == stage.scene.status, f"{answer}: {where}"
    if interrupted:
        assert shop.effects[key] <= effects_before + 1, where
    else:
        assert shop.effects[key] == 1, where
    if show.wire.complete and heard.status == stage.scene.status and not interrupted:
        # I5: what the client heard is what every retry hears.
        flows = stage.scene.path == "/stream"
        assert answer.body == (b"" if flows else heard.body), where
        assert answer.replayed, where


@pytest.mark.parametrize("scene", ["a plain request", "a flowing answer", "a body on disk", "a release"])
def test_the_event_loop_ends(
    make_store: Callable[[ManualClock], Store], caplog: pytest.LogCaptureFixture, scene: str
) -> None:
    """F29: `asyncio.run` cancels whatever is left and closes the loop; the next loop finds nothing stuck."""
    clock = ManualClock()
    with nothing_left_behind():
        stage = Stage(make_store(clock), clock, SCENES[scene])
        for at in range(1, 500):
            shows: list[Show] = []

            async def leave_early(at: int = at, shows: list[Show] = shows) -> bool:
                show = Show(stage, "everything", at, "pending")
                shows.append(show)
                cut = asyncio.Event()
                show.cut = cut.set  # type: ignore[method-assign]  # the loop's own end is the knife
                show.scalpel = Scalpel(at, "pending", cut.set)
                with pytest.MonkeyPatch.context() as patch:
                    reached = asyncio.ensure_future(cut.wait())
                    show.scalpel.install(patch)
                    task = asyncio.ensure_future(stage.play(show.key, show.wire))
                    await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
                return show.scalpel.used

            used = asyncio.run(leave_early())
            stage.assert_nothing_is_held()
            asyncio.run(assert_balanced(stage, shows[0]))
            if not used:
                break
        else:
            pytest.fail("it never came to its end")
        stage.guard.close()
    assert_no_surprise(caplog)


def test_nothing_is_claimed_before_the_body_is_complete() -> None:
    """F27: a client that hangs up during its body leaves no record, and its handler has not run."""
    asyncio.run(_hang_up_half_way())


async def _hang_up_half_way() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    stage = Stage(store, clock, Scene())
    wire = Wire(b"{", b"half", b"}")
    key = fresh()
    scope = stage.scope(key)
    pieces = 0

    async def receive() -> Message:
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            wire.gone.set()
        return await wire.receive()

    await stage.app(scope, receive, wire.send)
    assert wire.sent == []
    assert not stage.shop.begun
    assert not store._rows
    stage.guard.close()
