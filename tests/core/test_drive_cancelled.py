"""The awaiting driver, cancelled: what was begun is brought to its end, and nothing is lost."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Final, Reservation
from retrysafe._core.steps import Outcome, Raised, Responded, Result
from retrysafe._runtime.drive_async import drive_async, uncancelled
from retrysafe._runtime.runtime import Runtime
from retrysafe.errors import NotDone
from retrysafe.events import Observers
from retrysafe.stores.contract import AsyncStore
from retrysafe.stores.memory import AsyncMemoryStore, MemoryStore
from tests.core.driving import CREATED, AsyncPerformer, Flaky, Performer, a_flow, created
from tests.core.values import a_claim, eventually, no_leaked_threads


@pytest.fixture
def store() -> Flaky:
    return Flaky()


@pytest.fixture
def runtime(store: Flaky) -> Iterator[Runtime]:
    runtime = Runtime(store, Observers(None), b"secret")
    with no_leaked_threads():
        yield runtime
        runtime.close()


# --- Cancellation


class Gated(AsyncMemoryStore):
    """A store for coroutines that stops at one of its methods until it is let go."""

    def __init__(self, store: MemoryStore, at: str) -> None:
        super().__init__(store)
        self._at = at
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.calls = 0

    async def _gate(self, name: str) -> None:
        if name == self._at:
            self.calls += 1
            self.reached.set()
            await self.open.wait()

    async def reserve(self, claim: Claim) -> Reservation:
        result = await super().reserve(claim)
        await self._gate("reserve")
        return result

    async def finish(self, claim: Claim, final: Final) -> bool:
        await self._gate("finish")
        return await super().finish(claim, final)

    async def release(self, claim: Claim) -> None:
        await self._gate("release")
        await super().release(claim)


def cancelled_at(at: str, runtime: Runtime, claim: Claim, outcome: Outcome, *, times: int) -> None:
    """Cancel a driver at one of the store's methods, so many times; then let the store go on.

    However that ends, the driver must end as cancelled.
    """

    async def scene() -> None:
        gated = Gated(runtime.store, at)  # type: ignore[arg-type]  # a memory store
        aio: AsyncStore = gated
        runtime.aio = aio
        task = asyncio.ensure_future(
            drive_async(a_flow(claim), runtime, AsyncPerformer(Performer(lambda _: outcome)))
        )
        await gated.reached.wait()
        for _ in range(times):
            gated.reached.clear()
            task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
        gated.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_cancelled_finish_is_made_to_its_end(runtime: Runtime, times: int) -> None:
    """However often it is cancelled: the outcome is stored, and then the cancellation goes on (F28, F29)."""
    claim = a_claim()
    cancelled_at("finish", runtime, claim, Responded(CREATED), times=times)
    found = runtime.store.look(claim.id)
    assert found is not None
    assert found.record.state == "completed"


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_cancelled_release_is_made_to_its_end(runtime: Runtime, times: int) -> None:
    """Nothing happened, and the key is free."""
    claim = a_claim()
    cancelled_at("release", runtime, claim, Raised(NotDone()), times=times)
    assert runtime.store.look(claim.id) is None


def test_a_cancelled_bid_is_forgotten(runtime: Runtime) -> None:
    """It had been applied; the handler has not run; the keeper releases it."""
    claim = a_claim()
    cancelled_at("reserve", runtime, claim, Responded(CREATED), times=1)
    eventually(lambda: runtime.store.look(claim.id) is None)


def test_a_cancelled_handler_is_left_to_lapse(runtime: Runtime) -> None:
    """Nobody knows how far it came."""
    claim = a_claim()

    async def scene() -> None:
        began = asyncio.Event()

        class Endless(AsyncPerformer):
            async def run(self, attempt: Attempt) -> Outcome:
                began.set()
                await asyncio.Event().wait()
                raise AssertionError

        task = asyncio.ensure_future(drive_async(a_flow(claim), runtime, Endless(Performer(created))))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    found = runtime.store.look(claim.id)
    assert found is not None
    assert found.record.state == "in_progress"


# --- Work that nobody waits for any more


def test_uncancelled_work_goes_on(runtime: Runtime) -> None:
    """Cancelling the caller ends the waiting, and not the work; the runtime holds on to its task."""

    async def scene() -> str:
        gate, done = asyncio.Event(), list[str]()

        async def work() -> None:
            await gate.wait()
            done.append("done")

        caller = asyncio.ensure_future(uncancelled(work(), runtime))
        await asyncio.sleep(0)
        assert len(runtime._tasks) == 1
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert done == []
        gate.set()
        await asyncio.gather(*runtime._tasks)
        return done[0]

    assert asyncio.run(scene()) == "done"


def test_uncancelled_work_answers(runtime: Runtime) -> None:
    """With its result or its exception, at once or later."""

    async def work(error: Exception | None, sleeps: int) -> str:
        for _ in range(sleeps):
            await asyncio.sleep(0)
        if error is not None:
            raise error
        return "result"

    for sleeps in (0, 3):
        assert asyncio.run(uncancelled(work(None, sleeps), runtime)) == "result"
        with pytest.raises(RuntimeError, match="broken"):
            asyncio.run(uncancelled(work(RuntimeError("broken"), sleeps), runtime))


@pytest.mark.parametrize("how", ["raises", "answers with an error"])
def test_errors_that_nobody_hears_are_logged(
    runtime: Runtime, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The application's log is all that is left of them."""

    async def scene() -> None:
        gate = asyncio.Event()

        async def work() -> Result:
            await gate.wait()
            if how == "raises":
                raise RuntimeError("unheard")
            return Result("failed", CREATED, error=RuntimeError("unheard"))

        caller = asyncio.ensure_future(uncancelled(work(), runtime))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        gate.set()
        await asyncio.wait(runtime._tasks)
        await asyncio.sleep(0)

    asyncio.run(scene())
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "unheard" in caplog.text
