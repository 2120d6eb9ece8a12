"""Orders as calls of an operation: what a client sends is the key and the arguments, and what it receives is
what the caller in the worker got, in the form that clients know from requests.

In mode `nested` the lines of an order are an operation of their own, in the transaction of the first.  Two
orders may want the same lines.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from retrysafe import Guard, NotDone, current
from retrysafe.operations import Done, PreviouslyFailed, Refused, Undone, operation
from tools.crash.audit import TABLES, canonical, order_of, part_key
from tools.crash.clients import marks
from tools.crash.handlers import AsyncHandlers, BlockingHandlers, Handlers, Order
from tools.crash.modes import NESTED, RELEASED, Mode

ORDERS, LINES = TABLES

Value = dict[str, str]

_JSON = "application/json"
_PROBLEM = "application/problem+json"


class Deliberate(Exception):
    """Raised by an operation on purpose."""


def calling(guard: Guard, handlers: Handlers, mode: Mode) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint, which calls the operation with the key that a client sent."""
    if isinstance(handlers, AsyncHandlers):
        place_async = _nested_async(guard, handlers) if mode == NESTED else _plain_async(guard, handlers)

        async def order_async(request: Request) -> Response:
            key, asked, ending = await _arguments(request)
            try:
                return _done(await place_async.once(key, asked, ending, key=key))
            except _EXPECTED as error:
                return _not_done(error)

        return order_async
    place = _nested(guard, handlers) if mode == NESTED else _plain(guard, handlers)

    async def order(request: Request) -> Response:
        key, asked, ending = await _arguments(request)
        try:
            return _done(await run_in_threadpool(place.once, key, asked, ending, key=key))
        except _EXPECTED as error:
            return _not_done(error)

    return order


def key_of(request: Request) -> str:
    return request.headers["Idempotency-Key"].strip('"')


async def _arguments(request: Request) -> tuple[str, str, str]:
    return key_of(request), (await request.body()).decode(), request.headers.get("Ending", "")


# --- the operations


def _plain(guard: Guard, handlers: BlockingHandlers) -> Any:
    @operation(guard, action="order", target="number", ignore=("ending",))
    def place(number: str, asked: str, ending: str) -> Value:
        placed = order(number, ending)
        handlers.write(placed)
        end(ending)
        return {"id": placed.id}

    return place


def _plain_async(guard: Guard, handlers: AsyncHandlers) -> Any:
    @operation(guard, action="order", target="number", ignore=("ending",))
    async def place(number: str, asked: str, ending: str) -> Value:
        placed = order(number, ending)
        await handlers.write(placed)
        end(ending)
        return {"id": placed.id}

    return place


def _nested(guard: Guard, handlers: BlockingHandlers) -> Any:
    @operation(guard, action="add-lines", target="number", ignore=("ending",))
    def add_lines(number: str, ending: str) -> Value:
        lines = Order(number, uuid.uuid4().hex)
        handlers.write(lines, [LINES])
        end(ending)
        return {"id": lines.id}

    @operation(guard, action="order", target="number", ignore=("ending",))
    def place(number: str, asked: str, ending: str) -> Value:
        order = Order(number, uuid.uuid4().hex)
        handlers.write(order, [ORDERS])
        try:
            lines = add_lines.once(order_of(number), ending, key=part_key(number))
        except _SWALLOWED:
            return {"id": order.id, "line": ""}
        return {"id": order.id, "line": lines.value["id"]}

    return place


def _nested_async(guard: Guard, handlers: AsyncHandlers) -> Any:
    @operation(guard, action="add-lines", target="number", ignore=("ending",))
    async def add_lines(number: str, ending: str) -> Value:
        lines = Order(number, uuid.uuid4().hex)
        await handlers.write(lines, [LINES])
        end(ending)
        return {"id": lines.id}

    @operation(guard, action="order", target="number", ignore=("ending",))
    async def place(number: str, asked: str, ending: str) -> Value:
        order = Order(number, uuid.uuid4().hex)
        await handlers.write(order, [ORDERS])
        try:
            lines = await add_lines.once(order_of(number), ending, key=part_key(number))
        except _SWALLOWED:
            return {"id": order.id, "line": ""}
        return {"id": order.id, "line": lines.value["id"]}

    return place


def order(number: str, ending: str) -> Order:
    """What has its effect elsewhere passes a derived key on; but then `NotDone` would not be believed."""
    attempt = current()
    passes_on = attempt.claim.mode == "lease" and ending not in RELEASED
    return Order(number, uuid.uuid4().hex, ending, attempt.derive("charge") if passes_on else "")


def end(ending: str) -> None:
    if ending in RELEASED:
        raise NotDone
    if ending:
        raise Deliberate(ending)


_SWALLOWED = (Deliberate, NotDone, Undone)
"""What a careless caller ignores: the lines could not be added.  They were written before that, and cannot be
undone alone, so nothing of the order may be committed either."""


# --- what the caller got, as a response

_EXPECTED = (Refused, NotDone, Deliberate)


def _done(done: Done[Value]) -> Response:
    response = Response(canonical(done.value), media_type=_JSON)
    for name, value in marks(done.value["id"]):
        response.headers.append(name, value)
    if done.replayed:
        response.headers["Idempotent-Replayed"] = "true"
    if not done.stored:
        response.headers["Idempotency-Stored"] = "false"
    return response


def _not_done(error: Exception) -> Response:
    """A refusal, or what the function raised: that the latter is stored, its caller is not told."""
    match error:
        case PreviouslyFailed(failure=failure) if failure is not None:
            body = canonical({"type": failure.type, "message": failure.message})
            return Response(body, 500, {"Idempotent-Replayed": "true"}, _JSON)
        case Refused():
            return Response(canonical({"code": error.code}), error.status, media_type=_PROBLEM)
        case NotDone():
            return Response(canonical({"code": "not-done"}), 503, media_type=_PROBLEM)
        case _:
            body = canonical({"code": "handler-failed"})
            return Response(body, 500, {"Idempotency-Stored": "false"}, _PROBLEM)
