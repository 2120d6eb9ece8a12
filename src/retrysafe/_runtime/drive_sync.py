"""The driver for blocking code: no event loop, and no import of one."""

# ruff: noqa: ARG001, ARG005 - every performer takes the same three, whichever it needs

import time
from collections.abc import Callable, Coroutine
from threading import Event
from typing import Any, Protocol, TypeVar

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Scope
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
    Outcome,
    Pause,
    Persist,
    ReadBody,
    Reauthorise,
    Release,
    Reserve,
    RollBack,
    Run,
    Step,
    TakeOver,
    TooLarge,
    Wait,
)
from retrysafe._runtime.runtime import Engine
from retrysafe._runtime.transactions import Junction, Transaction, blocks
from retrysafe.events import log

T = TypeVar("T")


class Hands(Protocol):
    """What an adapter does for a flow, blocking."""

    def identify(self) -> Scope | None: ...
    def read_body(self) -> bytes | TooLarge | Gone: ...
    def reauthorise(self) -> bool: ...
    def run(self, attempt: Attempt) -> Outcome: ...


def drive(flow: Flow[T], engine: Engine, hands: Hands) -> T:
    """Perform a flow, blocking."""
    try:
        step = next(flow)
        while True:
            try:
                answer = _PERFORM[type(step)](step, engine, hands)
            except BaseException as error:  # noqa: BLE001 - the flow knows what it means
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _run(step: Run, engine: Engine, hands: Hands) -> Outcome:
    attempt = step.attempt
    if attempt.leased:
        engine.keeper.hold(attempt)
        if attempt.claim.mode == "tx":
            attempt.junction = Junction(engine.store, awaited=False)
    return hands.run(attempt)


def _commit(step: Commit, engine: Engine, hands: Hands) -> bool:
    junction = _junction(step.attempt)
    transaction = _close(step.attempt)
    if transaction is not None:
        kept = transaction.commit(step.claim, step.final)
    else:
        if not junction.joined:
            engine.nothing_joined(step.claim, step.final)
        kept = engine.store.finish(step.claim, step.final)
    if kept:
        junction.committed()
    return kept


def _roll_back(step: RollBack, engine: Engine, hands: Hands) -> None:
    transaction = _close(step.attempt)
    if transaction is not None:
        transaction.roll_back(discard=step.cut_off)


def _junction(attempt: Attempt) -> Junction:
    assert isinstance(attempt.junction, Junction)
    return attempt.junction


def _close(attempt: Attempt) -> Transaction | None:
    transaction = _junction(attempt).close()
    assert transaction is None or blocks(transaction), "refused when it wanted to join"
    return transaction


def _call_back(step: CallBack, engine: Engine, hands: Hands) -> None:
    for callback in step.attempt.callbacks:
        try:
            if isinstance(answer := callback(), Coroutine):
                answer.close()  # it will never be awaited
                raise TypeError("on_commit was given a coroutine function, and here is no event loop")
        except Exception as error:  # noqa: BLE001 - whatever it is, the outcome stands
            log.error("a function that was left to be called after the commit failed", exc_info=error)


def _persist(step: Persist, engine: Engine, hands: Hands) -> bool:
    lasts = engine.keeper.lasts(step.claim, step.pause)
    if lasts:
        time.sleep(step.pause)
    return lasts


def _wait(step: Wait, engine: Engine, hands: Hands) -> float | None:
    if not engine.waiting.enter(step.id):
        return None
    began = time.monotonic()
    ended = Event()
    unsubscribe = engine.waiting.listen(step.id, ended.set)
    try:
        ended.wait(step.seconds)
    finally:
        unsubscribe()
        engine.waiting.leave(step.id)
    return time.monotonic() - began


_PERFORM: dict[type[Step], Callable[[Any, Engine, Hands], object]] = {
    Identify: lambda _, engine, hands: hands.identify(),
    ReadBody: lambda _, engine, hands: hands.read_body(),
    Reauthorise: lambda _, engine, hands: hands.reauthorise(),
    Reserve: lambda step, engine, hands: engine.store.reserve(step.claim),
    TakeOver: lambda step, engine, hands: engine.store.take_over(step.claim, step.previous, step.state),
    Look: lambda step, engine, hands: engine.store.look(step.id),
    Run: _run,
    Checkpoint: lambda step, engine, hands: engine.store.checkpoint(step.claim, step.head),
    Finish: lambda step, engine, hands: engine.store.finish(step.claim, step.final),
    Commit: _commit,
    RollBack: _roll_back,
    CallBack: _call_back,
    Release: lambda step, engine, hands: engine.store.release(step.claim),
    Forget: lambda step, engine, hands: engine.keeper.forget(step.claim),
    Persist: _persist,
    Pause: lambda step, engine, hands: time.sleep(step.seconds),
    Wait: _wait,
}
