"""Bugs that the tests of the harness plant in the application, to see that the harness finds them.

A test names one in the environment of the workers.  Each is a mistake that was really made in this field.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_args

from retrysafe._core.model import Claim, Final
from retrysafe._core.steps import Finish, Reserve, Spoil
from retrysafe._runtime import drive_sync
from retrysafe._runtime.transactions import CallTransaction
from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import operations
from tools.crash.modes import EFFECTS
from tools.crash.traps import STEPS

PLANTED = "RETRYSAFE_CRASH_PLANTED"

Bug = Literal[
    "fence ignored", "runs again", "responds early", "refuses all", "finishes nothing", "outage ignored",
    "spoil ignored",
]  # fmt: skip
"""fence ignored     an owner that was overtaken believes that it has finished all the same
runs again        where the outcome is unknown, it is tried once more
responds early    the response leaves, and is stored a little later
refuses all       every request is refused
finishes nothing  no outcome is ever stored
outage ignored    an outcome that the store did not take is believed to be stored
spoil ignored     what is left of an operation that failed is committed with the call around it"""


def plant() -> None:
    """In the process that forks the workers."""
    match os.environ.get(PLANTED, ""):
        case "":
            pass
        case "fence ignored":
            _ignore_the_fence()
        case "runs again":
            EFFECTS["hold"] = EFFECTS["retry"]
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


async def _awaited(found: Any) -> object:
    """What comes of a step: a driver may have it at once."""
    return await found if isinstance(found, Awaitable) else found


async def _refused(*_: object) -> object:
    raise StoreUnavailable("refused by a planted bug")
