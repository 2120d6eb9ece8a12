"""Deliveries at endpoints of FastAPI's.

    protect(app, guard)

    @app.post("/callbacks")
    @finished.fastapi
    def handle(event: JobFinished, db: Db) -> None: ...

The first parameter is the event; FastAPI reads and validates it as ever, and the others are its dependencies.
Where a webhook's signature is to be checked, or raw bytes are asked for, the event is made here, and after
that check.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, NamedTuple, TypeVar, cast

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from retrysafe._http.marked import Receiving, mark_receiving
from retrysafe.callbacks.functions import check_function, event_parameters, event_type, is_method
from retrysafe.callbacks.http.asgi import ReceivingExchange
from retrysafe.callbacks.http.exchange import PROCESSED
from retrysafe.callbacks.http.openapi import describe_endpoint
from retrysafe.callbacks.http.starlette import Receiver
from retrysafe.callbacks.payload import Parser, Payload
from retrysafe.callbacks.receipts import Receipts
from retrysafe.callbacks.webhooks import PayloadInvalid
from retrysafe.errors import ConfigurationError
from retrysafe.starlette import mark_as_coroutine_function, settle_early

F = TypeVar("F", bound=Callable[..., Any])

_DELIVERED = "retrysafe_delivered"
"""The parameter in which the raw delivery comes, beside those of the function."""

_RAW: tuple[object, ...] = (Payload, bytes, object, Any)
"""Types of events that FastAPI would look for in the query, or as an object with these fields."""


class _Delivered(NamedTuple):
    request: Request
    payload: Payload
    event: Any = None


def decorate(receipts: Receipts[Any], function: F) -> F:
    check_function(receipts, function)
    if is_method(function):
        raise ConfigurationError(
            f"{function.__qualname__} is a method, and FastAPI calls functions: decorate one"
        )
    kind = event_type(function)
    receiver = Receiver(receipts, function)
    receipts.register(function, kind, only_event=False)
    first, *others = event_parameters(function)
    reads = receipts.webhook is not None or kind in _RAW

    @wraps(function)
    def called(*args: object, **named: object) -> object:
        delivered = named.pop(_DELIVERED, None)
        if not isinstance(delivered, _Delivered):
            return function(*args, **named)  # by other code, such as a test, and not by the framework
        event = delivered.event if reads else named.pop(first.name)
        return serve(delivered, event, named)

    async def serve(delivered: _Delivered, event: object, named: dict[str, object]) -> object:
        request, payload, _ = delivered
        returned = await receiver.serve(request, event, payload, (event,), named)
        if returned is None and _may_have_a_body(request):
            return PROCESSED
        return returned

    depends, parameters = _delivered(receiver), [first, *others]
    if reads:
        depends, parameters = _reader(receiver, Parser(kind, f"receipts {receipts.name!r}")), others
    annotation = Annotated[_Delivered, Depends(depends)]
    ours = inspect.Parameter(_DELIVERED, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    named_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    # First of all: nothing of the function's own is looked up before the sender is known.
    signature = inspect.signature(function).replace(parameters=[ours, *named_only])
    setattr(called, "__signature__", signature)  # noqa: B010 - typed
    describe = describe_endpoint(receipts, kind if reads else None)
    mark_receiving(called, Receiving(receipts.guard, ReceivingExchange, describe), receipts.name)
    mark_as_coroutine_function(called)
    return cast("F", called)


def _may_have_a_body(request: Request) -> bool:
    """Whether an endpoint that returns nothing may be taken to say nothing, and not to mean `null`."""
    route = request.scope.get("route")
    status: object = getattr(route, "status_code", None)
    kind: object = getattr(route, "response_class", None)
    kind = getattr(kind, "value", kind)  # of a default
    return (
        getattr(route, "response_field", None) is None
        and status not in (204, 205, 304)
        and inspect.isclass(kind)
        and issubclass(kind, JSONResponse)
    )


# Coroutine functions: plain ones would wait for a thread, and endpoints may hold all of them.
def _delivered(receiver: Receiver) -> Callable[..., Any]:
    async def delivered(request: Request) -> _Delivered:
        return _Delivered(request, await receiver.read(request))

    return delivered


def _reader(receiver: Receiver, parse: Parser) -> Callable[..., Any]:
    async def read(request: Request) -> _Delivered:
        payload = await receiver.read(request)
        refused: Response | None = receiver.verify(request, payload)
        if refused is not None:
            settle_early(request, refused)
        try:
            event = parse(payload)
        except PayloadInvalid as invalid:
            # As FastAPI itself, with the application's own handler for it.
            raise RequestValidationError(_errors(invalid)) from None
        return _Delivered(request, payload, event)

    return read


def _errors(invalid: PayloadInvalid) -> list[dict[str, Any]]:
    cause: Any = invalid.__cause__
    if not hasattr(cause, "errors"):
        return [{"type": "value_error", "loc": ("body",), "msg": invalid.reason, "input": None}]
    # Without what was sent: bytes that are not UTF-8, and numbers that are none, cannot be sent back.
    found: list[dict[str, Any]] = cause.errors(include_url=False, include_input=False, include_context=False)
    return [{**error, "loc": ("body", *error["loc"])} for error in found]
