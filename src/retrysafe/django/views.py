"""`@idempotent` and `IdempotentMixin`: views that claim their key when Django calls them.

The decorator stands next to the function, below every other: what stands above, such as `login_required`, is
asked before a replay too.  The same of methods of class-based views and of Django REST framework's, where
authentication, permissions and throttles have been asked by then.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, partial, wraps
from types import MethodType
from typing import Any, ClassVar, TypeVar, Unpack, cast, overload

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views import View

from retrysafe import scopes
from retrysafe._core import model
from retrysafe._core.attempt import Attempt
from retrysafe._http.marked import Marked, Unbound, exempt_reason, find_mark, mark
from retrysafe.django.guarded.atomic import aliases_of
from retrysafe.django.guarded.coroutines import is_awaited
from retrysafe.django.guarded.exchange import SyncExchange
from retrysafe.django.guarded.held import Claimants
from retrysafe.django.guarded.request import ARGUMENTS, has_header, is_guarded_outside
from retrysafe.django.guarded.running import (
    Arguments,
    Begin,
    BeginAsync,
    Named,
    Surface,
    claim_once,
    find_request,
    is_part,
    not_done,
    run_claimed,
    run_claimed_async,
    run_unguarded,
    surface_of,
)
from retrysafe.django.options import Options, of_engine
from retrysafe.django.routes import called_by, route_of
from retrysafe.django.settings import guard as project_guard
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.guard import Guard
from retrysafe.policy import Rules
from retrysafe.stores.sql.django import DjangoStore

F = TypeVar("F", bound=Callable[..., Any])


@overload
def idempotent(guard: F, /) -> F: ...
@overload
def idempotent(guard: Guard | None = None, /, **options: Unpack[Options]) -> Callable[[F], F]: ...
def idempotent(guard: Any = None, /, **options: Unpack[Options]) -> Any:
    """Have a view run once per key.

    Without a guard, it is that of `settings.RETRYSAFE`.  `options` are those of any route, such as
    `required`, `scope`, `fingerprint`, `retention`, `no_store` and `effects`.
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
        self._options = of_engine(options)  # without a guard, the rest is known only where it is served
        self._rules: dict[tuple[Guard, bool], Rules] = {}
        self._methods: dict[object, Callable[..., Any]] = {}
        """Of class-based views, as they are called instead."""

    @property
    def guard(self) -> Guard:
        return self._guard or project_guard()

    @property
    def own_guard(self) -> Guard | None:
        return self._guard

    def protected(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method as it is called in a view that is protected as a whole; made once."""
        if method not in self._methods:
            self._methods[method] = wrap(method, self)
        return self._methods[method]

    def mark(self, called: object, *, awaited: bool) -> None:
        """Leave on a view what holds for it."""
        own = self._guard
        rules_of = partial(self.rules_of, awaited=awaited)
        mark(called, Unbound(rules_of) if own is None else Marked(rules_of(own), own))

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
                        'effects="database" means a database of Django\'s, and the records are in '
                        f"{guard.store!r}: "
                        'name its alias in RETRYSAFE["DATABASE"] and leave RETRYSAFE["STORE"] out'
                    )
            if not awaited and is_awaited(rules.request.reauthorise):
                raise ConfigurationError(
                    "reauthorise= is asynchronous, and there are views that are not: make it a plain "
                    "function, which asynchronous views call in a thread"
                )
            self._rules[guard, awaited] = rules
        return rules


ASYNC_IN_DATABASE = (
    'effects="database" on an `async def` view: Django\'s connections and transactions are for blocking '
    'code. Make it a plain `def`, which Django runs in a thread under ASGI, or say effects="outside"'
)


def wrap(function: Callable[..., Any], said: Said) -> Callable[..., Any]:
    """The view that Django calls instead: it claims, and then runs what was decorated."""
    if inspect.isclass(function):
        raise ConfigurationError(
            f"@idempotent was put on the class {function.__qualname__}: let it have IdempotentMixin, or "
            'decorate its methods, as in @method_decorator(idempotent(), name="post")'
        )
    inner = _innermost(function)
    if not inspect.isroutine(inner) or hasattr(function, "cls"):
        raise ConfigurationError(
            f"@idempotent was put on {function!r}: expected a view, or a method of one. Below "
            "@api_view and @action, next to the function: what stands below it is not asked before a replay"
        )
    awaited = is_awaited(function)
    view = GuardedView(function, said, awaited=awaited)
    called: Callable[..., Any]
    if awaited:

        async def called_async(*args: object, **named: object) -> object:
            http, api = find_request(args, named)
            if http is None:
                return await function(*args, **named)  # by other code, such as a test, and not by Django
            return await view.serve_async(http, api, args, named)

        called = _as(function)(called_async)
    else:

        def called_sync(*args: object, **named: object) -> object:
            http, api = find_request(args, named)
            if http is None:
                return function(*args, **named)
            if (owner := _dispatching(inner, args)) is not None:
                protect_method(owner, http, said.protected)
                return function(*args, **named)
            return view.serve(http, api, args, named)

        called = _as(function)(called_sync)
    said.mark(called, awaited=awaited)
    return called


def _as(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return wraps(_innermost(function))


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `method_decorator` has bound to its view."""
    inner: Callable[..., Any] | None = getattr(function, "func", None)
    return inner if inner is not None and type(function) is partial else function


def _dispatching(function: object, args: Arguments) -> "View[Any] | None":
    """The view whose `dispatch` is called: it asks who may do what, and its methods claim after that."""
    if getattr(function, "__name__", "") != "dispatch":
        return None
    owner: Any = getattr(function, "__self__", args[0] if args else None)
    return owner if isinstance(owner, View) else None  # pyright: ignore[reportUnknownVariableType]  # of whatever


class GuardedView:
    """A decorated function, and what holds for it."""

    def __init__(self, function: Callable[..., Any], said: Said, *, awaited: bool) -> None:
        self._function = function
        self._said = said
        self._awaited = awaited
        inner = _innermost(function)
        self._name: str = getattr(inner, "__qualname__", repr(inner))

    # --- blocking

    def serve(
        self, http: HttpRequest, api: object, args: Arguments, named: Named, begin: Begin | None = None
    ) -> object:
        """Claim, and run the view: as `begin` does, where it is settled elsewhere."""
        guard = self._said.guard
        rules = self._said.rules_of(guard, awaited=False)
        if api is not None and is_part(http, rules):
            return self._function(*args, **named)
        surface = surface_of(self._name, api, args, named)
        run = partial(self._function, *args, **named)
        aliases = aliases_of(http)
        if is_guarded_outside(http) or not self.is_keyed(http, rules):
            refused = self.without_key(http, guard, rules, surface)
            return refused if refused is not None else run_unguarded(http, rules, run, aliases)
        self.prepare(http, guard, rules, args, named)
        exchange = SyncExchange(http, rules, guard, route_of(http))
        claimed = exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return surface.reply(exchange, claimed)
        return (begin or run_claimed)(exchange, claimed, run, surface, aliases)

    # --- awaiting

    async def serve_async(
        self, http: HttpRequest, api: object, args: Arguments, named: Named, begin: BeginAsync | None = None
    ) -> object:
        from retrysafe.django.guarded.exchange_async import AsyncExchange

        guard = self._said.guard
        rules = self._said.rules_of(guard, awaited=True)
        surface = surface_of(self._name, api, args, named)
        if is_guarded_outside(http) or not self.is_keyed(http, rules):
            refused = self.without_key(http, guard, rules, surface)
            if refused is not None:
                return refused
            try:
                return await self._function(*args, **named)
            except NotDone as error:
                return not_done(http, rules, error)
        self.prepare(http, guard, rules, args, named)
        exchange = AsyncExchange(http, rules, guard, route_of(http))
        claimed = await exchange.claim_key()
        if not isinstance(claimed, Attempt):
            return surface.reply(exchange, claimed)
        run = partial(self._function, *args, **named)
        return await (begin or run_claimed_async)(exchange, claimed, run, surface)

    # --- both

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self._function).parameters

    @cached_property
    def _takes_any(self) -> bool:
        """Whether it takes whatever its route gives."""
        return any(one.kind is one.VAR_KEYWORD for one in self._parameters.values())

    def is_keyed(self, http: HttpRequest, rules: Rules) -> bool:
        return http.method in rules.wire.methods and has_header(http, rules.names.key)

    def prepare(self, http: HttpRequest, guard: Guard, rules: Rules, args: Arguments, named: Named) -> None:
        """Before the claim: what must hold for it."""
        claim_once(http, rules, guard, f"{self._name} is decorated with @idempotent")
        found = vars(http)
        parameters = self._parameters
        names = {*parameters, *named} if self._takes_any else parameters
        scopes.check_arguments(rules.request.scope, names, self._name)
        found[ARGUMENTS] = dict(zip(parameters, args, strict=False)) | named

    def without_key(
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
            return surface.reply(exchange, refused)
        guard.runtime.keyless(method, http.path, route_of(http), warn=required == "warn")
        return None


class IdempotentMixin:
    """Has the methods of a class-based view run once per key: all that change something.

    Before `View`, and after mixins that are to be asked first, or before them: they are asked before the
    claim either way.  A method that has a decorator of its own keeps what that one says, and one with
    `@exempt` is left alone.
    """

    idempotency_options: ClassVar[Options] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        order = cls.__mro__
        if View in order and order.index(View) < order.index(IdempotentMixin):
            raise ConfigurationError(
                f"{cls.__qualname__} has IdempotentMixin after the view that it is mixed into, whose "
                "dispatch() would be called instead of its own: write (IdempotentMixin, View)"
            )

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as Django has it
        protect_method(self, request, partial(protected_method, type(self)))
        following: Any = super()
        return following.dispatch(request, *args, **kwargs)


_SAFE = frozenset({"get", "head", "options", "trace"})

_OF_CLASS = "_retrysafe_said"


def protected_method(view_class: type[IdempotentMixin], function: Callable[..., Any]) -> Callable[..., Any]:
    """A method as it is called in a view with the mixin; made once for each class."""
    said: Said | None = vars(view_class).get(_OF_CLASS)
    if said is None:
        said = Said(None, view_class.idempotency_options)
        setattr(view_class, _OF_CLASS, said)
    return said.protected(function)


def protect_method(
    view: "View[Any] | IdempotentMixin",
    request: HttpRequest,
    protected: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Have a class-based view call a protected method in the place of one that does not claim itself."""
    name = (request.method or "").lower()
    handler: Any = getattr(view, name, None) if name not in _SAFE else None
    if not inspect.ismethod(handler) or exempt_reason(handler) is not None:
        return
    if not any(find_mark(one) for one in (handler, *called_by(type(view), handler.__func__))):
        setattr(view, name, MethodType(protected(handler.__func__), view))
