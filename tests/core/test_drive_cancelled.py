"""The awaiting driver, cancelled: what was begun is brought to its end, and nothing is lost."""

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Final, Reservation
from retrysafe._core.steps import Outcome, Raised, Responded, Run
from retrysafe._runtime.drive_async import call_async, drive_async
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
            async def run(self, step: Run) -> Outcome:
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


# --- Handlers whose caller was cancelled


class Slow(AsyncPerformer):
    """Its handler waits for a gate."""

    def __init__(self, run: Callable[[Attempt], Outcome]) -> None:
        super().__init__(Performer(run))
        self.began, self.gate = asyncio.Event(), asyncio.Event()
        self.deserted = False

    async def run(self, step: Run) -> Outcome:
        self.began.set()
        await self.gate.wait()
        return await super().run(step)

    def desert(self) -> None:
        self.deserted = True


def test_a_cancelled_caller_does_not_end_its_handler(runtime: Runtime) -> None:
    """Only the waiting for it; the runtime holds its task, and its outcome is stored."""
    claim = a_claim()

    async def scene() -> None:
        call = Slow(created)
        caller = asyncio.ensure_future(call_async(a_flow(claim), runtime, call))
        await call.began.wait()
        assert (len(runtime.tasks), runtime.unfinished()) == (1, 1)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert call.deserted
        assert runtime.unfinished() == 1
        call.gate.set()
        await asyncio.gather(*runtime.tasks)
        assert runtime.unfinished() == 0

    asyncio.run(scene())
    found = runtime.store.look(claim.id)
    assert found is not None
    assert found.record.state == "completed"


def test_a_handler_that_never_began_is_forgotten(runtime: Runtime) -> None:
    """An event loop that is shut down cancels tasks before their first step: the key is free again."""
    claim = a_claim()

    async def scene() -> None:
        call = Slow(created)
        caller = asyncio.ensure_future(call_async(a_flow(claim), runtime, call))
        while not runtime.tasks:  # noqa: ASYNC110 - it takes a few turns of the loop
            await asyncio.sleep(0)
        if call.began.is_set():
            pytest.skip("on this Python a task begins at once")
        for task in tuple(runtime.tasks):
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not call.began.is_set()
        assert runtime.unfinished() == 0

    asyncio.run(scene())
    eventually(lambda: runtime.store.look(claim.id) is None)


def test_a_call_gives_its_result(runtime: Runtime) -> None:
    """Or what went wrong on the way, and in either case nothing is left of it."""

    def broken(_: Attempt) -> Outcome:
        raise KeyboardInterrupt

    result = asyncio.run(call_async(a_flow(), runtime, AsyncPerformer(Performer(created))))
    assert result.verdict == "completed"
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(call_async(a_flow(a_claim("other")), runtime, AsyncPerformer(Performer(broken))))
    assert runtime.unfinished() == 0


def test_errors_without_a_client_are_logged(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """The application's log is all that is left of them."""

    async def scene() -> None:
        call = Slow(lambda _: Raised(RuntimeError("unnoticed")))
        caller = asyncio.ensure_future(call_async(a_flow(), runtime, call))
        await call.began.wait()
        caller.cancel()
        await asyncio.wait([caller])
        call.gate.set()
        await asyncio.wait(runtime.tasks)
        await asyncio.sleep(0)

    asyncio.run(scene())
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "unnoticed" in caplog.text
