"""Deliveries at endpoints of Starlette's.

    @finished.starlette
    async def handle(event: JobFinished) -> None: ...

    app = Starlette(routes=[Route("/callbacks", handle, methods=["POST"])])
    protect(app, guard)

The endpoint reads the body, checks who signed it, makes the event, asks `check=`, claims, and calls the
function.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from retrysafe._core import attempt as attempts
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Delivery
from retrysafe._http.held import name_of
from retrysafe._http.marked import Receiving, mark_receiving
from retrysafe.asgi.exchange import AsgiRequest, template
from retrysafe.callbacks.functions import check_function, event_parameters, event_type, is_method
from retrysafe.callbacks.handling import check_subject_async
from retrysafe.callbacks.http.asgi import ReceivingExchange
from retrysafe.callbacks.http.exchange import PROCESSED, lower_headers, refuse, verified
from retrysafe.callbacks.payload import Parser, Payload, invalid_payload
from retrysafe.callbacks.receipts import Receipts
from retrysafe.callbacks.webhooks import PayloadInvalid
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.starlette import Settled, mark_as_coroutine_function


def decorate(receipts: Receipts[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    check_function(receipts, function)
    kind = event_type(function)
    receiver = Receiver(receipts, function)
    parse = Parser(kind, f"receipts {receipts.name!r}")
    takes_request = len(event_parameters(function)) > 1
    method = is_method(function)
    receipts.register(function, kind, only_event=False)

    @wraps(function)
    def endpoint(*args: object, **named: object) -> object:
        *bound, request = args or (None,)
        if not isinstance(request, Request) or named or len(bound) != method:
            return function(*args, **named)  # by other code, such as a test, and not by the framework
        return serve(tuple(bound), cast("Request[State]", request))

    async def serve(bound: tuple[object, ...], request: Request) -> Response:
        payload = await receiver.read(request)
        refused = receiver.verify(request, payload)
        if refused is not None:
            return refused
        try:
            event = parse(payload)
        except PayloadInvalid as invalid:
            return receiver.refuse(request, invalid_payload(invalid))
        arguments = (*bound, event, request) if takes_request else (*bound, event)
        returned = await receiver.serve(request, event, payload, arguments, {})
        if isinstance(returned, Response):
            return returned
        return JSONResponse(PROCESSED if returned is None else returned)

    # Not as the function has it: this is what the framework calls.
    setattr(endpoint, "__signature__", _SIGNATURE)  # noqa: B010 - typed
    mark_as_coroutine_function(endpoint)
    mark_receiving(endpoint, Receiving(receipts.guard, ReceivingExchange), receipts.name)
    return endpoint


_SIGNATURE = inspect.Signature(
    [inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)]
)


class Receiver:
    """What endpoints of Starlette's and FastAPI's do with a delivery."""

    def __init__(self, receipts: Receipts[Any], function: Callable[..., Any]) -> None:
        self._receipts = receipts
        self._function = function
        self._awaited = inspect.iscoroutinefunction(function)
        self._name = name_of(receipts.guard)
        self._nothing_done = (NotDone, *receipts.rules.outcome.retry_on)

    async def read(self, request: Request) -> Payload:
        """What was delivered, also where a form was made of it already."""
        try:
            body = await request.body()
        except RuntimeError:  # its stream is at its end
            held: object = request.scope.get(self._name)
            if not isinstance(held, ReceivingExchange):
                raise
            body = held.copied()
        return Payload(body, lower_headers(request.scope["headers"]))

    def verify(self, request: Request, payload: Payload) -> Response | None:
        """The response to a delivery that is no event, or not its sender's."""
        found = verified(self._receipts, payload)
        if isinstance(found, Problem):
            return self.refuse(request, found)
        return None if found is None else Settled(found)

    def refuse(self, request: Request, problem: Problem) -> Response:
        asked = AsgiRequest(request.scope, dict(request.scope["headers"]))
        return Settled(refuse(self._receipts, asked, problem, template(request.scope) or ""))

    async def serve(
        self,
        request: Request,
        event: Any,  # noqa: ANN401 - of whichever type the function takes
        payload: Payload,
        args: tuple[object, ...],
        named: dict[str, object],
    ) -> object:
        """Call the function with an event, unless it was handled before."""
        receipts, scope = self._receipts, request.scope
        held: object = scope.get(self._name)
        if not isinstance(held, ReceivingExchange):
            raise ConfigurationError(
                f"{self._function.__qualname__} takes deliveries, {self._not_held(scope)}"
            )
        if (problem := await check_subject_async(receipts, event)) is not None:
            return self.refuse(request, problem)
        delivery = self._delivery(held, event, payload)
        if delivery is None:
            receipts.guard.runtime.keyless(
                receipts.name, "", template(scope) or "", warn=False, door="callback", source=receipts.name
            )
            return await self._run(args, named)
        if isinstance(delivery, Problem):
            return self.refuse(request, delivery)
        claimed = await held.claim_event(receipts, delivery, scope)
        if not isinstance(claimed, attempts.Attempt):
            return Settled(claimed)
        attempts.enter(claimed)
        try:
            return await self._run(args, named)
        except self._nothing_done:
            claimed.not_started()  # said here, because a handler of the application may make a response of it
            raise

    def _delivery(
        self, held: ReceivingExchange, event: object, payload: Payload
    ) -> Delivery | Problem | None:
        sent = held.request.fields.get(self._receipts.rules.names.correlation)
        return self._receipts.delivery(event, payload, held.request_id, sent)

    def _not_held(self, scope: Scope) -> str:
        if self._name not in scope:
            return (
                "and its application is not protected: call protect(app, guard), with the guard of the "
                "receipts"
            )
        if "retrysafe" in scope:
            return (
                "and a middleware outside of its application has claimed the key of this request: exempt its "
                "path there"
            )
        return (
            f"and {scope['method']} {scope['path']} was not taken for one when it arrived: a middleware "
            "between protect(app, guard) and the endpoint has changed its path or method. Do that outside of "
            "the application"
        )

    async def _run(self, args: tuple[object, ...], named: dict[str, object]) -> object:
        if self._awaited:
            return await self._function(*args, **named)
        returned = await run_in_threadpool(self._function, *args, **named)
        return await returned if inspect.isawaitable(returned) else returned
