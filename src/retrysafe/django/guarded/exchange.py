"""One guarded request in Django: the steps of its flow, and what becomes of the view's response.

A view claims when it is called, and is settled when its response is there, before any middleware sees it:
`claim_key`, then the view, then `conclude`.  What the view raised is settled with the response that Django
makes of it (`conclude_raised`).  Nothing about idempotency is decided here.

This is the blocking half, also for views in threads under ASGI; `exchange_async.py` is the other.
"""

import sys
from collections.abc import Iterable, Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.core import signals
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.utils.log import log_response
from django.views.defaults import ERROR_PAGE_TEMPLATE

from retrysafe import scopes
from retrysafe._core import model
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Scope
from retrysafe._core.steps import Flow, Gone, Outcome, Result, Run, TooLarge
from retrysafe._http.exchange import Exchange
from retrysafe._http.held import CLIENT_GONE
from retrysafe._http.routes import Route, any_path
from retrysafe._runtime.drive_sync import break_off_sync, claim_sync, conclude_sync, drive_sync
from retrysafe._runtime.runtime import LATER, Later
from retrysafe.django.guarded.body import body_of
from retrysafe.django.guarded.request import Request, headers_of, new_response, read, set_headers
from retrysafe.guard import Guard
from retrysafe.policy import Rules

if TYPE_CHECKING:
    from asyncio import Future  # imports an event loop, for which blocking views have no use


class DjangoExchange(Exchange):
    """What both halves share."""

    request: Request
    begins_transaction = True
    """Its view begins that of a call, together with the blocks of `ATOMIC_REQUESTS`, and not the driver."""
    _flow: Flow[Result]
    _run: Run
    reached: Result | None = None
    """What the claim came to, where it did not come to a run."""

    def __init__(self, http: HttpRequest, rules: Rules, guard: Guard, route: str = "") -> None:
        super().__init__(read(http), Route(route, any_path, rules))
        self.http = http
        self._runtime = guard.runtime

    def close(self) -> None:
        """The copy of the body goes with the request: what stands around the view may read it too."""

    @property
    def store(self) -> object:
        return self._runtime.store

    def _settled(self, reached: Result) -> model.Response:
        self.reached = reached
        return self.render(reached) or CLIENT_GONE

    def _copy_body(self) -> bytes | TooLarge | Gone:
        refused = self.announced()
        if refused is not None:
            return refused
        found = body_of(self.http, self.rules.request.max_request)
        if isinstance(found, TooLarge | Gone):
            return found
        self.body = found
        return self.fingerprint()

    def run(self, step: Run) -> Later:
        self._run = step
        return LATER

    def remember(self, task: "Future[Any]") -> None:
        """Have a shutdown wait for what goes on without a client."""
        self._runtime.remember(task)

    # --- responses

    def _begin(self, response: HttpResponseBase) -> None:
        self.start(response.status_code, headers_of(response))

    def _take_whole(self, response: HttpResponse) -> Outcome:
        try:
            self._begin(response)
            self.hold(response.content, last=True)
        except (ValueError, RuntimeError) as error:  # no server could send it
            return self.outcome(error)
        return self.outcome()

    def _of_exception(self, error: Exception, response: HttpResponseBase) -> Outcome:
        """What came of a view that raised: what Django, or a middleware, has made of the exception."""
        if not isinstance(response, HttpResponse):
            return self.outcome(error)
        if response.status_code >= 500 and (settings.DEBUG or response.content == _STOCK):
            return self.outcome(error)
        self._begin(response)
        self.hold(response.content, last=True)
        return self.outcome(error if response.status_code >= 500 else None)

    def _deliver(
        self, result: Result, response: HttpResponseBase | None, *, logged: bool = False
    ) -> HttpResponseBase:
        """What the middlewares get: the view's own response, or what is sent instead of it."""
        rendered = self.render(result) or CLIENT_GONE
        pieces = self.spooled(result)
        sent: HttpResponseBase
        if response is not None and result.reply is self._responded and not response.streaming:
            sent = response
            set_headers(response, rendered.headers)
        elif pieces is not None and response is not None and response.streaming:
            sent = in_place_of(response, StreamingHttpResponse(self._sending(pieces), status=rendered.status))
            set_headers(sent, rendered.headers)
        else:
            sent = new_response(rendered)
            if response is not None:
                sent = in_place_of(response, sent, keep_cookies=result.reply is self._responded)
        if result.error is not None and not logged:
            report(self.http, result.error, sent)
        return sent

    def _sending(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """A body on disk, which goes with this object."""
        yield from pieces


class SyncExchange(DjangoExchange):
    def claim_key(self) -> Attempt | model.Response:
        """Claim the key: what runs from now on, or what its client is sent instead."""
        self._flow = self.respond(self._runtime.is_draining, self._runtime.secret)
        reached = claim_sync(self._flow, self._runtime, self)
        return reached.attempt if isinstance(reached, Run) else self._settled(reached)

    def identify(self) -> Scope | None:
        rule = self.rules.request.scope
        if isinstance(rule, scopes.ReadyMade):
            return rule.find(self.request)
        found: Any = rule(self.request)
        return scopes.resolve(found)

    def reauthorise(self) -> bool:
        ask = self.rules.request.reauthorise
        return ask is None or bool(ask(self.http))  # type: ignore[arg-type]  # in Django, a function of its request

    def read_body(self) -> bytes | TooLarge | Gone:
        return self._copy_body()

    # --- what came of the view

    def conclude(self, response: HttpResponseBase) -> HttpResponseBase:
        """Settle the view's response, and give what is sent."""
        if not response.streaming:
            assert isinstance(response, HttpResponse)
            return self._end(self._take_whole(response), response)
        pieces = self._pieces(response)
        try:
            is_whole = self._hold_all(pieces, response)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the view's
            return self._end(self.outcome(error), response)
        if is_whole:
            return self._end(self.outcome(), response)
        drive_sync(self.let_flow(self._run), self._runtime, self)
        return self._flowing(pieces, response)

    def _hold_all(self, pieces: Iterator[bytes], response: HttpResponseBase) -> bool:
        """Hold a response to its end; or until it cannot be held."""
        self._begin(response)
        for piece in pieces:
            if not self.hold(piece, last=False):
                return False
        return self.hold(b"", last=True)

    def conclude_raised(
        self, error: Exception, response: HttpResponseBase | None = None, *, logged: bool = True
    ) -> HttpResponseBase:
        """Settle what the view raised, with the response that was made of it, if there is one."""
        outcome = self.outcome(error) if response is None else self._of_exception(error, response)
        result = conclude_sync(self._flow, self._runtime, self, outcome)
        if settings.DEBUG and response is not None and response.status_code >= 500:
            return response  # the page for developers, of which nothing is stored
        return self._deliver(result, response, logged=logged)

    def break_off(self, end: BaseException) -> None:
        """The view ended with its thread or process."""
        break_off_sync(self._flow, self._runtime, self, end)

    def _end(self, outcome: Outcome, response: HttpResponseBase) -> HttpResponseBase:
        return self._deliver(conclude_sync(self._flow, self._runtime, self, outcome), response)

    def _pieces(self, response: HttpResponseBase) -> Iterator[bytes]:
        """In the context of the call, also when a server asks for them later."""
        context = copy_context()
        pieces = context.run(iter, response)
        end = object()
        while (piece := context.run(next, pieces, end)) is not end:
            yield _bytes(piece)

    def _flowing(self, pieces: Iterator[bytes], response: HttpResponseBase) -> HttpResponseBase:
        if self.stage == "discarded":
            # Another attempt has the key, and its response counts; the view is brought to its end all the
            # same.
            flow = Flowing(self, pieces)
            flow.drain()
            assert flow.result is not None
            return self._deliver(flow.result, response)
        head, self.opening = self.opening, None
        assert head is not None
        sent = StreamingHttpResponse(Flowing(self, pieces), status=head.status)
        set_headers(sent, head.headers)
        return in_place_of(response, sent)

    def end_flow(self, error: Exception | None) -> Result:
        """The last of a response that was sent as it came."""
        return conclude_sync(self._flow, self._runtime, self, self.outcome(error))


class Flowing:
    """A response that goes out as it comes, because it is too large to be held.

    Should the client leave, the view's iterator is read to its end all the same.
    """

    def __init__(self, exchange: SyncExchange, pieces: Iterator[bytes]) -> None:
        self._exchange = exchange
        self._pieces = pieces
        self._ended = False
        self._may_pour = True
        self.result: Result | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        exchange = self._exchange
        while not self._ended:
            if self._may_pour and (poured := exchange.pour()):
                return poured
            self._take_next()
        poured, result = exchange.pour(), self.result
        if result is not None:
            if result.error is not None or result.cut_off:
                self.result = None
                raise exchange.error_after(result)
            if poured:
                return poured
        raise StopIteration

    def _take_next(self) -> None:
        exchange = self._exchange
        error: Exception | None = None
        try:
            piece = next(self._pieces, None)
            if piece is not None:
                self._may_pour = not exchange.hold(piece, last=False)
                return
            exchange.hold(b"", last=True)
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is the view's
            error = raised
        self._ended = True
        self.result = exchange.end_flow(error)

    def drain(self) -> None:
        """To its end, with no client."""
        while not self._ended:
            self._exchange.pour()
            self._take_next()

    def close(self) -> None:
        """What Django calls when the response was sent, or its client is gone."""
        self.drain()


def _bytes(piece: object) -> bytes:
    return piece if isinstance(piece, bytes) else str(piece).encode()


def in_place_of(
    response: HttpResponseBase, sent: HttpResponseBase, *, keep_cookies: bool = True
) -> HttpResponseBase:
    """Another object in the place of a view's response: what that one was to close, this one closes."""
    if keep_cookies:
        sent.cookies = response.cookies
    old: Any = response
    new: Any = sent
    new._resource_closers.extend(old._resource_closers)
    if getattr(old, "_has_been_logged", False):
        new._has_been_logged = True  # with what the view raised; Django would log the refusal beside it
    return sent


_STOCK = (ERROR_PAGE_TEMPLATE % {"title": "Server Error (500)", "details": ""}).encode()
"""Django's own page of an error, which says nothing; a project may have another one."""


def report(http: HttpRequest, error: Exception, response: HttpResponseBase) -> None:
    """An exception that was settled here, for the log and for those who listen to Django's signal."""
    try:
        raise error
    except Exception:  # noqa: BLE001 - it was raised here for `sys.exc_info`, which listeners look at
        signals.got_request_exception.send(sender=None, request=http)
        log_response(
            "%s: %s",
            response.reason_phrase,
            http.path,
            response=cast("HttpResponse", response),
            request=http,
            exception=sys.exc_info()[1],
        )


def known_response(http: HttpRequest, error: Exception) -> HttpResponseBase | None:
    """What Django itself makes of an exception, where that is a refusal and no failure."""
    if not isinstance(
        error, (Http404, PermissionDenied, BadRequest, SuspiciousOperation, MultiPartParserError)
    ):
        return None
    found: HttpResponseBase = response_for_exception(http, error)
    return found
