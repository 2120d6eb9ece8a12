"""The waiting room: how many duplicates may wait, per key and in all."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from retrysafe._core.steps import Flow, Wait, ask
from retrysafe._runtime.admission import PER_KEY, PER_PROCESS, WaitLimit
from retrysafe._runtime.drive_async import drive_async
from retrysafe._runtime.drive_sync import drive_sync


def test_the_limits() -> None:
    """Ten per key and a hundred per process."""
    assert (PER_KEY, PER_PROCESS) == (10, 100)


def test_a_key_has_ten_places() -> None:
    """The eleventh gets its 409 at once, and another key's first does not (F46)."""
    room = WaitLimit()
    assert all(room.enter(b"a") for _ in range(PER_KEY))
    assert not room.enter(b"a")
    assert room.enter(b"b")


def test_whoever_leaves_makes_room() -> None:
    """For one."""
    room = WaitLimit()
    for _ in range(PER_KEY):
        room.enter(b"a")
    room.leave(b"a")
    assert room.enter(b"a")
    assert not room.enter(b"a")


def test_a_process_has_a_hundred_places() -> None:
    """However many keys there are: others must still be served."""
    room = WaitLimit()
    entered = [room.enter(b"key %d" % number) for number in range(PER_PROCESS + 5)]
    assert entered == [True] * PER_PROCESS + [False] * 5
    room.leave(b"key 0")
    assert room.enter(b"another")


def test_threads_have_a_limit_of_their_own() -> None:
    """However many keys; coroutines are not counted with them, and who leaves makes room."""
    room = WaitLimit(threads=2)
    assert [room.enter(b"key %d" % number, blocks=True) for number in range(3)] == [True, True, False]
    assert room.enter(b"key 2"), "on an event loop"
    room.leave(b"key 0", blocks=True)
    room.leave(b"key 2")
    assert room.enter(b"key 2", blocks=True)
    assert not room.enter(b"key 3", blocks=True)
    assert not WaitLimit(threads=0).enter(b"a", blocks=True)


def test_an_empty_room_holds_nothing() -> None:
    """Keys come from clients: none of them may stay behind in memory (CWE-401)."""
    room = WaitLimit()
    for number in range(50):
        room.enter(b"key %d" % number)
    for number in range(50):
        room.leave(b"key %d" % number)
    assert not room._waiting
    for _ in range(PER_KEY + 1):
        room.enter(b"a")
    assert set(room._waiting) == {b"a"}


def test_threads_do_not_squeeze_in() -> None:
    """Fifty at once for ten places: ten get one."""
    room = WaitLimit()
    with ThreadPoolExecutor(50) as threads:
        entered = list(threads.map(lambda _: room.enter(b"a"), range(50)))
    assert sum(entered) == PER_KEY


def test_what_the_store_hears_is_passed_on() -> None:
    """Whoever waits is woken through the store's own subscription, and by nothing where it has none."""
    heard: list[bytes] = []

    def subscribe(id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        heard.append(id)
        wake()
        return lambda: heard.append(b"over")

    woken: list[int] = []
    WaitLimit(subscribe).listen(b"a", lambda: woken.append(1))()
    assert (heard, woken) == ([b"a", b"over"], [1])
    WaitLimit().listen(b"a", lambda: woken.append(2))()
    assert woken == [1]


@pytest.mark.parametrize("driver", ["blocking", "async"])
def test_a_waiter_who_is_woken_goes_on_at_once(driver: str) -> None:
    """From another thread, a moment later; whoever is not woken waits for as long as it was to."""
    subscribed: list[bytes] = []

    def subscribe(id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        subscribed.append(id)
        if id == b"ends":
            threading.Timer(0.05, wake).start()
        return lambda: subscribed.remove(id)

    def flow(id: bytes, seconds: float) -> Flow[float | None]:
        return (yield from ask(Wait(id, seconds)))

    engine: Any = SimpleNamespace(wait_limit=WaitLimit(subscribe))
    nobody: Any = None

    def wait(id: bytes, seconds: float) -> float | None:
        if driver == "blocking":
            return drive_sync(flow(id, seconds), engine, nobody)
        return asyncio.run(drive_async(flow(id, seconds), engine, nobody))

    began = time.monotonic()
    went_by = wait(b"ends", 600.0)
    assert went_by is not None
    assert 0.04 < went_by <= time.monotonic() - began < 300.0
    assert (wait(b"goes on", 0.05) or 0) >= 0.04
    assert subscribed == []
    assert not engine.wait_limit._waiting
