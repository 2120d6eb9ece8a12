"""Orders as events that are delivered: the id of an event is in its body, and what its sender is told is what
the door responds.

The event says how its handler is to end, and where a worker that handles its payload is to be interrupted.
Neither is compared, as metadata are not that a real sender changes from one delivery to the next.
"""

from collections.abc import Callable
from typing import Any, TypedDict

from starlette.responses import JSONResponse, Response

from retrysafe import Guard, current
from retrysafe._core.model import Claim
from retrysafe.callbacks import Receipts, Retries, receipts
from retrysafe.testing.traps import place
from tools.crash import operations
from tools.crash.handlers import AsyncHandlers, BlockingHandlers, Handlers, Order
from tools.crash.modes import EFFECTS, INBOX, PAYLOAD, WITH_WORKERS, Mode

Returned = dict[str, str] | Response

SOURCE = "crash"

RETRIES = Retries(attempts=1000, first=0.05, longest=0.5)
"""Soon, and for longer than any round lasts: what a worker has not handled in the end was lost."""


class Event(TypedDict):
    callback_id: str
    run_id: str
    asked: str
    """What it is about."""
    ending: str
    trap: str


def receiving(guard: Guard, handlers: Handlers, mode: Mode) -> tuple[Receipts[Event], Callable[..., Any]]:
    """The receipts, and the endpoint that takes deliveries."""
    own: dict[str, Any] = {}
    if mode in WITH_WORKERS:
        own = {"store_payload": mode == PAYLOAD, "inbox": mode == INBOX, "retries": RETRIES}
    if mode != INBOX:
        own |= {"in_flight": guard.rules.policy.in_flight, "wait_for": guard.rules.policy.wait_for}
    found: Receipts[Event] = receipts(
        guard, source=SOURCE, compare=("run_id", "asked"), effects=EFFECTS[mode], **own
    )
    first = 2 if mode == INBOX else 1  # the first attempt at what is in an inbox was to receive it
    handle = _async(handlers, first) if isinstance(handlers, AsyncHandlers) else _blocking(handlers, first)
    return found, found.starlette(handle)


def _blocking(handlers: BlockingHandlers, first: int) -> Callable[[Event], Returned]:
    def handle(event: Event) -> Returned:
        order = _order(event, first)
        with place("Handle"):
            handlers.write(order)
        return _end(order, first)

    return handle


def _async(handlers: AsyncHandlers, first: int) -> Callable[[Event], Any]:
    async def handle(event: Event) -> Returned:
        order = _order(event, first)
        with place("Handle"):
            await handlers.write(order)
        return _end(order, first)

    return handle


def _order(event: Event, first: int) -> Order:
    """Handled once more by a worker, it succeeds: its payload asks for the same each time."""
    attempt = current()
    again = is_worker(attempt.claim) and attempt.number > first
    return operations.order(event["callback_id"], "" if again else event["ending"])


def is_worker(claim: Claim) -> bool:
    """Whether a worker has it, which brings no payload."""
    return claim.inbox is not None and claim.inbox.payload is None


def _end(order: Order, first: int) -> Returned:
    if order.ending in _RESPONSES and first == 1:
        return JSONResponse({"sorry": order.id}, _RESPONSES[order.ending])
    operations.end(order.ending)  # a worker has no response
    return {"id": order.id}


_RESPONSES = {"return 500": 500, "return 429": 429}
