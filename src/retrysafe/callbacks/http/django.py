"""Deliveries at views of Django's and of Django REST framework's.

    finished = receipts(guard("job-callbacks"), source="jobs")

    @finished.django
    def handle(event: JobFinished) -> None: ...

    class Callbacks(APIView):
        @finished.django
        def post(self, event: JobFinished, tenant: str) -> None: ...

The view reads the body, checks who signed it, makes the event, asks `check=`, claims, and calls the function;
what the route has found in the path is passed by name, and so is the request to a function that has a
parameter `request`.  Authentication and permissions of REST framework's come before all of that.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from retrysafe._core import model
from retrysafe._core.attempt import Attempt
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Delivery, Gone, TooLarge
from retrysafe._http.held import CLIENT_GONE
from retrysafe._http.marked import Receiving, mark_receiving
from retrysafe.callbacks.functions import (
    VARIADIC,
    check_function,
    event_parameters,
    event_type,
    is_method,
    refuse_unfinished,
)
from retrysafe.callbacks.handling import check_subject, check_subject_async
from retrysafe.callbacks.http.exchange import (
    PROCESSED,
    CallbackExchange,
    lower_headers,
    refuse,
    verified,
)
from retrysafe.callbacks.payload import Parser, Payload, invalid_payload
from retrysafe.callbacks.receipts import Receipts
from retrysafe.callbacks.webhooks import PayloadInvalid
from retrysafe.django.guarded.atomic import aliases_of
from retrysafe.django.guarded.body import body_of
from retrysafe.django.guarded.coroutines import is_awaited
from retrysafe.django.guarded.exchange import DjangoExchange, SyncExchange
from retrysafe.django.guarded.exchange_async import AsyncExchange
from retrysafe.django.guarded.held import Claimants
from retrysafe.django.guarded.request import is_guarded_outside, new_response, read
from retrysafe.django.guarded.running import (
    claim_once,
    find_request,
    not_done,
    run_claimed,
    run_claimed_async,
    run_unguarded,
    surface_of,
)
from retrysafe.django.routes import route_of
from retrysafe.django.views import ASYNC_IN_DATABASE
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.stores.sql.django import DjangoStore


class ReceivingExchange(CallbackExchange, SyncExchange):
    """A delivery to a blocking view."""


class AsyncReceivingExchange(CallbackExchange, AsyncExchange):
    """A delivery to one that is awaited."""


def decorate(receipts: Receipts[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    check_function(receipts, function)
    _check_parameters(receipts, function)
    awaited = is_awaited(function)
    if receipts.rules.policy.effects == "database":
        _check_database(receipts, awaited=awaited)
    receiver = _Receiver(receipts, function)
    receipts.register(function, receiver.kind, only_event=False)
    position = int(is_method(function))
    called: Callable[..., Any]
    if awaited:

        @wraps(function)
        async def called_async(*args: object, **named: object) -> object:
            http, api = find_request(args[position : position + 1])
            if http is None:
                return await function(*args, **named)  # by other code, such as a test, and not by Django
            return await receiver.serve_async(_Call(http, api, args, named, position))

        called = called_async
    else:

        @wraps(function)
        def called_sync(*args: object, **named: object) -> object:
            http, api = find_request(args[position : position + 1])
            if http is None:
                return function(*args, **named)
            return receiver.serve(_Call(http, api, args, named, position))

        called = called_sync
    # Machines deliver, and have no token of a form; who they are is in the signature, or in other credentials
    # that a browser does not send by itself.
    setattr(called, "csrf_exempt", True)  # noqa: B010 - typed
    mark_receiving(called, Receiving(receipts.guard, ReceivingExchange), receipts.name)
    Claimants.receive = True
    return called


def _check_parameters(receipts: Receipts[Any], function: Callable[..., Any]) -> None:
    event, *_ = event_parameters(function)
    if event.name == "request" or event.annotation in (HttpRequest, "HttpRequest"):
        raise ConfigurationError(
            f"{receipts!r} decorated {function.__qualname__}, whose first parameter is {event.name!r}: the "
            "first one is the event. A parameter `request` after it is given Django's request"
        )


def _check_database(receipts: Receipts[Any], *, awaited: bool) -> None:
    if awaited:
        raise ConfigurationError(ASYNC_IN_DATABASE)
    if not isinstance(receipts.guard.store, DjangoStore):
        raise ConfigurationError(
            f'{receipts!r} have effects="database", which means a database of Django\'s, and the receipts '
            f"are in {receipts.guard.store!r}: take the guard of retrysafe.django.guard()"
        )


class _Call(NamedTuple):
    """With what Django, or a framework above it, has called a view."""

    http: HttpRequest
    api: object
    args: tuple[object, ...]
    named: dict[str, object]
    position: int
    """Of the request."""

    @property
    def bound(self) -> tuple[object, ...]:
        """The instance that a method is called of."""
        return self.args[: self.position]

    @property
    def rest(self) -> tuple[object, ...]:
        """What a route has found that has no names for it."""
        return self.args[self.position + 1 :]


class _Received(NamedTuple):
    """A delivery whose sender is known."""

    request: model.Request
    payload: Payload
    event: Any


class _Receiver:
    """A decorated function, and the receipts of what it handles."""

    def __init__(self, receipts: Receipts[Any], function: Callable[..., Any]) -> None:
        self._receipts = receipts
        self._function = function
        self._name = function.__qualname__
        self.kind = event_type(function)
        self._parse = Parser(self.kind, f"receipts {receipts.name!r}")
        _, *others = event_parameters(function)
        self._takes_request = any(one.name == "request" and one.kind not in VARIADIC for one in others)

    # --- blocking

    def serve(self, call: _Call) -> object:
        receipts, http = self._receipts, call.http
        aliases = aliases_of(http)
        received = self._receive(http)
        if not isinstance(received, _Received):
            return received
        exchange = ReceivingExchange(http, receipts.rules, receipts.guard, route_of(http))
        self._check(http)
        unknown = check_subject(receipts, received.event, _ensure_sync)
        delivery = unknown or self._delivery(exchange, received)
        if isinstance(delivery, Problem):
            return self._refuse(http, received.request, delivery)
        surface = surface_of(self._name, call.api, call.args, call.named)
        run = partial(self._run, call, received.event)
        if delivery is None:
            self._note_without_id(http)
            return run_unguarded(http, receipts.rules, run, aliases)
        exchange.begin_delivery(receipts, delivery)
        claimed = exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return new_response(claimed)
        return run_claimed(exchange, claimed, run, surface, aliases)

    def _run(self, call: _Call, event: object) -> object:
        returned = self._function(*call.bound, event, *call.rest, **self._named(call))
        refuse_unfinished(self._function, returned)
        return _said(returned)

    # --- awaiting

    async def serve_async(self, call: _Call) -> object:
        receipts, http = self._receipts, call.http
        if call.api is not None:
            raise ConfigurationError(
                f"{self._name} is asynchronous, and REST framework does not await what it calls: make it a "
                "plain function"
            )
        received = self._receive(http)
        if not isinstance(received, _Received):
            return received
        exchange = AsyncReceivingExchange(http, receipts.rules, receipts.guard, route_of(http))
        self._check(http)
        # In Django's own thread, because it may use the ORM.
        unknown = await check_subject_async(receipts, received.event, sync_to_async)
        delivery = unknown or self._delivery(exchange, received)
        if isinstance(delivery, Problem):
            return self._refuse(http, received.request, delivery)
        surface = surface_of(self._name, None, call.args, call.named)
        run = partial(self._run_async, call, received.event)
        if delivery is None:
            self._note_without_id(http)
            try:
                return surface.finish(await run())
            except NotDone as error:
                return not_done(http, receipts.rules, error)
        exchange.begin_delivery(receipts, delivery)
        claimed = await exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return new_response(claimed)
        return await run_claimed_async(exchange, claimed, run, surface)

    async def _run_async(self, call: _Call, event: object) -> object:
        return _said(await self._function(*call.bound, event, *call.rest, **self._named(call)))

    # --- both

    def _receive(self, http: HttpRequest) -> _Received | HttpResponseBase:
        """What was delivered; or the response to what is no event, or not its sender's."""
        receipts, request = self._receipts, read(http)
        limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = body_of(http, receipts.rules.request.max_request if limit is None else limit)
        if isinstance(body, Gone):
            return new_response(CLIENT_GONE)
        if isinstance(body, TooLarge):
            detail = f"The payload is larger than {body.limit} bytes."
            return self._refuse(http, request, Problem("body-too-large", detail))
        payload = Payload(b"".join(body.chunks()), lower_headers(request.headers))
        found = verified(receipts, payload)
        if isinstance(found, model.Response):
            return new_response(found)
        if found is not None:
            return self._refuse(http, request, found)
        try:
            return _Received(request, payload, self._parse(payload))
        except PayloadInvalid as invalid:
            return self._refuse(http, request, invalid_payload(invalid))

    def _refuse(self, http: HttpRequest, request: model.Request, problem: Problem) -> HttpResponseBase:
        return new_response(refuse(self._receipts, request, problem, route_of(http)))

    def _check(self, http: HttpRequest) -> None:
        if is_guarded_outside(http):
            raise ConfigurationError(
                f"{self._name} takes deliveries, and a middleware outside of Django has claimed the key of "
                "this request: exempt its path there"
            )
        receipts = self._receipts
        claim_once(http, receipts.rules, receipts.guard, f"{self._name} takes deliveries")

    def _delivery(self, exchange: DjangoExchange, received: _Received) -> Delivery | Problem | None:
        sent = received.request.fields.get(self._receipts.rules.names.correlation)
        return self._receipts.delivery(received.event, received.payload, exchange.request_id, sent)

    def _note_without_id(self, http: HttpRequest) -> None:
        receipts = self._receipts
        receipts.guard.runtime.keyless(
            receipts.name, "", route_of(http), warn=False, door="callback", source=receipts.name
        )

    def _named(self, call: _Call) -> dict[str, object]:
        if not self._takes_request:
            return call.named
        return {**call.named, "request": call.http if call.api is None else call.api}


def _said(returned: object) -> object:
    """What a function has returned, as a view may."""
    if returned is None:
        return JsonResponse(PROCESSED)
    return JsonResponse(returned, safe=False) if isinstance(returned, dict | list) else returned


def _ensure_sync(check: Callable[..., Any]) -> Callable[..., Any]:
    return async_to_sync(check) if is_awaited(check) else check
