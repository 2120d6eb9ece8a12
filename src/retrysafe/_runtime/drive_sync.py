"""The driver for blocking code: no event loop, and no import of one."""

# ruff: noqa: ARG001, ARG005 - every performer takes the same three, whichever it needs

import time
from collections.abc import Callable, Coroutine
from functools import partial
from threading import Event
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
from retrysafe._runtime.transactions import (
    CallTransaction,
    Transaction,
    begin_with_call,
    blocking,
    blocks,
    commit_in_time,
    is_of,
    log_not_called_back,
    roll_back_in_time,
)
from retrysafe.errors import NotDone, StoreError
from retrysafe.events import log

T = TypeVar("T")


class Performer(GuardedCall, Protocol):
    """What a door does for a flow, blocking."""

    def identify(self) -> Scope | None: ...
    def read_body(self) -> bytes | TooLarge | Gone: ...
    def reauthorise(self) -> bool: ...
    def run(self, step: Run) -> Outcome | Later: ...


def call_sync(flow: Flow[Result], runtime: Runtime, call: Performer) -> Result:
    """The whole life of a guarded call."""
    return _end(flow, runtime, call, partial(next, flow))


def claim_sync(flow: Flow[Result], runtime: Runtime, call: Performer) -> Result | Run:
    """The first half of a guarded call: to its result, or to a handler that runs from now on.

    The performer's `run` says `LATER`.  Whatever then happens, `conclude_sync` or `break_off_sync` follows.
    """
    try:
        reached: Result | Run = _drive(flow, runtime, call, partial(next, flow))
    except BaseException:
        runtime.end(call, None)
        raise
    if type(reached) is Result:
        runtime.end(call, reached)
    return reached


def conclude_sync(flow: Flow[Result], runtime: Runtime, call: Performer, outcome: Outcome) -> Result:
    """The second half: what came of the handler, to the call's result."""
    return _end(flow, runtime, call, partial(flow.send, outcome))


def break_off_sync(flow: Flow[Result], runtime: Runtime, call: Performer, error: BaseException) -> Result:
    """The second half of a call whose handler ended with its process or thread."""
    return _end(flow, runtime, call, partial(flow.throw, error))


def _end(flow: Flow[Result], runtime: Runtime, call: Performer, begin: Callable[[], Step]) -> Result:
    result: Result | None = None
    try:
        result = ended = cast("Result", _drive(flow, runtime, call, begin))
        return ended
    finally:
        runtime.end(call, result)


def drive_sync(flow: Flow[T], runtime: Runtime, performer: Performer) -> T:
    """Perform a flow that is part of a call."""
    result: T = _drive(flow, runtime, performer, partial(next, flow))
    return result


def _drive(flow: Flow[Any], runtime: Runtime, performer: Performer, begin: Callable[[], Step]) -> Any:  # noqa: ANN401 - the flow's result, or the step whose outcome comes later
    try:
        step = begin()
        while True:
            try:
                found = _PERFORM[type(step)](step, runtime, performer)
            except BaseException as error:  # noqa: BLE001 - the flow knows what it means
                step = flow.throw(error)
            else:
                if found is LATER:
                    return step
                step = flow.send(found)
    except StopIteration as end:
        return end.value


def _reserve(step: Reserve, runtime: Runtime, performer: Performer) -> Reservation:
    runtime.begin(performer, step.claim)
    return runtime.store.reserve(step.claim)


def _take_over(step: TakeOver, runtime: Runtime, performer: Performer) -> Reservation:
    runtime.begin(performer, step.claim)  # a worker's turn begins with it
    return runtime.store.take_over(step.claim, step.previous, step.state)


def _look(step: Look, runtime: Runtime, performer: Performer) -> Found | None:
    runtime.begin(performer, step.claim)
    return runtime.store.look(step.claim.id)


def _run(step: Run, runtime: Runtime, performer: Performer) -> Outcome | Later:
    attempt = step.attempt
    if attempt.leased:
        runtime.leases.hold(attempt)
        if attempt.claim.mode == "tx":
            attempt.transaction = transaction = CallTransaction(runtime.store, awaited=False)
            if not getattr(performer, "begins_transaction", False):
                try:
                    begin_with_call(transaction, attempt)
                except NotDone as error:
                    return Raised(error)
    elif isinstance(attempt.transaction, CallTransaction):
        attempt.transaction.begin_part(attempt.claim)
    return performer.run(step)


def _commit(step: Commit, runtime: Runtime, performer: Performer) -> bool:
    call_transaction = _transaction_of(step.attempt)
    transaction = _close(step.attempt)
    if call_transaction.refusal is not None:
        if transaction is not None:
            roll_back_in_time(transaction, discard=False)
        raise call_transaction.refusal
    if transaction is not None:
        stored = commit_in_time(transaction, step.claim, step.final)
    else:
        if not call_transaction.joined:
            runtime.nothing_joined(step.claim, step.final)
        stored = runtime.store.finish(step.claim, step.final)
    if stored:
        call_transaction.committed()
    return stored


def _roll_back(step: RollBack, runtime: Runtime, performer: Performer) -> None:
    transaction = _close(step.attempt)
    if transaction is not None:
        roll_back_in_time(transaction, discard=step.cut_off)


def _look_within(step: LookWithin, runtime: Runtime, performer: Performer) -> Found | None:
    claim = step.attempt.claim
    runtime.begin(performer, claim)
    transaction = blocking(_transaction_of(step.attempt))
    return runtime.store.look(claim.id) if transaction is None else transaction.look(claim.id)


def _store_within(step: StoreWithin, runtime: Runtime, performer: Performer) -> bool:
    call_transaction = _transaction_of(step.attempt)
    call_transaction.check_open()
    stored = _storing_within(step, runtime)
    if stored:
        call_transaction.end_part(step.attempt.claim)
    return stored


def _storing_within(step: StoreWithin, runtime: Runtime) -> bool:
    claim = step.attempt.claim
    transaction = blocking(_transaction_of(step.attempt))
    if transaction is not None:
        return transaction.store_within(claim, step.final, step.previous)
    # It wrote nothing that its record would have to be committed with.
    runtime.nothing_joined(claim, step.final)
    if step.previous is None:
        reservation = runtime.store.reserve(claim)
    else:
        reservation = runtime.store.take_over(claim, *step.previous)
    return isinstance(reservation, Reserved) and runtime.store.finish(claim, step.final)


def _spoil(step: Spoil, runtime: Runtime, performer: Performer) -> None:
    transaction = _transaction_of(step.attempt)
    transaction.spoil(step.reason, passing=step.passing)
    transaction.end_part(step.attempt.claim)


def _transaction_of(attempt: Attempt) -> CallTransaction:
    assert isinstance(attempt.transaction, CallTransaction)
    return attempt.transaction


def _close(attempt: Attempt) -> Transaction | None:
    transaction = _transaction_of(attempt).close()
    assert transaction is None or blocks(transaction), "refused when it wanted to join"
    return transaction


def _call_back(step: CallBack, runtime: Runtime, performer: Performer) -> None:
    for part in step.attempt.parts:
        try:
            found = runtime.store.look(part.claim.id)
        except StoreError as trouble:
            log_not_called_back(part, trouble)
        else:
            if is_of(found, part):
                _call_back(CallBack(part), runtime, performer)
    for callback in step.attempt.callbacks:
        try:
            if isinstance(answer := callback(), Coroutine):
                answer.close()  # it will never be awaited
                raise TypeError("on_commit was given a coroutine function, and here is no event loop")
        except Exception as error:  # noqa: BLE001 - whatever it is, the outcome stands
            log.error("a function that was left to be called after the commit failed", exc_info=error)


def _persist(step: Persist, runtime: Runtime, performer: Performer) -> bool:
    lasts = runtime.leases.lasts(step.claim, step.pause)
    if lasts:
        time.sleep(step.pause)
    return lasts


def _wait(step: Wait, runtime: Runtime, performer: Performer) -> float | None:
    if not runtime.wait_limit.enter(step.id, blocks=step.in_server_thread):
        return None
    began = time.monotonic()
    ended = Event()
    unsubscribe = runtime.wait_limit.listen(step.id, ended.set)
    try:
        ended.wait(step.seconds)
    finally:
        unsubscribe()
        runtime.wait_limit.leave(step.id, blocks=step.in_server_thread)
    return time.monotonic() - began


_PERFORM: dict[type[Step], Callable[[Any, Runtime, Performer], object]] = {
    Identify: lambda _, runtime, performer: performer.identify(),
    ReadBody: lambda _, runtime, performer: performer.read_body(),
    Reauthorise: lambda _, runtime, performer: performer.reauthorise(),
    Reserve: _reserve,
    TakeOver: _take_over,
    Look: _look,
    Run: _run,
    Checkpoint: lambda step, runtime, performer: runtime.store.checkpoint(step.claim, step.head),
    Finish: lambda step, runtime, performer: runtime.store.finish(step.claim, step.final),
    Commit: _commit,
    RollBack: _roll_back,
    CallBack: _call_back,
    LookWithin: _look_within,
    StoreWithin: _store_within,
    Spoil: _spoil,
    Release: lambda step, runtime, performer: runtime.store.release(step.claim),
    Forget: lambda step, runtime, performer: runtime.leases.forget(step.claim),
    Persist: _persist,
    Pause: lambda step, runtime, performer: time.sleep(step.seconds),
    Wait: _wait,
}
