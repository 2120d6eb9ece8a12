"""`@idempotent` and `IdempotentMixin`: views that claim their key when Django calls them.

The decorator stands next to the function, below every other: what stands above, such as `login_required`, is
asked before a replay too.  The same of methods of class-based views and of Django REST framework's, where
authentication, permissions and throttles have been asked by then.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from types import MethodType
from typing import Any, ClassVar, Protocol, TypeVar, Unpack, cast, overload

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from retrysafe import scopes
from retrysafe._core import attempt as attempts
from retrysafe._core import model
from retrysafe._core.attempt import Attempt
from retrysafe._http.held import check_claim
from retrysafe._http.marked import Marked, Unbound, find_mark, mark
from retrysafe._runtime.transactions import join
from retrysafe.django import scopes as django_scopes
from retrysafe.django.atomic import aliases_of, blocks
from retrysafe.django.exchange import SyncExchange, known_response
from retrysafe.django.held import Claimants, is_held, is_installed, leave_pending, note_claim
from retrysafe.django.request import ARGUMENTS, has_header, is_guarded_outside, new_response
from retrysafe.django.routes import route_of
from retrysafe.django.settings import guard as project_guard
from retrysafe.django.transaction import DjangoTransaction
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.guard import Guard
from retrysafe.policy import Options, Rules, check_options
from retrysafe.stores.sql.django import DjangoStore

F = TypeVar("F", bound=Callable[..., Any])

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

    def refuse(self, exchange: Any, response: model.Response) -> HttpResponseBase:  # noqa: ANN401 - of either kind
        """A problem, as the project shows its errors."""
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

    def refuse(self, exchange: Any, response: model.Response) -> HttpResponseBase:  # noqa: ANN401, ARG002 - as any
        return new_response(response)


@overload
def idempotent(guard: F, /) -> F: ...
@overload
def idempotent(guard: Guard | None = None, /, **options: Unpack[Options]) -> Callable[[F], F]: ...
def idempotent(guard: Any = None, /, **options: Unpack[Options]) -> Any:
    """Have a view run once per key.

    Without a guard, it is that of `settings.RETRYSAFE`.  `options` are those of any route, such as `required`,
    `scope`, `fingerprint`, `retention`, `no_store` and `effects`.
    """
    if guard is not None and not isinstance(guard, Guard):
        if not callable(guard) or options:
            raise ConfigurationError(f"@idempotent({guard!r}): expected a Guard, or nothing")
        return idempotent()(guard)  # @idempotent, without a call
    said = Said(guard, options)

    def decorate(function: F) -> F:
        return cast("F", wrap(function, said))

    return decorate


class Said:
    """What one `@idempotent` says, and what follows from it; of all functions that it is put on."""

    def __init__(self, guard: Guard | None, options: Options) -> None:
        self._guard = guard
        if guard is not None:
            Claimants.guards.add(guard)
        self._options = options
        check_options(options)  # without a guard, the rest is known only where it is served
        if "scope" in options:
            self._options = {**options, "scope": django_scopes.of_django(options["scope"])}
        self._rules: dict[tuple[Guard, bool], Rules] = {}

    @property
    def guard(self) -> Guard:
        return self._guard or project_guard()

    @property
    def own_guard(self) -> Guard | None:
        return self._guard

    def rules_of(self, guard: Guard, *, awaited: bool) -> Rules:
        rules = self._rules.get((guard, awaited))
        if rules is None:
            # A response is stored when it is there, and Django has nothing that would come after it.
            rules = guard.compile_route({**self._options, "background": "before"})
            if rules.policy.effects == "database":
                if awaited:
                    raise ConfigurationError(ASYNC_IN_DATABASE)
                if not isinstance(guard.store, DjangoStore):
                    raise ConfigurationError(
                        f'effects="database" means a database of Django\'s, and the records are in {guard.store!r}: '
                        'name its alias in RETRYSAFE["DATABASE"] and leave RETRYSAFE["STORE"] out'
                    )
            if not awaited and iscoroutinefunction(rules.request.reauthorise):
                raise ConfigurationError(
                    "reauthorise= is asynchronous, and there are views that are not: make it a plain function, "
                    "which asynchronous views call in a thread"
                )
            self._rules[guard, awaited] = rules
        return rules


ASYNC_IN_DATABASE = (
    'effects="database" on an `async def` view: Django\'s connections and transactions are for blocking code. Make '
    'it a plain `def`, which Django runs in a thread under ASGI, or say effects="outside"'
)


def wrap(function: Callable[..., Any], said: Said) -> Callable[..., Any]:
    """The view that Django calls instead: it claims, and then runs what was decorated."""
    if inspect.isclass(function):
        raise ConfigurationError(
            f"@idempotent was put on the class {function.__qualname__}: let it have IdempotentMixin, or decorate "
            'its methods, as in @method_decorator(idempotent(), name="post")'
        )
    inner: object = function.func if isinstance(function, partial) else function
    if not inspect.isroutine(inner):
        raise ConfigurationError(
            f"@idempotent was put on {function!r}: expected a view, or a method of one. Below "
            "@api_view and @action, next to the function"
        )
    awaited = iscoroutinefunction(function)
    view = _View(function, said, awaited=awaited)
    called: Callable[..., Any]
    if awaited:

        async def called_async(*args: object, **named: object) -> object:
            http, api = find_request(args)
            if http is None:
                return await function(*args, **named)  # by other code, such as a test, and not by Django
            return await view.serve_async(http, api, args, named)

        called = markcoroutinefunction(_as(function)(called_async))
    else:

        def called_sync(*args: object, **named: object) -> object:
            http, api = find_request(args)
            if http is None:
                return function(*args, **named)
            return view.serve(http, api, args, named)

        called = _as(function)(called_sync)
    own = said.own_guard
    mark(
        called,
        Unbound(partial(said.rules_of, awaited=awaited))
        if own is None
        else Marked(said.rules_of(own, awaited=awaited), own),
    )
    return called


def _as(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return wraps(function.func if isinstance(function, partial) else function)


def find_request(args: Arguments) -> tuple[HttpRequest | None, object]:
    """The request that a view was called with, and its wrapping by a framework above Django."""
    for given in args[:2]:
        if isinstance(given, HttpRequest):
            return given, None
        inner: object = getattr(given, "_request", None)
        if isinstance(inner, HttpRequest):
            return inner, given
    return None, None


class _View:
    """A decorated function, and what holds for it."""

    def __init__(self, function: Callable[..., Any], said: Said, *, awaited: bool) -> None:
        self._function = function
        self._said = said
        self._awaited = awaited
        inner = function.func if isinstance(function, partial) else function
        self._name: str = getattr(inner, "__qualname__", repr(inner))

    # --- blocking

    def serve(self, http: HttpRequest, api: object, args: Arguments, named: Named) -> object:
        guard = self._said.guard
        rules = self._said.rules_of(guard, awaited=False)
        surface = self._surface(api, args, named)
        run = partial(self._function, *args, **named)
        aliases = aliases_of(http)
        if is_guarded_outside(http) or not self._is_keyed(http, rules):
            refused = self._without_key(http, guard, rules, surface)
            return refused if refused is not None else _unguarded(http, rules, run, surface, aliases)
        self._prepare(http, guard, rules, args, named)
        exchange = SyncExchange(http, rules, guard, route_of(http))
        claimed = exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return surface.refuse(exchange, claimed) if exchange.is_refused else new_response(claimed)
        left, encodings = attempts.enter(claimed), withhold_encodings(http)
        try:
            return _run(exchange, claimed, run, surface, aliases)
        finally:
            give_back_encodings(http, encodings)
            attempts.leave(left)

    # --- awaiting

    async def serve_async(self, http: HttpRequest, api: object, args: Arguments, named: Named) -> object:
        from retrysafe.django.exchange_async import AsyncExchange, cancelled_from_inside

        guard = self._said.guard
        rules = self._said.rules_of(guard, awaited=True)
        surface = self._surface(api, args, named)
        if is_guarded_outside(http) or not self._is_keyed(http, rules):
            refused = self._without_key(http, guard, rules, surface)
            return refused if refused is not None else await self._function(*args, **named)
        self._prepare(http, guard, rules, args, named)
        exchange = AsyncExchange(http, rules, guard, route_of(http))
        claimed = await exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return surface.refuse(exchange, claimed) if exchange.is_refused else new_response(claimed)
        note_claim(http)
        left, encodings = attempts.enter(claimed), withhold_encodings(http)
        try:
            try:
                returned = await self._function(*args, **named)
                response = await _finished(surface, returned)
            except (NotDone, *rules.outcome.retry_on) as nothing:
                claimed.not_started()
                return await exchange.conclude_raised(nothing)
            except Exception as error:
                if is_held(http):
                    leave_pending(http, exchange, error)
                else:
                    await exchange.conclude_raised(error)
                raise
            except BaseException as end:
                import asyncio

                if isinstance(end, asyncio.CancelledError):
                    try:
                        failure = cancelled_from_inside(end)
                    except asyncio.CancelledError:
                        await exchange.break_off(end)
                        raise
                    return await exchange.conclude_raised(failure, logged=False)
                await exchange.break_off(end)
                raise
            return await exchange.conclude(response)
        finally:
            give_back_encodings(http, encodings)
            attempts.leave(left)

    # --- both

    def _surface(self, api: object, args: Arguments, named: Named) -> Surface:
        if api is None:
            return PlainSurface(self._name)
        from retrysafe.django.rest_framework import ApiSurface

        return ApiSurface(api, args, named)

    def _is_keyed(self, http: HttpRequest, rules: Rules) -> bool:
        return http.method in rules.wire.methods and has_header(http, rules.names.key)

    def _prepare(self, http: HttpRequest, guard: Guard, rules: Rules, args: Arguments, named: Named) -> None:
        """Before the claim: what must hold for it."""
        if not is_held(http) and not is_installed():
            raise ConfigurationError(
                f"{self._name} is decorated with @idempotent, and the project lacks what settles what views "
                "raise: add 'retrysafe.django.Middleware' to MIDDLEWARE"
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
        parameters = inspect.signature(self._function).parameters
        scopes.check_arguments(rules.request.scope, _names_of(parameters, named), self._name)
        found[ARGUMENTS] = dict(zip(parameters, args, strict=False)) | named

    def _without_key(
        self, http: HttpRequest, guard: Guard, rules: Rules, surface: Surface
    ) -> HttpResponseBase | None:
        """The refusal of a request that has no key, where it needs one."""
        method = http.method or ""
        if method not in rules.wire.methods or is_guarded_outside(http):
            return None
        required = rules.request.required
        if required is True:
            exchange = SyncExchange(http, rules, guard, route_of(http))
            refused = exchange.claim_key()
            assert isinstance(refused, model.Response), "without a key there is nothing to claim"
            return surface.refuse(exchange, refused)
        guard.runtime.keyless(method, http.path, route_of(http), warn=required == "warn")
        return None


def _names_of(parameters: Any, named: Named) -> set[str]:  # noqa: ANN401 - a mapping of inspect's
    """What a view has; of one that takes whatever its route gives, that."""
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return {*parameters, *(named if takes_any else ())}


async def _finished(surface: Surface, returned: object) -> HttpResponseBase:
    if callable(getattr(returned, "render", None)):
        from asgiref.sync import sync_to_async

        return await sync_to_async(surface.finish)(returned)  # a template may use the ORM
    return surface.finish(returned)


def _unguarded(
    http: HttpRequest, rules: Rules, run: Callable[[], object], surface: Surface, aliases: Sequence[str]
) -> object:
    """As Django would call it, its blocks included."""
    with blocks(aliases):
        try:
            return run()
        except NotDone as error:
            if isinstance(surface, PlainSurface):
                return _not_done(http, rules, error)
            return surface.catch(error, None)


def _not_done(http: HttpRequest, rules: Rules, error: NotDone) -> HttpResponseBase:
    from retrysafe._core.problems import Problem
    from retrysafe._http.render import describe
    from retrysafe.django.request import read

    return new_response(describe(read(http), rules, Problem("not-done", str(error), error.retry_after)))


def _run(
    exchange: SyncExchange,
    attempt: Attempt,
    run: Callable[[], object],
    surface: Surface,
    aliases: Sequence[str],
) -> HttpResponseBase:
    """Run a view that has claimed, and settle what comes of it."""
    http, nothing_done = exchange.http, (NotDone, *exchange.rules.outcome.retry_on)
    transaction: DjangoTransaction | None = None
    try:
        if exchange.rules.policy.effects == "database":
            transaction = _begin_transaction(exchange, aliases)
        with blocks(() if transaction is not None else aliases):
            try:
                returned = run()
            except nothing_done:
                raise
            except Exception as error:  # noqa: BLE001 - raised again, unless a framework makes a response of it
                returned = surface.catch(error, attempt)
                if transaction is not None:
                    transaction.mark_for_rollback()
        # In a transaction before its end: what a serializer or a template still reads or writes belongs to it.
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


def _begin_transaction(exchange: SyncExchange, aliases: Sequence[str]) -> DjangoTransaction | None:
    """The transaction that the view joins; `None` where it runs unprotected, because the store is down."""
    store = exchange.store
    assert isinstance(store, DjangoStore), "refused when its rules were compiled"
    others = [alias for alias in aliases if alias != store.alias]
    transaction = join(store, DjangoTransaction, lambda: DjangoTransaction(store, others))
    if transaction is not None:
        transaction.begin()
    return transaction


class IdempotentMixin:
    """Has the methods of a class-based view run once per key: all that change something.

    Before `View`, and after mixins that are to be asked first, or before them: they are asked before the claim
    either way.  A method that has a decorator of its own keeps what that one says.
    """

    idempotency_options: ClassVar[Options] = {}

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as Django has it
        name = (request.method or "").lower()
        handler: Any = getattr(self, name, None) if name not in _SAFE else None
        if inspect.ismethod(handler) and find_mark(handler) is None:
            setattr(self, name, MethodType(protected_method(type(self), handler.__func__), self))
        following: Any = super()
        return following.dispatch(request, *args, **kwargs)


_SAFE = frozenset({"get", "head", "options", "trace"})

_OF_CLASS = "_retrysafe_methods"


def protected_method(view_class: type[IdempotentMixin], function: Callable[..., Any]) -> Callable[..., Any]:
    """A method as it is called in a view with the mixin; made once for each class."""
    of_class: dict[object, Any] | None = vars(view_class).get(_OF_CLASS)
    if of_class is None:
        of_class = {}
        setattr(view_class, _OF_CLASS, of_class)
    if function not in of_class:
        said = of_class.setdefault(None, Said(None, view_class.idempotency_options))
        of_class[function] = wrap(function, said)
    found: Callable[..., Any] = of_class[function]
    return found
