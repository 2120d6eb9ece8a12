"""A shop that is broken on purpose, so that the harness can show that it would notice.

The tests of the harness name one of these in the environment of a fleet; nobody else does.  Each is a mistake
that was really made in this field.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any, Literal, get_args

from retrysafe._core.model import Claim, Final
from retrysafe._core.steps import Finish, Reserve
from retrysafe.errors import StoreUnavailable
from retrysafe.stores.sql import operations
from tools.crash.modes import EFFECTS
from tools.crash.traps import STEPS

SABOTAGE = "RETRYSAFE_CRASH_SABOTAGE"

Way = Literal["fence ignored", "runs again", "answers early", "answers nothing", "finishes nothing"]
"""fence ignored     an owner that was overtaken believes that it has finished all the same
runs again        where the outcome is unknown, it is tried once more
answers early     the answer leaves, and is stored a little later
answers nothing   every request is refused
finishes nothing  no outcome is ever kept"""


def commit() -> None:
    """In the process that forks the workers."""
    match os.environ.get(SABOTAGE, ""):
        case "":
            pass
        case "fence ignored":
            _ignore_the_fence()
        case "runs again":
            EFFECTS["hold"] = EFFECTS["retry"]
        case "answers early":
            _answer_early()
        case "answers nothing":
            STEPS[Reserve] = _refused
        case "finishes nothing":
            STEPS[Finish] = _refused
        case other:
            raise ValueError(f"{SABOTAGE} is {other!r}: expected one of {get_args(Way)}")


def _ignore_the_fence() -> None:
    def always(keep: Callable[[Claim, Final], operations.Operation[bool]]) -> object:
        def kept(claim: Claim, final: Final) -> operations.Operation[bool]:
            yield from keep(claim, final)
            return True

        return kept

    for name in ("finish", "conclude"):
        setattr(operations, name, always(getattr(operations, name)))


def _answer_early() -> None:
    finish = STEPS[Finish]
    late: set[asyncio.Task[None]] = set()

    async def later(*rest: Any) -> None:
        await asyncio.sleep(0.1)
        await finish(*rest)

    async def finished(*rest: Any) -> bool:
        task = asyncio.ensure_future(later(*rest))
        late.add(task)
        task.add_done_callback(late.discard)
        return True

    STEPS[Finish] = finished


async def _refused(*_: object) -> object:
    raise StoreUnavailable("it is the sabotage that refuses")
