"""`check=`, which asks whether a run exists, keeps nothing else waiting."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from retrysafe import Guard
from retrysafe.callbacks import Receipts, SubjectUnknown, receipts
from retrysafe.fastapi import protect

Event = dict[str, str]


def is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Asked:
    """A check, and where it was called."""

    def __init__(self) -> None:
        self.on_a_loop: list[bool] = []

    def plain(self, event: Event) -> bool:
        self.on_a_loop.append(is_on_a_loop())
        return event["run_id"] != "unknown"

    async def awaited(self, event: Event) -> bool:
        return self.plain(event)

    def returns_an_awaitable(self, event: Event) -> object:
        return self.awaited(event)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def receipts_with(check: Callable[[Event], object]) -> Receipts[Event]:
    return receipts(Guard("memory://", profile="job-callbacks"), source="jobs", check=check)


@pytest.mark.parametrize(
    ("name", "on_a_loop"), [("plain", False), ("awaited", True), ("returns_an_awaitable", True)]
)
def test_a_plain_check_may_block(asked: Asked, name: str, on_a_loop: bool) -> None:
    """It is called in a thread, where the framework is asynchronous; a coroutine function on the loop."""
    finished = receipts_with(getattr(asked, name))
    app = FastAPI()
    protect(app, finished.guard)
    handled: list[str] = []

    @app.post("/callbacks")
    @finished.fastapi
    def handle(event: Event) -> None:
        handled.append(event["run_id"])

    with TestClient(app) as client:
        for run, status in (("r-1", 200), ("unknown", 404)):
            event = {"run_id": run, "callback_id": run, "status": "done"}
            assert client.post("/callbacks", json=event).status_code == status
    assert handled == ["r-1"]
    assert asked.on_a_loop == [on_a_loop, on_a_loop]


async def both_at_once(finished: Receipts[Event], asked_twice: threading.Barrier) -> None:
    async def handle(id: str) -> None:
        async with finished.handling({"run_id": id, "callback_id": id, "status": "done"}):
            assert not asked_twice.broken

    await asyncio.gather(handle("r-1"), handle("r-2"))


def test_two_checks_at_the_same_time() -> None:
    """The second one is asked before the first has returned."""
    asked_twice = threading.Barrier(2, timeout=30)
    finished = receipts_with(lambda _: asked_twice.wait() >= 0)
    asyncio.run(both_at_once(finished, asked_twice))


def test_an_unknown_run_in_a_block(asked: Asked) -> None:
    """What the thread says is what counts."""
    finished = receipts_with(asked.plain)

    async def handle() -> None:
        async with finished.handling({"run_id": "unknown", "callback_id": "1", "status": "done"}):
            raise AssertionError("it is not handled")

    with pytest.raises(SubjectUnknown):
        asyncio.run(handle())
    assert asked.on_a_loop == [False]
    assert finished.find("1") is None
