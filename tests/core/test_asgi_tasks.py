"""What the ASGI adapter leaves to tasks, and what becomes of them."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from retrysafe._core.model import Claim, Reservation
from retrysafe.asgi import Middleware
from retrysafe.stores.memory import AsyncMemoryStore, MemoryStore
from tests.core.asgi_calls import CREATED, Client, Message, a_guard, counting, guards
from tests.core.garbage import garbage_of_ours, sweep


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    while guards:
        guards.pop().close()


@pytest.mark.parametrize("keys", [[b"one", b"two", b"three"], [b"same", b"same", b"same"]])
def test_a_request_leaves_no_garbage(keys: list[bytes]) -> None:
    """What it was made of goes when it is over, without waiting for a collector that stops everybody."""
    app = Middleware(counting()[0], a_guard())

    async def scene() -> list[object]:
        await Client(app, key=b"to warm up")()
        older = sweep()
        gc.disable()
        try:
            for key in keys:
                await Client(app, key=key)()
            return garbage_of_ours(older)
        finally:
            gc.enable()

    assert asyncio.run(scene()) == []
    app.guard.close()


def test_a_handler_that_never_began_leaves_its_key_free() -> None:
    """An event loop that is shut down cancels tasks before their first step: nothing has happened then."""
    app, runs = counting()

    class Shutting(AsyncMemoryStore):
        async def reserve(self, claim: Claim) -> Reservation:
            loop, spared = asyncio.get_running_loop(), asyncio.all_tasks()

            def cancel_the_handler() -> None:
                for task in asyncio.all_tasks() - spared:
                    task.cancel()

            loop.call_soon(cancel_the_handler)
            return await super().reserve(claim)

    async def run() -> tuple[bool, int]:
        store = MemoryStore()
        store.aio = Shutting(store)
        guarded = Middleware(app, a_guard(store))
        cut = False
        try:
            await Client(guarded)()
        except asyncio.CancelledError:
            cut = True
        assert not guarded.guard.runtime.running
        guarded.guard.runtime.aio = AsyncMemoryStore(store)
        retry = await Client(guarded)()
        while cut and retry.status == 409:  # until the keeper has let go of it
            await asyncio.sleep(0.01)
            retry = await Client(guarded)()
        guarded.guard.close()
        return cut, retry.status

    cut, status = asyncio.run(run())
    assert status == 201
    assert len(runs) == 1
    assert cut == (sys.version_info < (3, 12)), "from 3.12 on a handler begins at once"


@pytest.mark.parametrize(
    "error", [ValueError("the mail"), asyncio.CancelledError()], ids=["error", "cancelled"]
)
@pytest.mark.parametrize("pause", [None, 0.0, 0.02])
def test_what_fails_after_the_answer_does_not_change_it(pause: float | None, error: BaseException) -> None:
    """`background="after"`: at once or later, the answer stands and is what a retry gets."""

    async def app(scope: Message, receive: Any, send: Any) -> None:
        for message in CREATED:
            await send(message)
        if pause is not None:
            await asyncio.sleep(pause)
        raise error

    async def run() -> list[tuple[int, bytes, bool]]:
        guarded = Middleware(app, a_guard(background="after"))
        answers = [await Client(guarded)() for _ in range(2)]
        assert not guarded.guard.runtime.unfinished()
        return [(answer.status, answer.body, answer.replayed) for answer in answers]

    assert asyncio.run(run()) == [(201, b"made", False), (201, b"made", True)]


@pytest.mark.parametrize("header", [(b"x-a", b"1\r\nset-cookie: evil=1"), (b"x a", b"1"), (b"x-b", 5)])
def test_a_head_that_no_server_could_send_is_a_failure(header: tuple[bytes, Any]) -> None:
    """It is not stored as the success that its first client never got."""
    app, runs = counting([{"type": "http.response.start", "status": 201, "headers": [header]}, CREATED[1]])

    async def run() -> list[int]:
        guarded = Middleware(app, a_guard())
        client = Client(guarded)
        with pytest.raises(ValueError, match="a character that no header may have"):
            await client()
        return [client.status, (await Client(guarded)()).status]

    assert asyncio.run(run()) == [500, 500]
    assert len(runs) == 1
