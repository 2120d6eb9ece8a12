"""Transactions end in threads of their own, whatever the event loop's threads are busy with."""

import asyncio
import os
import threading
import time
from contextvars import ContextVar

import pytest

from retrysafe._runtime.threads import in_own_thread

_mark: ContextVar[str] = ContextVar("mark", default="")


def test_no_handler_stands_in_the_way() -> None:
    """All threads of the loop wait for a commit, which is not among those that wait."""

    async def commit() -> list[bool]:
        committed = threading.Event()
        handlers = [asyncio.ensure_future(asyncio.to_thread(committed.wait, 20)) for _ in range(64)]
        await asyncio.sleep(0)
        await asyncio.wait_for(in_own_thread(committed.set), 10)
        return await asyncio.gather(*handlers)

    assert all(asyncio.run(commit()))


def test_it_is_as_if_called_here() -> None:
    """With the context, the arguments, the result and the error that it would have had."""

    def work(one: int, *, two: int) -> tuple[int, int, str]:
        return one, two, _mark.get()

    async def call() -> tuple[int, int, str]:
        _mark.set("ours")
        return await in_own_thread(work, 1, two=2)

    async def fail() -> None:
        await in_own_thread(int, "one")

    assert asyncio.run(call()) == (1, 2, "ours")
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(fail())


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_process_has_threads_of_its_own() -> None:
    """After a fork none of the parent's threads is there, and nobody waits for one."""

    async def own_pid() -> int:
        return await in_own_thread(os.getpid)

    assert asyncio.run(own_pid()) == os.getpid()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(asyncio.run(own_pid()) != os.getpid())
        finally:
            os._exit(status)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < deadline, "the child waits for a thread that is not there"
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
