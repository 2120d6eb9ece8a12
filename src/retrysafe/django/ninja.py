"""Operations of django-ninja: claimed where ninja calls the function, settled when it has made a response.

    from retrysafe.django.ninja import idempotent

    @router.post("/orders", response={201: OrderOut})
    @idempotent(required=True, effects="database")
    def create(request, order: OrderIn): ...

The decorator stands below that of the router, next to the function.  Authentication, throttles and validation
have been asked by then, before a claim and before a replay.  Of what the function returns ninja makes a
response, and that is a part of the transaction; so is what an exception handler of the API does.

Ninja reads Django's settings when it is imported, so nothing else here imports this module.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any, TypeVar, Unpack, cast, overload

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja.decorators import decorate_view
from ninja.errors import ValidationError
from ninja.signature.utils import get_typed_signature

from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Attempt
from retrysafe.django.guarded.atomic import blocks, check_blocks
from retrysafe.django.guarded.exchange import SyncExchange, known_response
from retrysafe.django.guarded.exchange_async import AsyncExchange, broken_off
from retrysafe.django.guarded.held import is_held, leave_pending, note_claim
from retrysafe.django.guarded.request import give_back_encodings, withhold_encodings
from retrysafe.django.guarded.running import Surface, begin_transaction
from retrysafe.django.guarded.transaction import DjangoTransaction
from retrysafe.django.options import Options
from retrysafe.django.routes import operation_of
from retrysafe.django.views import GuardedView, Said
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.guard import Guard

__all__ = ["idempotent"]

F = TypeVar("F", bound=Callable[..., Any])

_CALL = "_retrysafe_ninja"
"""Where an operation that is running leaves what becomes of it, on the request."""


@overload
def idempotent(guard: F, /) -> F: ...
@overload
def idempotent(guard: Guard | None = None, /, **options: Unpack[Options]) -> Callable[[F], F]: ...
def idempotent(guard: Any = None, /, **options: Unpack[Options]) -> Any:
    """Have an operation run once per key; with the guard and the options of `retrysafe.django.idempotent`."""
    if guard is not None and not isinstance(guard, Guard):
        if not callable(guard) or options:
            raise ConfigurationError(f"@idempotent({guard!r}): expected a Guard, or nothing")
        return idempotent()(guard)  # @idempotent, without a call
    said = Said(guard, options)

    def decorate(function: F) -> F:
        return cast("F", _wrap(function, said))

    return decorate


def _wrap(function: Callable[..., Any], said: Said) -> Callable[..., Any]:
    name: str = getattr(function, "__qualname__", repr(function))
    if hasattr(function, "_ninja_operation"):
        raise ConfigurationError(
            f"@idempotent stands above the decorator of the route of {name}, where ninja does not see it: "
            "put it below, next to the function"
        )
    if not inspect.isroutine(function):
        raise ConfigurationError(
            f"@idempotent was put on {function!r}: expected the function of an operation"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{name} is a generator, whose response begins before it has run: @idempotent takes a function "
            "that returns its response"
        )
    awaited = inspect.iscoroutinefunction(function)
    view = GuardedView(function, said, awaited=awaited)
    called: Any
    if awaited:

        @wraps(function)
        async def called_async(request: object, *args: object, **named: object) -> object:
            call = _call_of(request)
            if call is None:
                return await function(request, *args, **named)  # by other code, such as a test
            assert isinstance(call, _AsyncCall)
            assert isinstance(request, HttpRequest)
            return await view.serve_async(request, None, (request, *args), named, call.begin)

        called = called_async
    else:

        @wraps(function)
        def called_sync(request: object, *args: object, **named: object) -> object:
            call = _call_of(request)
            if call is None:
                return function(request, *args, **named)
            assert isinstance(call, _Call)
            assert isinstance(request, HttpRequest)
            return view.serve(request, None, (request, *args), named, call.begin)

        called = called_sync
    # Types that are written as text are found where the function is, and not here.
    called.__signature__ = get_typed_signature(function)
    said.mark(called, awaited=awaited)
    settle: Callable[..., Any] = _settled_async if awaited else _settled
    decorated: Callable[..., Any] = decorate_view(settle)(called)
    return decorated


def _call_of(request: object) -> "_Call | _AsyncCall | None":
    found: _Call | _AsyncCall | None = getattr(request, "__dict__", {}).pop(_CALL, None)
    return found


def _settled(run: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """An operation's run, of which what was claimed is settled."""

    @wraps(run)
    def settled(request: HttpRequest, *args: Any, **named: Any) -> HttpResponseBase:
        call = vars(request)[_CALL] = _Call(request)
        try:
            try:
                response = run(request, *args, **named)
            except Exception as error:
                replaced = call.conclude_raised(error)
                if replaced is None:
                    raise
                return replaced
            except BaseException as end:
                call.break_off(end)
                raise
            return call.conclude(response)
        finally:
            call.leave()

    return settled


def _settled_async(
    run: Callable[..., Awaitable[HttpResponseBase]],
) -> Callable[..., Awaitable[HttpResponseBase]]:
    """The same of one that is awaited."""

    @wraps(run)
    async def settled(request: HttpRequest, *args: Any, **named: Any) -> HttpResponseBase:
        call = vars(request)[_CALL] = _AsyncCall(request)
        try:
            try:
                response = await run(request, *args, **named)
            except Exception as error:
                replaced = await call.conclude_raised(error)
                if replaced is None:
                    raise
                return replaced
            except BaseException as end:  # noqa: BLE001 - raised again, unless the function cancelled itself
                return await call.break_off(end)
            return await call.conclude(response)
        finally:
            call.leave()

    return settled


class _Claimed:
    """What both kinds of calls know of an operation, once it has claimed."""

    _left: Any
    _encodings: str | None
    attempt: Attempt | None = None
    error: Exception | None = None
    """What the function has raised, whatever response ninja has made of it."""

    def __init__(self, http: HttpRequest) -> None:
        self.http = http
        self._nothing_done: tuple[type[Exception], ...] = ()

    def _enter(self, attempt: Attempt, retry_on: Sequence[type[Exception]]) -> None:
        note_claim(self.http)
        self.attempt = attempt
        self._nothing_done = (NotDone, *retry_on)
        self._left, self._encodings = attempts.enter(attempt), withhold_encodings(self.http)

    def leave(self) -> None:
        """Its end, whichever it is."""
        vars(self.http).pop(_CALL, None)
        if self.attempt is not None:
            give_back_encodings(self.http, self._encodings)
            attempts.leave(self._left)

    def _note(self, error: Exception) -> None:
        self.error = error
        if isinstance(error, (*self._nothing_done, ValidationError)):
            assert self.attempt is not None
            self.attempt.not_started()


class _Call(_Claimed):
    """One run of an operation.  Without a claim it changes nothing of it."""

    _exchange: SyncExchange | None = None
    _transaction: DjangoTransaction | None = None
    _blocks: ExitStack | None = None
    _aliases: Sequence[str] = ()
    _returned: object = None

    def begin(
        self,
        exchange: SyncExchange,
        attempt: Attempt,
        run: Callable[[], object],
        surface: Surface,  # noqa: ARG002 - as views have it; here, ninja makes the response
        aliases: Sequence[str],
    ) -> object:
        """Run the function, in what is settled with its response."""
        self._exchange = exchange
        self._enter(attempt, exchange.rules.outcome.retry_on)
        try:
            if exchange.rules.policy.effects == "database":
                self._transaction = begin_transaction(exchange, aliases)
            if self._transaction is None:
                self._aliases, self._blocks = aliases, blocks(aliases)
            self._returned = run()
        except Exception as error:
            self._note(error)
            raise
        return self._returned

    def conclude(self, response: HttpResponseBase) -> HttpResponseBase:
        exchange, error = self._exchange, self.error
        if exchange is None:
            return response
        if isinstance(error, self._nothing_done):
            self._undo(error)
            return exchange.conclude_raised(error)
        if self._transaction is not None and (error is not None or self._could_not_be_shown(response)):
            # A response alone takes nothing back: ninja's handlers know of no transaction.
            self._transaction.mark_for_rollback()
        if self._blocks is not None:
            try:
                if response.status_code < 400:
                    check_blocks(self._aliases)
                self._blocks.close()
            except Exception as trouble:
                self._undo(trouble)
                self._leave_to_django(exchange, trouble)
                raise
        if error is not None and settings.DEBUG and response.status_code >= 500:
            return exchange.conclude_raised(error, response)  # a page for developers
        return exchange.conclude(response)

    def _could_not_be_shown(self, response: HttpResponseBase) -> bool:
        """Whether a refusal was not returned, but made of an exception of ninja's own after the function."""
        returned: Any = self._returned
        if response.status_code < 400 or isinstance(returned, HttpResponseBase):
            return False
        if type(returned).__module__ == "ninja.responses":  # a status, which older releases have as a pair
            return bool(returned.status_code != response.status_code)
        if isinstance(self._returned, tuple) and len(returned) == 2:
            return bool(returned[0] != response.status_code)
        match = self.http.resolver_match
        operation = operation_of(match.func, self.http.method or "") if match is not None else None
        return operation is None or list(operation.response_models) != [response.status_code]

    def conclude_raised(self, error: Exception) -> HttpResponseBase | None:
        """What no handler of the API has a response to: Django makes one, and with that it is settled."""
        exchange = self._exchange
        if exchange is None:
            return None
        self._undo(error)
        if isinstance(error, self._nothing_done):
            return exchange.conclude_raised(error)
        self._leave_to_django(exchange, error)
        return None

    def _leave_to_django(self, exchange: SyncExchange, error: Exception) -> None:
        if is_held(self.http):
            leave_pending(self.http, exchange, error)
        else:
            exchange.conclude_raised(error, known_response(self.http, error))

    def break_off(self, end: BaseException) -> None:
        if self._exchange is not None:
            self._undo(end)
            self._exchange.break_off(end)

    def _undo(self, error: BaseException) -> None:
        if self._transaction is not None:
            self._transaction.roll_back()
        if self._blocks is not None:
            self._blocks.__exit__(type(error), error, error.__traceback__)


class _AsyncCall(_Claimed):
    """The same of an operation that is awaited, which has no transaction of Django's."""

    _exchange: AsyncExchange | None = None

    async def begin(
        self,
        exchange: AsyncExchange,
        attempt: Attempt,
        run: Callable[[], Awaitable[object]],
        surface: Surface,  # noqa: ARG002 - as views have it
    ) -> object:
        self._exchange = exchange
        self._enter(attempt, exchange.rules.outcome.retry_on)
        try:
            return await run()
        except Exception as error:
            self._note(error)
            raise

    async def conclude(self, response: HttpResponseBase) -> HttpResponseBase:
        exchange, error = self._exchange, self.error
        if exchange is None:
            return response
        if isinstance(error, self._nothing_done):
            return await exchange.conclude_raised(error)
        if error is not None and settings.DEBUG and response.status_code >= 500:
            return await exchange.conclude_raised(error, response)
        return await exchange.conclude(response)

    async def conclude_raised(self, error: Exception) -> HttpResponseBase | None:
        exchange = self._exchange
        if exchange is None:
            return None
        if isinstance(error, self._nothing_done):
            return await exchange.conclude_raised(error)
        if is_held(self.http):
            leave_pending(self.http, exchange, error)
        else:
            await exchange.conclude_raised(error)
        return None

    async def break_off(self, end: BaseException) -> HttpResponseBase:
        if self._exchange is None:
            raise end
        return await broken_off(self._exchange, end)
