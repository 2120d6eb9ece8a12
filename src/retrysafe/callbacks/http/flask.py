"""Deliveries at views of Flask's.

    Retrysafe(guard).init_app(app)

    @app.post("/callbacks")
    @finished.flask
    def handle(event: JobFinished) -> None: ...

The view reads the body, checks who signed it, makes the event, asks `check=`, claims, and calls the function;
what the route has found in the path is passed by name.
"""

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from flask import current_app, has_request_context, jsonify, request

from retrysafe._core import attempt as attempts
from retrysafe._core import model
from retrysafe._core.problems import Problem
from retrysafe._http.held import name_of
from retrysafe._http.marked import Receiving, mark_receiving
from retrysafe.callbacks.functions import check_function, event_parameters, event_type, is_method
from retrysafe.callbacks.handling import check_subject
from retrysafe.callbacks.http.exchange import PROCESSED, lower_headers, refuse, verified
from retrysafe.callbacks.http.wsgi import ReceivingExchange
from retrysafe.callbacks.payload import Parser, Payload, invalid_payload
from retrysafe.callbacks.receipts import Receipts
from retrysafe.callbacks.webhooks import PayloadInvalid
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.flask import guards_of, respond, route_template
from retrysafe.wsgi.environ import GUARDED, translate


def decorate(receipts: Receipts[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    check_function(receipts, function)
    method, awaits = is_method(function), inspect.iscoroutinefunction(function)
    kind = event_type(function)
    parse = Parser(kind, f"receipts {receipts.name!r}")
    receipts.register(function, kind, only_event=False)
    nothing_done = (NotDone, *receipts.rules.outcome.retry_on)

    @wraps(function)
    def view(*args: object, **named: object) -> object:
        if len(args) != method or not has_request_context():
            return function(*args, **named)  # by other code, such as a test, and not by Flask
        return serve_awaited(args, named) if awaits and _on_a_loop() else serve(args, named)

    def serve(args: tuple[object, ...], named: dict[str, object]) -> object:
        with received(current_app.ensure_sync) as (settled, event):
            if settled is not None:
                return settled
            return said(current_app.ensure_sync(function)(*args, event, **named))

    async def serve_awaited(args: tuple[object, ...], named: dict[str, object]) -> object:
        # Blocking, until the function runs: the loop is this request's own.
        with received(_refuse_awaitable) as (settled, event):
            return settled if settled is not None else said(await function(*args, event, **named))

    def said(returned: object) -> object:
        return jsonify(PROCESSED) if returned is None else returned

    @contextmanager
    def received(ensure_sync: Callable[[Any], Any]) -> Generator[tuple[object, object]]:
        """The response to this delivery, if it is there already, or its event; what runs in it is guarded."""
        settled, event, attempt = claim(ensure_sync)
        if attempt is None:
            yield settled, event
            return
        attempts.enter(attempt)
        try:
            yield None, event
        except nothing_done:
            attempt.not_started()  # said here: a handler of the application may make a response of it
            raise

    def claim(ensure_sync: Callable[[Any], Any]) -> tuple[object, object, attempts.Attempt | None]:
        asked = translate(request.environ)
        held: object = request.environ.get(name_of(receipts.guard))
        body = request.get_data()
        if not body and isinstance(held, ReceivingExchange):
            body = held.copied()  # a form was made of it already
        payload = Payload(body, lower_headers(asked.headers))
        found = verified(receipts, payload)
        if isinstance(found, model.Response):
            return respond(found), None, None
        if found is not None:
            return _refused(receipts, asked, found), None, None
        try:
            event = parse(payload)
        except PayloadInvalid as invalid:
            return _refused(receipts, asked, invalid_payload(invalid)), None, None
        if not isinstance(held, ReceivingExchange):
            raise ConfigurationError(f"{function.__qualname__} takes deliveries, {_not_held(receipts)}")
        if (unknown := check_subject(receipts, event, ensure_sync)) is not None:
            return _refused(receipts, asked, unknown), None, None
        sent = asked.fields.get(receipts.rules.names.correlation)
        delivery = receipts.delivery(event, payload, held.request_id, sent)
        if delivery is None:
            receipts.guard.runtime.keyless(
                receipts.name, "", route_template(), warn=False, door="callback", source=receipts.name
            )
            return None, event, None
        if isinstance(delivery, Problem):
            return _refused(receipts, asked, delivery), None, None
        claimed = held.claim_event(receipts, delivery, asked, route_template())
        if not isinstance(claimed, attempts.Attempt):
            return respond(claimed), None, None
        return None, event, claimed

    _named_as_the_route_has_it(view, function)
    mark_receiving(view, Receiving(receipts.guard, ReceivingExchange), receipts.name)
    return view


def _on_a_loop() -> bool:
    """Whether it is called on an event loop, by an asynchronous decorator above ours."""
    import asyncio  # only asynchronous views come here

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _refuse_awaitable(check: Callable[..., Any]) -> Callable[..., Any]:
    """`check=` of a view that is awaited: on its loop nothing else can be waited for."""
    if inspect.iscoroutinefunction(check):
        raise ConfigurationError(
            f"check={check!r} is asynchronous, below an asynchronous decorator: make it a plain function"
        )
    return check


def _not_held(receipts: Receipts[Any]) -> str:
    environ = request.environ
    if name_of(receipts.guard) not in environ:
        if receipts.guard in guards_of(current_app):
            return (
                "and this one did not come through app.wsgi_app, as in app.test_request_context(): send it "
                "with app.test_client()"
            )
        return (
            "and its application is not protected: call Retrysafe(guard).init_app(app), with the guard of "
            "the receipts"
        )
    if GUARDED in environ:
        return (
            "and a middleware outside of its application has claimed the key of this request: exempt its "
            "path there"
        )
    return (
        f"and {request.method} {request.path} was not taken for one when it arrived: a middleware between "
        "Retrysafe and Flask has changed its path or method. Add it after Retrysafe(guard).init_app(app)"
    )


def _named_as_the_route_has_it(view: Any, function: Callable[..., Any]) -> None:  # noqa: ANN401 - a function
    """Without the event, which is no variable of the path."""
    signature = inspect.signature(function)
    _, *others = event_parameters(function)
    view.__signature__ = signature.replace(parameters=others)


def _refused(receipts: Receipts[Any], asked: model.Request, problem: Problem) -> object:
    return respond(refuse(receipts, asked, problem, route_template()))
