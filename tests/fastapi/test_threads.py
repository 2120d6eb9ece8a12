"""Plain functions run in threads, of which there are few: a claim, a wait and a replay take none of them."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from anyio.to_thread import current_default_thread_limiter

from tests.fastapi.shop import KEY, Shop, User
from tests.fastapi.test_cut_off import Raw, until

THREADS = 3


async def known() -> User:
    """A coroutine function, as those that ask a database should be: it takes no thread itself."""
    return User(id="alice")


class Busy(Shop):
    """An application whose threads are all busy with one plain endpoint, until it is told to go on."""

    def __init__(self) -> None:
        from typing import Annotated

        from fastapi import Depends

        super().__init__()
        self.go_on = threading.Event()

        def slow(user: Annotated[User, Depends(known)]) -> int:
            self.runs.append(1)
            assert self.go_on.wait(20)
            return len(self.runs)

        async def quick(user: Annotated[User, Depends(known)]) -> str:
            return "quick"

        self.post("/slow", slow, in_flight="wait", wait_for=60)
        self.post("/quick", quick)


async def within(seconds: float, work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(seconds):
        return await work


@pytest.mark.parametrize("more", [0, 2])
def test_all_threads_are_busy(more: int) -> None:
    """Duplicates wait for their first one, others run and replay, and what waits for a thread gets it."""

    async def scenario() -> None:
        current_default_thread_limiter().total_tokens = THREADS
        shop = Busy()
        keys = [f"{KEY}{number}" for number in range(THREADS + more)]
        firsts = [asyncio.ensure_future(Raw(shop, "/slow", key=key).serve()) for key in keys]
        await until(lambda: len(shop.runs) == THREADS)
        requests = [Raw(shop, "/slow", key=key) for key in keys * 3]
        duplicates = [asyncio.ensure_future(request.serve()) for request in requests]
        for _ in range(2):
            assert await within(10, Raw(shop, "/quick").serve()) == 200
        assert not any(task.done() for task in duplicates)
        shop.go_on.set()
        assert await within(20, asyncio.gather(*firsts, *duplicates)) == [200] * len(keys) * 4
        assert len(shop.runs) == len(keys)
        headers = [dict(request.sent[0]["headers"]) for request in requests]
        assert all(found[b"idempotent-replayed"] == b"true" for found in headers)

    asyncio.run(scenario())
