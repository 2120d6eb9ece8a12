"""One guarded request to an `async def` view: `exchange.py`, awaiting.

Whatever of a project may use the ORM is called in the thread that Django has for that.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.functional import SimpleLazyObject

from retrysafe import scopes
from retrysafe._core import model
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Scope
from retrysafe._core.steps import Gone, Outcome, Result, Run, TooLarge
from retrysafe._http.body import IN_MEMORY
from retrysafe._runtime.drive_async import (
    break_off_async,
    cancelled_from_inside,
    claim_async,
    conclude_async,
    drive_async,
)
from retrysafe.django.guarded.coroutines import is_awaited
from retrysafe.django.guarded.exchange import DjangoExchange, in_place_of, report
from retrysafe.django.guarded.request import set_headers, user_of

__all__ = ["AsyncExchange", "broken_off"]


class AsyncExchange(DjangoExchange):
    def desert(self) -> None:
        """The middleware that holds the request has seen to it."""

    async def claim_key(self) -> Attempt | model.Response:
        """Claim the key: what runs from now on, or what its client is sent instead."""
        self._flow = self.respond(self._runtime.is_draining, self._runtime.secret)
        reached = await claim_async(self._flow, self._runtime, self)
        return reached.attempt if isinstance(reached, Run) else self._settled(reached)

    async def identify(self) -> Scope | None:
        rule = self.rules.request.scope
        if scopes.needs_user(rule):
            self.request.found_user(await self._user())
        if isinstance(rule, scopes.ReadyMade):
            return await sync_to_async(rule.find)(self.request) if rule.blocks() else rule.find(self.request)
        found: Any = rule(self.request)
        return scopes.resolve(await found if hasattr(found, "__await__") else found)

    async def _user(self) -> object:
        http: Any = self.http
        found: Any = getattr(http, "user", None)
        # Set by a middleware as it is, or to be looked up in the session, for which there is `auser`.
        if isinstance(found, SimpleLazyObject) and hasattr(http, "auser"):
            return user_of(http, await http.auser())
        return user_of(http, cast("object", found))

    async def reauthorise(self) -> bool:
        ask: Any = self.rules.request.reauthorise
        if ask is None:
            return True
        return bool(await ask(self.http) if is_awaited(ask) else await sync_to_async(ask)(self.http))

    async def read_body(self) -> bytes | TooLarge | Gone:
        said = self.request.fields.get(b"content-length", b"")
        if said.isdigit() and int(said) <= IN_MEMORY and self.rules.request.fingerprint == "raw":
            return self._copy_body()
        return await asyncio.to_thread(self._copy_body)

    # --- what came of the view

    async def conclude(self, response: HttpResponseBase) -> HttpResponseBase:
        """Settle the view's response, and give what is sent."""
        if not response.streaming:
            assert isinstance(response, HttpResponse)
            return await self._end(self._take_whole(response), response)
        pieces = _pieces(response)
        try:
            is_whole = await self._hold_all(pieces, response)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the view's
            return await self._end(self.outcome(error), response)
        if is_whole:
            return await self._end(self.outcome(), response)
        await drive_async(self.let_flow(self._run), self._runtime, self)
        return await self._flowing(pieces, response)

    async def _hold_all(self, pieces: AsyncIterator[bytes], response: HttpResponseBase) -> bool:
        self._begin(response)
        async for piece in pieces:
            if not self.hold(piece, last=False):
                return False
        return self.hold(b"", last=True)

    async def conclude_raised(
        self, error: Exception, response: HttpResponseBase | None = None, *, logged: bool = True
    ) -> HttpResponseBase:
        """Settle what the view raised, with the response that was made of it, if there is one."""
        outcome = self.outcome(error) if response is None else self._of_exception(error, response)
        result = await conclude_async(self._flow, self._runtime, self, outcome)
        if settings.DEBUG and response is not None and response.status_code >= 500:
            return response  # the page for developers, of which nothing is stored
        return await self._deliver_async(result, response, logged=logged)

    async def break_off(self, end: BaseException) -> None:
        await break_off_async(self._flow, self._runtime, self, end)

    async def _end(self, outcome: Outcome, response: HttpResponseBase) -> HttpResponseBase:
        result = await conclude_async(self._flow, self._runtime, self, outcome)
        return await self._deliver_async(result, response)

    async def _deliver_async(
        self, result: Result, response: HttpResponseBase | None, *, logged: bool = False
    ) -> HttpResponseBase:
        sent = self._deliver(result, response, logged=True)
        if result.error is not None and not logged:
            await sync_to_async(report)(self.http, result.error, sent)
        return sent

    async def _flowing(self, pieces: AsyncIterator[bytes], response: HttpResponseBase) -> HttpResponseBase:
        flow = AsyncFlowing(self, pieces)
        if self.stage == "discarded":
            await flow.drain()
            assert flow.result is not None
            return await self._deliver_async(flow.result, response)
        head, self.opening = self.opening, None
        assert head is not None
        sent = StreamingHttpResponse(flow, status=head.status)
        set_headers(sent, head.headers)
        return in_place_of(response, sent)

    async def end_flow(self, error: Exception | None) -> Result:
        """The last of a response that was sent as it came."""
        return await conclude_async(self._flow, self._runtime, self, self.outcome(error))


async def broken_off(exchange: AsyncExchange, end: BaseException) -> HttpResponseBase:
    """What becomes of a view that ended by no exception of its own; raises it where that is an end."""
    if isinstance(end, asyncio.CancelledError):
        try:
            failure = cancelled_from_inside(end)
        except asyncio.CancelledError:
            await exchange.break_off(end)
            raise
        return await exchange.conclude_raised(failure, logged=False)
    await exchange.break_off(end)
    raise end


async def _pieces(response: HttpResponseBase) -> AsyncIterator[bytes]:
    content: Any = response
    async for piece in content:
        yield piece if isinstance(piece, bytes) else str(piece).encode()


class AsyncFlowing:
    """See `exchange.Flowing`."""

    def __init__(self, exchange: AsyncExchange, pieces: AsyncIterator[bytes]) -> None:
        self._exchange = exchange
        self._pieces = pieces
        self._loop = asyncio.get_running_loop()
        self._taking: asyncio.Task[None] | None = None
        """The next piece on its way: a server that cancels the waiting does not cancel the view."""
        self._ended = False
        self._may_pour = True
        self.result: Result | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        exchange = self._exchange
        while not self._ended:
            if self._may_pour and (poured := exchange.pour()):
                return poured
            await self._take_next()
        poured, result = exchange.pour(), self.result
        if result is not None:
            if result.error is not None or result.cut_off:
                self.result = None
                raise exchange.error_after(result)
            if poured:
                return poured
        raise StopAsyncIteration

    async def _take_next(self) -> None:
        if self._taking is None:
            self._taking = asyncio.ensure_future(self._take())
        await asyncio.shield(self._taking)
        self._taking = None

    async def _take(self) -> None:
        exchange = self._exchange
        error: Exception | None = None
        try:
            piece = await anext(self._pieces, None)
            if piece is not None:
                self._may_pour = not exchange.hold(piece, last=False)
                return
            exchange.hold(b"", last=True)
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is the view's
            error = raised
        self._ended = True
        self.result = await exchange.end_flow(error)

    async def drain(self) -> None:
        """To its end, with no client."""
        while not self._ended:
            self._exchange.pour()
            await self._take_next()

    def close(self) -> None:
        """What Django calls, in a thread, when the response was sent, or its client is gone."""
        if not self._ended:
            with suppress(RuntimeError):  # the loop is closed, and with it whatever was in it
                self._loop.call_soon_threadsafe(self._begin_draining)

    def _begin_draining(self) -> None:
        self._exchange.remember(asyncio.ensure_future(self.drain()))
