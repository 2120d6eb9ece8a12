"""Bugs that the tests of the harness plant in the application, to see that the harness finds them.

A test names one in the environment of the workers.  Each is a mistake that was really made in this field.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any, Literal, get_args

from retrysafe._core import decisions, protocol
from retrysafe._core.fingerprint import VERSION
from retrysafe._core.model import Claim, Final, Found, Reservation, Reserved, Response
from retrysafe._core.steps import (
    Call,
    CanTakeOver,
    Commit,
    Finish,
    Flow,
    Judgement,
    Replay,
    Reserve,
    Result,
    Spoil,
)
from retrysafe._runtime import drive_sync
from retrysafe._runtime.runtime import Runtime
from retrysafe._runtime.transactions import CallTransaction
from retrysafe.callbacks import Receipts
from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.policy import Policy
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import operations
from tools.crash.traps import STEPS, replace

PLANTED = "RETRYSAFE_CRASH_PLANTED"

Bug = Literal[
    "fence ignored", "runs again", "responds early", "refuses all", "finishes nothing", "outage ignored",
    "spoil ignored", "acknowledges reserved", "accepts early", "completes apart", "any payload",
    "nothing compared", "leaves the dead",
]  # fmt: skip
"""fence ignored     an owner that was overtaken believes that it has finished all the same
runs again        where the outcome is unknown, it is tried once more
responds early    the response leaves, and is stored a little later
refuses all       every request is refused
finishes nothing  no outcome is ever stored
outage ignored    an outcome that the store did not take is believed to be stored
spoil ignored     what is left of an operation that failed is committed with the call around it

Of deliveries:

acknowledges reserved  an event is acknowledged from the moment on at which its receipt is reserved
accepts early          an inbox acknowledges an event, and stores its payload a little later
completes apart        what a handler wrote is committed, and its receipt is completed after that
any payload            another payload with the id of an event is taken for a duplicate
nothing compared       the parts of an event that are to be the same are not compared
leaves the dead        a worker takes nothing that another one was interrupted in"""


def plant() -> None:
    """In the process that forks the workers."""
    match os.environ.get(PLANTED, ""):
        case "":
            pass
        case "fence ignored":
            _ignore_the_fence()
        case "runs again":
            _judge_otherwise(_try_once_more)
        case "responds early":
            _respond_early()
        case "refuses all":
            STEPS[Reserve] = _refused
        case "finishes nothing":
            STEPS[Finish] = _refused
        case "outage ignored":
            _ignore_outages()
        case "spoil ignored":
            STEPS[Spoil] = drive_sync._PERFORM[Spoil] = _end_part  # pyright: ignore[reportPrivateUsage]
        case "accepts early":
            _accept_early()
        case "completes apart":
            _complete_apart()
        case "acknowledges reserved":
            _judge_otherwise(_acknowledge_what_is_reserved)
        case "any payload":
            _judge_otherwise(_match_any_payload)
        case "nothing compared":
            replace(Receipts, "_fingerprint", lambda *_: VERSION + bytes(32))
        case "leaves the dead":
            _leave_the_dead()
        case other:
            raise ValueError(f"{PLANTED} is {other!r}: expected one of {get_args(Bug)}")


def _ignore_the_fence() -> None:
    def always(write: Callable[[Claim, Final], Operation[bool]]) -> object:
        def written(claim: Claim, final: Final) -> Operation[bool]:
            yield from write(claim, final)
            return True

        return written

    # Where the COMMIT is sent with the completion, the fence is the statement's own error: without one, both
    # succeed.
    operations.conclude_or_fail = operations.conclude
    for name in ("finish", "conclude", "conclude_or_fail"):
        setattr(operations, name, always(getattr(operations, name)))
    if find_spec("redis") is not None:
        from retrysafe.stores.redis.operations import Operations

        finish = Operations.finish

        def finished(self: Operations, claim: Claim, final: Final) -> Operation[bool]:
            yield from finish(self, claim, final)
            return True

        replace(Operations, "finish", finished)


def _respond_early() -> None:
    finish = STEPS[Finish]
    late: set[asyncio.Task[None]] = set()

    async def later(*rest: Any) -> None:
        await asyncio.sleep(0.1)
        await _awaited(finish(*rest))

    async def finished(*rest: Any) -> bool:
        task = asyncio.ensure_future(later(*rest))
        late.add(task)
        task.add_done_callback(late.discard)
        return True

    STEPS[Finish] = finished


def _ignore_outages() -> None:
    finish = STEPS[Finish]

    async def finished(*rest: Any) -> object:
        try:
            return await _awaited(finish(*rest))
        except StoreError:
            return True

    STEPS[Finish] = finished


def _end_part(step: Spoil, *_: object) -> None:
    """As if its record were stored; a part that has not ended would be found by the commit."""
    transaction = step.attempt.transaction
    assert isinstance(transaction, CallTransaction)
    transaction.end_part(step.attempt.claim)


def _judge_otherwise(change: Callable[[Reservation, Claim, Policy], Judgement | None]) -> None:
    """Of what is found for a key or an event, where that is changed."""
    judge = decisions.judge

    def judged(reservation: Reservation, claim: Claim, policy: Policy) -> Judgement:
        changed = change(reservation, claim, policy) if isinstance(reservation, Found) else None
        return judge(reservation, claim, policy) if changed is None else changed

    setattr(protocol, "judge", judged)  # noqa: B010 - it is another module's


def _try_once_more(found: Reservation, claim: Claim, policy: Policy) -> Judgement:
    return decisions.judge(found, claim, policy._replace(abandoned="retry"))


def _acknowledge_what_is_reserved(found: Reservation, claim: Claim, _: Policy) -> Judgement | None:
    assert isinstance(found, Found)
    record = found.record
    if record.state != "in_progress" or record.token == claim.token:
        return None
    return Replay(record._replace(state="completed", response=Response(200)))


def _match_any_payload(found: Reservation, claim: Claim, policy: Policy) -> Judgement:
    assert isinstance(found, Found)
    return decisions.judge(found, claim._replace(fingerprint=found.record.fingerprint), policy)


def _leave_the_dead() -> None:
    take_turn = protocol.take_turn

    def taken(call: Call, previous: CanTakeOver, *, died: bool) -> Flow[Result]:
        if died:
            return Result("in-flight", None)
        return (yield from take_turn(call, previous, died=died))

    setattr(protocol, "take_turn", taken)  # noqa: B010 - it is another module's


def _accept_early() -> None:
    reserve = STEPS[Reserve]
    late: set[asyncio.Task[None]] = set()

    async def later(*rest: Any) -> None:
        await asyncio.sleep(0.1)
        await _awaited(reserve(*rest))

    async def reserved(step: Reserve, *rest: Any) -> object:
        if step.claim.lease > 0:
            return await _awaited(reserve(step, *rest))  # it will be handled here
        task = asyncio.ensure_future(later(step, *rest))
        late.add(task)
        task.add_done_callback(late.discard)
        return Reserved(1)

    STEPS[Reserve] = reserved


def _complete_apart() -> None:
    commit = STEPS[Commit]

    def conclude(claim: Claim, final: Final) -> Operation[bool]:
        yield from ()
        return True

    operations.conclude = operations.conclude_or_fail = conclude

    async def committed(step: Commit, runtime: Runtime, *rest: Any) -> object:
        await _awaited(commit(step, runtime, *rest))
        return await runtime.aio.finish(step.claim, step.final)

    STEPS[Commit] = committed


async def _awaited(found: Any) -> object:
    """What comes of a step: a driver may have it at once."""
    return await found if isinstance(found, Awaitable) else found


async def _refused(*_: object) -> object:
    raise StoreUnavailable("refused by a planted bug")
