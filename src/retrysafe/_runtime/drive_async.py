"""The driver for coroutines.  It and `drive_sync` are all that differs between the two kinds of code.

A driver performs each step and sends the flow what came of it; an exception is thrown into the flow, which
knows what it means at that point.  A door performs its own steps: see `AsyncPerformer`.

A call lives in one of two ways.  `call_async` runs its handler.  Where a handler claims its key itself, after
authentication and validation, it is running already: `claim_async` drives the flow up to it, and
`conclude_async` goes on with what came of it.

Cancellation arrives at an await.  A write that was cancelled is simply made again, to its end this time and
however often it is cancelled: the token makes a repeated write the same write.  Any other step passes the
cancellation on to the flow.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeVar, cast

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Found, Reservation, Reserved, Scope
from retrysafe._core.steps import (
    CallBack,
    Checkpoint,
    Commit,
    Finish,
    Flow,
    Forget,
    Gone,
    Identify,
    Look,
    LookWithin,
    Outcome,
    Pause,
    Persist,
    Raised,
    ReadBody,
    Reauthorise,
    Release,
    Reserve,
    Result,
    RollBack,
    Run,
    Spoil,
    Step,
    StoreWithin,
    TakeOver,
    TooLarge,
    Wait,
)
from retrysafe._runtime.runtime import LATER, GuardedCall, Later, Runtime
from retrysafe._runtime.threads import in_own_thread
from retrysafe._runtime.transactions import (
    GRACE,
    MUST_BLOCK,
    CallTransaction,
    awaits,
    begins_with_calls,
    blocks,
    commit_in_time,
    is_of,
    log_not_called_back,
    roll_back_in_time,
)
from retrysafe.errors import CommitRefused, ConfigurationError, NotDone, StoreError, StoreUnavailable
from retrysafe.events import log

T = TypeVar("T")

# Since Python 3.12 a task may begin at once, and a handler that never waits costs no turn of the loop.  On no
# version is a task factory of the application's asked: this task is ours.
_start: Callable[[asyncio.AbstractEventLoop, Coroutine[Any, Any, Any]], asyncio.Task[Any]] = getattr(
    asyncio, "eager_task_factory", lambda loop, work: asyncio.Task(work, loop=loop)
)


class AsyncPerformer(GuardedCall, Protocol):
    """What a door does for a flow, on an event loop."""

    def identify(self) -> Awaitable[Scope | None] | Scope | None: ...
    def read_body(self) -> Awaitable[bytes | TooLarge | Gone]: ...
    def reauthorise(self) -> Awaitable[bool] | bool: ...
    def run(self, step: Run) -> Awaitable[Outcome] | Later: ...
    def desert(self) -> None:
        """The caller was cancelled, and is not sent what the handler still responds."""
        ...


async def call_async(flow: Flow[Result], runtime: Runtime, call: AsyncPerformer) -> Result:
    """The whole life of a guarded call.

    From its handler on, the flow runs in a task of its own: cancelling the caller ends the waiting for it,
    and not the handler.
    """
    try:
        reached = await _drive(flow, runtime, call, partial(next, flow), Run)
    except BaseException:
        runtime.end(call, None)
        raise
    if type(reached) is Result:
        runtime.end(call, reached)
        return reached
    rest = _FromRunOn(flow, runtime, call, reached)
    loop = asyncio.get_running_loop()
    task: asyncio.Task[Result] = _start(loop, rest.live())
    try:
        if not task.done():
            await rest.end_of(task, loop)
        return task.result()
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        call.desert()
        raise


async def call_within_async(flow: Flow[Result], runtime: Runtime, call: AsyncPerformer) -> Result:
    """The whole life of a call inside another one, in the task of that one: they share a transaction, and so
    must not run at the same time."""
    return await _end(flow, runtime, call, partial(next, flow))


async def claim_async(flow: Flow[Result], runtime: Runtime, call: AsyncPerformer) -> Result | Run:
    """The first half of a guarded call: to its result, or to a handler that runs from now on.

    The performer's `run` says `LATER`.  Whatever then happens, `conclude_async` or `break_off_async` follows.
    """
    try:
        reached: Result | Run = await _drive(flow, runtime, call, partial(next, flow), None)
    except BaseException:
        runtime.end(call, None)
        raise
    if type(reached) is Result:
        runtime.end(call, reached)
    return reached


async def conclude_async(
    flow: Flow[Result], runtime: Runtime, call: AsyncPerformer, outcome: Outcome
) -> Result:
    """The second half: what came of the handler, to the call's result."""
    return await _end(flow, runtime, call, partial(flow.send, outcome))


async def break_off_async(
    flow: Flow[Result], runtime: Runtime, call: AsyncPerformer, error: BaseException
) -> Result:
    """The second half of a call whose handler was cancelled, or ended with its process."""
    return await _end(flow, runtime, call, partial(flow.throw, error))


async def _end(
    flow: Flow[Result], runtime: Runtime, call: AsyncPerformer, begin: Callable[[], Step]
) -> Result:
    result: Result | None = None
    try:
        result = ended = cast("Result", await _drive(flow, runtime, call, begin, None))
        return ended
    finally:
        runtime.end(call, result)


class _FromRunOn:
    """What is left of a call when its handler is about to run, in a task that its caller does not cancel."""

    begun = False
    done: asyncio.Future[None] | None = None
    task: asyncio.Task[Result] | None = None

    def __init__(self, flow: Flow[Result], runtime: Runtime, call: AsyncPerformer, run: Run) -> None:
        self.flow = flow
        self.runtime = runtime
        self.call = call
        self.run = run

    def end_of(self, task: asyncio.Task[Result], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """What its caller waits for, which is not the task: a waiting that is cancelled would cancel it."""
        self.task = task
        self.runtime.tasks.add(task)
        if not self.begun:
            task.add_done_callback(self._ended_before_it_began)
        self.done = done = loop.create_future()
        return done

    async def live(self) -> Result:
        self.begun = True
        if self.task is not None:
            self.task.remove_done_callback(self._ended_before_it_began)
        result: Result | None = None
        try:
            result = ended = cast(
                "Result", await _drive(self.flow, self.runtime, self.call, lambda: self.run, None)
            )
            return ended
        finally:
            self.runtime.end(self.call, result)
            self._end()

    def _ended_before_it_began(self, _: asyncio.Task[Result]) -> None:
        """An event loop that is shut down cancels tasks before their first step."""
        self.runtime.abandon(self.call)
        self._end()

    def _end(self) -> None:
        if self.task is not None:
            self.runtime.tasks.discard(self.task)
        done = self.done
        if done is not None and not done.done() and not done.get_loop().is_closed():
            done.set_result(None)


async def drive_async(flow: Flow[T], runtime: Runtime, performer: AsyncPerformer) -> T:
    """Perform a flow that is part of a call."""
    result: T = await _drive(flow, runtime, performer, partial(next, flow), None)
    return result


async def _drive(
    flow: Flow[Any],
    runtime: Runtime,
    performer: AsyncPerformer,
    begin: Callable[[], Step],
    until: type[Step] | None,
) -> Any:  # noqa: ANN401 - the flow's result, or the step that it was driven to
    cancelled: asyncio.CancelledError | None = None
    try:
        step = begin()
        while (kind := type(step)) is not until:
            try:
                try:
                    found = _PERFORM_ASYNC[kind](step, runtime, performer)
                    if hasattr(found, "__await__"):
                        found = await found
                except asyncio.CancelledError as error:
                    if not isinstance(step, Finish | Release | Checkpoint | Commit | RollBack):
                        raise
                    cancelled = error
                    found = await _to_its_end(partial(_PERFORM_ASYNC[kind], step, runtime, performer))
            except BaseException as error:  # noqa: BLE001 - the flow knows what it means
                step = flow.throw(error)
            else:
                if found is LATER:
                    break
                step = flow.send(found)
    except StopIteration as end:
        if cancelled is not None:
            raise cancelled from None
        return end.value
    return step


def _log_failure(task: asyncio.Task[object]) -> None:
    """The application's log is all that is left of an error whose request was cancelled."""
    error = None if task.cancelled() else task.exception()
    if error is None and not task.cancelled() and isinstance(result := task.result(), Result):
        error = result.error
    if error is not None:
        log.error("a request whose client is gone failed", exc_info=error)


async def _to_its_end(make: Callable[[], Awaitable[T]]) -> T:
    while True:
        task = asyncio.ensure_future(make())
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(task)
        if not task.cancelled():
            return task.result()
        # Not we but the write itself was cancelled, as at the end of an event loop: it is still to be made.


def _reserve(step: Reserve, runtime: Runtime, performer: AsyncPerformer) -> Awaitable[Reservation]:
    runtime.begin(performer, step.claim)
    return runtime.aio.reserve(step.claim)


def _take_over(step: TakeOver, runtime: Runtime, performer: AsyncPerformer) -> Awaitable[Reservation]:
    runtime.begin(performer, step.claim)  # a worker's turn begins with it
    return runtime.aio.take_over(step.claim, step.previous, step.state)


def _look(step: Look, runtime: Runtime, performer: AsyncPerformer) -> Awaitable[Found | None]:
    runtime.begin(performer, step.claim)
    return runtime.aio.look(step.claim.id)


def _run_async(step: Run, runtime: Runtime, performer: AsyncPerformer) -> Awaitable[Outcome | Later] | Later:
    attempt = step.attempt
    if attempt.leased:
        runtime.leases.hold(attempt)
        if attempt.claim.mode == "tx":
            return _run_joinable(step, runtime, performer)
    elif isinstance(attempt.transaction, CallTransaction):
        attempt.transaction.begin_part(attempt.claim)
    return performer.run(step)


async def _run_joinable(step: Run, runtime: Runtime, performer: AsyncPerformer) -> Outcome | Later:
    attempt = step.attempt
    attempt.transaction = CallTransaction(runtime.store, awaited=True)
    if begins_with_calls(runtime.store):
        return Raised(ConfigurationError(MUST_BLOCK))
    if runtime.connection_limit is not None and not await runtime.connection_limit.enter(attempt.claim.token):
        return Raised(NotDone("too many requests are waiting for a database connection"))
    running = performer.run(step)
    return running if isinstance(running, Later) else await running


async def _commit_async(step: Commit, runtime: Runtime, performer: AsyncPerformer) -> bool:
    junction = _transaction_of(step.attempt)
    patience = step.claim.lease + GRACE
    kept = await _only_once(junction, Commit, lambda: _committing(junction, step, runtime), runtime, patience)
    if kept:
        junction.committed()
    return kept


def _committing(junction: CallTransaction, step: Commit, runtime: Runtime) -> Awaitable[bool]:
    closed = junction.close()
    if junction.refusal is not None:
        return _refusing(junction, junction.refusal)
    match closed:
        case None:
            if not junction.joined:
                runtime.nothing_joined(step.claim, step.final)
            return runtime.aio.finish(step.claim, step.final)
        case transaction if awaits(transaction):
            return transaction.commit_async(step.claim, step.final)
        case transaction:
            assert blocks(transaction)
            return in_own_thread(commit_in_time, transaction, step.claim, step.final)


async def _refusing(junction: CallTransaction, refusal: CommitRefused) -> bool:
    await _rolling_back(junction, discard=False)
    raise refusal


async def _roll_back_async(step: RollBack, runtime: Runtime, performer: AsyncPerformer) -> None:
    junction = _transaction_of(step.attempt)
    ending = junction.tasks.get(Commit)
    if ending is not None and not ending.done():
        return  # its connection must not be touched; what was not committed, it rolls back itself
    try:
        await _only_once(
            junction, RollBack, lambda: _rolling_back(junction, discard=step.cut_off), runtime, GRACE
        )
    except StoreUnavailable as trouble:
        # The server undoes what it was not told to commit, as soon as it notices that the connection is gone.
        log.warning("a guarded call was not rolled back but left alone: %s", trouble)


def _rolling_back(junction: CallTransaction, *, discard: bool) -> Awaitable[None]:
    match junction.close():
        case None:
            return asyncio.sleep(0)
        case transaction if awaits(transaction):
            return transaction.roll_back_async(discard=discard)
        case transaction:
            assert blocks(transaction)
            return in_own_thread(roll_back_in_time, transaction, discard=discard)


async def _look_within_async(step: LookWithin, runtime: Runtime, performer: AsyncPerformer) -> Found | None:
    claim = step.attempt.claim
    runtime.begin(performer, claim)
    match _transaction_of(step.attempt).begun:
        case None:
            return await runtime.aio.look(claim.id)
        case transaction if awaits(transaction):
            return await transaction.look_async(claim.id)
        case transaction:
            assert blocks(transaction)
            return await in_own_thread(transaction.look, claim.id)


async def _store_within_async(step: StoreWithin, runtime: Runtime, performer: AsyncPerformer) -> bool:
    junction = _transaction_of(step.attempt)
    junction.check_open()
    stored = await _storing_within(step, runtime)
    if stored:
        junction.end_part(step.attempt.claim)
    return stored


async def _storing_within(step: StoreWithin, runtime: Runtime) -> bool:
    claim, final, previous = step.attempt.claim, step.final, step.previous
    match _transaction_of(step.attempt).begun:
        case None:
            # It wrote nothing that its record would have to be committed with.
            runtime.nothing_joined(claim, final)
            if previous is None:
                reservation = await runtime.aio.reserve(claim)
            else:
                reservation = await runtime.aio.take_over(claim, *previous)
            return isinstance(reservation, Reserved) and await runtime.aio.finish(claim, final)
        case transaction if awaits(transaction):
            return await transaction.store_within_async(claim, final, previous)
        case transaction:
            assert blocks(transaction)
            return await in_own_thread(transaction.store_within, claim, final, previous)


def _spoil(step: Spoil, runtime: Runtime, performer: AsyncPerformer) -> None:
    transaction = _transaction_of(step.attempt)
    transaction.spoil(step.reason, passing=step.passing)
    transaction.end_part(step.attempt.claim)


def _transaction_of(attempt: Attempt) -> CallTransaction:
    assert isinstance(attempt.transaction, CallTransaction)
    return attempt.transaction


async def _only_once(
    junction: CallTransaction,
    kind: type[Step],
    make: Callable[[], Awaitable[T]],
    runtime: Runtime,
    patience: float,
) -> T:
    """Await something that cannot be made a second time; a cancelled caller asks again for its result.

    The connection is the application's, and may have no deadline of its own: where the other end is silent,
    it is left alone with it.  The record is fenced, so what comes of it later does no harm.
    """
    task: asyncio.Future[T] | None = junction.tasks.get(kind)
    if task is None:
        task = junction.tasks[kind] = asyncio.ensure_future(make())
    await asyncio.wait({task}, timeout=patience)
    if not task.done():
        runtime.remember(task, _let_be)
        raise StoreUnavailable(
            f"the database did not respond within {patience:g} s: it is not known how the transaction ended"
        )
    if task.cancelled():  # by the end of the event loop
        raise StoreUnavailable("the end of a transaction was cut off")
    return task.result()


def _let_be(task: asyncio.Future[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    log.warning("a transaction that was given up has ended: %s", error or "as it was to")


async def _call_back_async(step: CallBack, runtime: Runtime, performer: AsyncPerformer) -> None:
    for part in step.attempt.parts:
        try:
            found = await runtime.aio.look(part.claim.id)
        except StoreError as trouble:
            log_not_called_back(part, trouble)
        else:
            if is_of(found, part):
                await _call_back_async(CallBack(part), runtime, performer)
    for callback in step.attempt.callbacks:
        try:
            # In a thread, because it may block.
            if iscoroutinefunction(callback):
                await callback()
            else:
                await asyncio.to_thread(callback)
        except Exception as error:  # noqa: BLE001 - whatever it is, the outcome stands
            log.error("a function that was left to be called after the commit failed", exc_info=error)


async def _persist_async(step: Persist, runtime: Runtime, performer: AsyncPerformer) -> bool:
    lasts = runtime.leases.lasts(step.claim, step.pause)
    if lasts:
        await asyncio.sleep(step.pause)
    return lasts


async def _wait_async(step: Wait, runtime: Runtime, performer: AsyncPerformer) -> float | None:
    if not runtime.wait_limit.enter(step.id):
        return None
    began = time.monotonic()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    unsubscribe = runtime.wait_limit.listen(step.id, lambda: _call_in(loop, ended.set))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(step.seconds):
                await ended.wait()
    finally:
        unsubscribe()
        runtime.wait_limit.leave(step.id)
    return time.monotonic() - began


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """From another thread, which may outlive the loop."""
    with contextlib.suppress(RuntimeError):  # the loop was closed, and no call waits there
        loop.call_soon_threadsafe(function)


# What comes of a step, or an awaitable of it.  One table and no way around it: fault traps hook in here.
_PERFORM_ASYNC: dict[type[Step], Callable[[Any, Runtime, AsyncPerformer], Any]] = {
    Identify: lambda _, runtime, performer: performer.identify(),
    ReadBody: lambda _, runtime, performer: performer.read_body(),
    Reauthorise: lambda _, runtime, performer: performer.reauthorise(),
    Reserve: _reserve,
    TakeOver: _take_over,
    Look: _look,
    Run: _run_async,
    Checkpoint: lambda step, runtime, performer: runtime.aio.checkpoint(step.claim, step.head),
    Finish: lambda step, runtime, performer: runtime.aio.finish(step.claim, step.final),
    Commit: _commit_async,
    RollBack: _roll_back_async,
    CallBack: _call_back_async,
    LookWithin: _look_within_async,
    StoreWithin: _store_within_async,
    Spoil: _spoil,
    Release: lambda step, runtime, performer: runtime.aio.release(step.claim),
    Forget: lambda step, runtime, performer: runtime.leases.forget(step.claim),
    Persist: _persist_async,
    Pause: lambda step, runtime, performer: asyncio.sleep(step.seconds),
    Wait: _wait_async,
}


def cancelled_from_inside(error: asyncio.CancelledError) -> Exception:
    """The failure of a handler that cancelled itself, which is one like any other.  Raises if we were."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    failure = RuntimeError("the handler was cancelled from inside")
    failure.__cause__ = error
    return failure
