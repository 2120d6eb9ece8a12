"""Runs a view that has claimed, and settles what comes of it; blocking or awaited.

Whose views they are, Django's own or REST framework's, is a `Surface`: what makes a response of what a view
returns or raises.  In a transaction all of it is done before the end: what a serializer or a template still
reads or writes belongs to it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from retrysafe._core import attempt as attempts
from retrysafe._core import model
from retrysafe._core.attempt import Attempt
from retrysafe._http.held import check_claim
from retrysafe._runtime.transactions import join
from retrysafe.django.guarded.atomic import blocks, check_blocks, mark_for_rollback
from retrysafe.django.guarded.exchange import SyncExchange, known_response
from retrysafe.django.guarded.held import is_held, is_installed, leave_pending, note_claim
from retrysafe.django.guarded.request import give_back_encodings, new_response, withhold_encodings
from retrysafe.django.guarded.transaction import DjangoTransaction
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.guard import Guard
from retrysafe.policy import Rules
from retrysafe.stores.sql.django import DjangoStore

if TYPE_CHECKING:
    from retrysafe.django.guarded.exchange_async import AsyncExchange

_CLAIMED = "_retrysafe_claimed"

Arguments = tuple[object, ...]
Named = dict[str, object]


class Surface(Protocol):
    """What the framework of a view makes of responses and exceptions."""

    def finish(self, response: object) -> HttpResponseBase:
        """What the view has returned, rendered."""
        ...

    def catch(self, error: Exception, attempt: Attempt | None) -> HttpResponseBase:
        """The response to what the view raised; raises it where there is none."""
        ...

    def reply(self, exchange: Any, response: model.Response) -> HttpResponseBase:  # noqa: ANN401 - of either kind
        """What is sent instead of running the view: a replay, or a problem as the project shows errors."""
        ...


class PlainSurface:
    """Django's own views."""

    def __init__(self, name: str) -> None:
        self._name = name

    def finish(self, response: object) -> HttpResponseBase:
        if not isinstance(response, HttpResponseBase):
            raise TypeError(
                f"the view {self._name} returned {type(response).__name__}: expected an HttpResponse"
            )
        render: Any = getattr(response, "render", None)
        return cast("HttpResponseBase", render()) if callable(render) else response

    def catch(self, error: Exception, attempt: Attempt | None) -> HttpResponseBase:  # noqa: ARG002 - as any
        raise error

    def reply(self, exchange: Any, response: model.Response) -> HttpResponseBase:  # noqa: ANN401, ARG002 - as any
        return new_response(response)


def find_request(args: Arguments, named: Named | None = None) -> tuple[HttpRequest | None, object]:
    """The request that a view was called with, and its wrapping by a framework above Django."""
    for given in (*args[:2], None if named is None else named.get("request")):
        if isinstance(given, HttpRequest):
            return given, None
        inner: object = getattr(given, "_request", None)
        if isinstance(inner, HttpRequest):
            return inner, given
    return None, None


def surface_of(name: str, api: object, args: Arguments, named: Named) -> Surface:
    """Of a call of a view, with a request of a framework above Django or without."""
    if api is None:
        return PlainSurface(name)
    from retrysafe.django.rest_framework import ApiSurface

    return ApiSurface(api, args, named)


def claim_once(http: HttpRequest, rules: Rules, guard: Guard, what: str) -> None:
    """Before a view claims: refuse it where what it raises would not be settled, and a second time."""
    if not is_held(http) and not is_installed():
        raise ConfigurationError(
            f"{what}, and the project lacks what settles what views raise: add 'retrysafe.django.Middleware' "
            "to MIDDLEWARE"
        )
    found = vars(http)
    check_claim(
        model.Request(http.method or "", http.path, b"", ()),
        rules,
        guard.store,
        attempts.NOTHING_BEGUN,
        claiming=_CLAIMED in found,
        started=False,
    )
    found[_CLAIMED] = True


def is_part(http: HttpRequest, rules: Rules) -> bool:
    """Whether a method is called by one that has claimed, as `partial_update()` calls `update()`."""
    outer = attempts.running()
    mode = "tx" if rules.policy.effects == "database" else "lease"
    return _CLAIMED in vars(http) and outer is not None and outer.claim.mode == mode


Begin = Callable[[SyncExchange, Attempt, Callable[[], object], Surface, Sequence[str]], object]
BeginAsync = Callable[["AsyncExchange", Attempt, Callable[[], Awaitable[object]], Surface], Awaitable[object]]


async def _finished(surface: Surface, returned: object) -> HttpResponseBase:
    if callable(getattr(returned, "render", None)):
        from asgiref.sync import sync_to_async

        return await sync_to_async(surface.finish)(returned)  # a template may use the ORM
    return surface.finish(returned)


def run_unguarded(
    http: HttpRequest, rules: Rules, run: Callable[[], object], aliases: Sequence[str]
) -> object:
    """As Django would call it, its blocks included."""
    try:
        if not aliases:
            return run()
        with blocks(aliases):
            return run()
    except NotDone as error:
        mark_for_rollback()
        return not_done(http, rules, error)


def not_done(http: HttpRequest, rules: Rules, error: NotDone) -> HttpResponseBase:
    """The response to a request without a claim, whose view says that nothing has begun."""
    from retrysafe._core.problems import Problem
    from retrysafe._http.render import describe
    from retrysafe.django.guarded.request import read

    return new_response(describe(read(http), rules, Problem("not-done", str(error), error.retry_after)))


def run_claimed(
    exchange: SyncExchange,
    attempt: Attempt,
    run: Callable[[], object],
    surface: Surface,
    aliases: Sequence[str],
) -> HttpResponseBase:
    """Run a view that has claimed, and settle what comes of it."""
    http = exchange.http
    note_claim(http)
    left, encodings = attempts.enter(attempt), withhold_encodings(http)
    try:
        return _run(exchange, attempt, run, surface, aliases)
    finally:
        give_back_encodings(http, encodings)
        attempts.leave(left)


def _run(
    exchange: SyncExchange,
    attempt: Attempt,
    run: Callable[[], object],
    surface: Surface,
    aliases: Sequence[str],
) -> HttpResponseBase:
    http = exchange.http
    nothing_done: tuple[type[Exception], ...] = (NotDone, *exchange.rules.outcome.retry_on)
    transaction: DjangoTransaction | None = None
    try:
        if exchange.rules.policy.effects == "database":
            transaction = begin_transaction(exchange, aliases)
        with blocks(() if transaction is not None else aliases):
            try:
                returned = run()
            except nothing_done:
                raise
            except Exception as error:  # noqa: BLE001 - raised again, unless a framework makes a response of it
                returned = surface.catch(error, attempt)
                if transaction is not None:
                    transaction.mark_for_rollback()
            if transaction is None and getattr(returned, "status_code", 200) < 400:
                check_blocks(aliases)
        # In a transaction before its end: what a serializer or a template still reads or writes belongs to
        # it.
        response = surface.finish(returned)
    except nothing_done as nothing:
        attempt.not_started()
        return exchange.conclude_raised(nothing)
    except Exception as error:
        if transaction is not None:
            transaction.roll_back()
        if is_held(http):
            leave_pending(http, exchange, error)
        else:
            exchange.conclude_raised(error, known_response(http, error))
        raise
    except BaseException as end:
        exchange.break_off(end)
        raise
    return exchange.conclude(response)


def begin_transaction(exchange: SyncExchange, aliases: Sequence[str]) -> DjangoTransaction | None:
    """The transaction that the view joins; `None` where it runs unprotected, because the store is down."""
    store = exchange.store
    assert isinstance(store, DjangoStore), "refused when its rules were compiled"
    others = [alias for alias in aliases if alias != store.alias]
    transaction = join(store, DjangoTransaction, lambda: DjangoTransaction(store, others))
    if transaction is not None:
        transaction.begin()
    return transaction


async def run_claimed_async(
    exchange: "AsyncExchange", attempt: Attempt, run: Callable[[], Awaitable[object]], surface: Surface
) -> HttpResponseBase:
    """The same of a view that is awaited."""
    from retrysafe.django.guarded.exchange_async import broken_off

    http = exchange.http
    nothing_done: tuple[type[Exception], ...] = (NotDone, *exchange.rules.outcome.retry_on)
    note_claim(http)
    left, encodings = attempts.enter(attempt), withhold_encodings(http)
    try:
        try:
            response = await _finished(surface, await run())
        except nothing_done as nothing:
            attempt.not_started()
            return await exchange.conclude_raised(nothing)
        except Exception as error:
            if is_held(http):
                leave_pending(http, exchange, error)
            else:
                await exchange.conclude_raised(error)
            raise
        except BaseException as end:  # noqa: BLE001 - raised again, unless the view cancelled itself
            return await broken_off(exchange, end)
        return await exchange.conclude(response)
    finally:
        give_back_encodings(http, encodings)
        attempts.leave(left)
