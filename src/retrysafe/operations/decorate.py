"""`@operation`: a function that can be called with a key, and is then done once.

    @operation(guard, action="charge", target="order_id")
    def charge(order_id: str, amount: Decimal) -> Receipt: ...

    done = charge.once("o-1", amount, key=key)      # .value, .replayed

Without a key, `charge("o-1", amount)` is the function as it was written.  Everything that can be checked is
checked when it is decorated: options, parameters, and whether what it returns can be stored with its type.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import update_wrapper
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Never,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from retrysafe import scopes
from retrysafe._core import attempt as attempts
from retrysafe._core import steps, tokens
from retrysafe._core.model import Scope
from retrysafe._core.times import Duration, seconds
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.guard import Guard
from retrysafe.operations import arguments
from retrysafe.operations.arguments import Arguments, Parameters, Target
from retrysafe.operations.call import AsyncCall, Owner, Stored, SyncCall
from retrysafe.operations.done import Done
from retrysafe.operations.values import Codec, ErrorCodec, codec
from retrysafe.policy import OperationOptions, Options, Rules
from retrysafe.refusals import Refused
from retrysafe.scopes import ScopeAnswer

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")

OperationScope = ScopeAnswer | Callable[..., "ScopeAnswer | Awaitable[ScopeAnswer]"]
"""An owner, or a function of the arguments that finds it."""

ANNOTATED: Final = object()
"""What a function returns is as it is annotated."""

TAKEN = frozenset({"key", "scope", "wait"})
"""Arguments of `once`, and so no parameters of a function that it calls."""


class Declared:
    """All that is known of an operation before it is called."""

    def __init__(
        self,
        guard: Guard,
        function: Callable[..., object],
        action: str,
        target: Target | None,
        scope: OperationScope,
        ignore: Sequence[str],
        raises: tuple[type[Exception], ...],
        returns: object,
        options: Mapping[str, object],
    ) -> None:
        check_guard(guard)
        name = arguments.name_of(function)
        if not action or not isinstance(action, str):
            raise ConfigurationError(f'{name}: action={action!r} must be a word, such as "charge"')
        self.guard = guard
        self.name = name
        self.action = action
        self.scope = scope
        _check_scope(scope, name)
        self.rules = compile_options(guard, options, name)
        _check_raises(raises, (NotDone, *self.rules.outcome.retry_on), name)
        self.parameters = Parameters(function, target, ignore)
        if isinstance(scope, scopes.ReadyMade):
            scopes.check_arguments(scope, self.parameters.names, name)
        self.stored = Stored(
            _codec(function, returns, name, stores=not self.rules.outcome.no_store), ErrorCodec(raises)
        )
        self._waiting: dict[float, Rules] = {}

    def waiting(self, wait: Duration | None) -> Rules:
        """The rules of a call that waits for the first one up to so many seconds."""
        if wait is None:
            return self.rules
        try:
            patience = seconds(wait)
        except ValueError as refusal:
            raise ConfigurationError(f"{self.action}: wait={refusal}") from None
        if patience <= 0:
            raise ConfigurationError(f"{self.action}: wait={wait!r} must be greater than zero")
        found = self._waiting.get(patience)
        if found is None:
            policy = self.rules.policy._replace(in_flight="wait", wait_for=patience)
            found = self.rules._replace(policy=policy)
            if len(self._waiting) < 16:
                self._waiting[patience] = found
        return found

    def bind(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[Arguments, steps.Operation]:
        bound = self.parameters.bind(args, kwargs)
        target = self.parameters.target(args, kwargs, bound)
        running = attempts.running()
        return bound, steps.Operation(
            self.action,
            target,
            self.parameters.fingerprint(self.action, target, bound),
            tokens.draw().hex(),
            (running.claim.correlation_id or running.request_id) if running else None,
        )

    def owner(
        self, scope: ScopeAnswer, args: tuple[object, ...], kwargs: Mapping[str, object], bound: Arguments
    ) -> Owner:
        """How the owner of a key is found: as the call says, else the operation, else the guard, else that of
        the guarded call that runs here."""
        if scope is not None:
            return lambda: scope
        declared = self.scope
        if (find := scopes.by_argument(declared)) is not None:
            return lambda: find(self.parameters.complete(bound))
        if callable(declared) and not isinstance(declared, scopes.ReadyMade):
            return lambda: declared(*args, **kwargs)
        if isinstance(declared, scopes.ReadyMade):
            return lambda: scopes.of_service(declared)
        if declared is not None:
            return lambda: declared
        if (service := scopes.of_service(self.guard.rules.request.scope)) is not None:
            return lambda: service
        running = attempts.running()
        if running is None:
            raise ConfigurationError(
                f"{self.name}: it is not known whose key this is: pass scope= to once() or @operation(...), "
                'or build its guard with scope=scopes.service("billing"). Inside of a guarded request the '
                "scope is that of the request"
            )
        inherited = Scope(running.scope)
        return lambda: inherited


def _check_scope(scope: object, name: str) -> None:
    if isinstance(scope, scopes.ReadyMade):
        if scopes.of_service(scope) is None and scopes.by_argument(scope) is None:
            raise ConfigurationError(
                f"{name}: scope={scope!r} is a rule for requests, and an operation has none: pass an id, "
                'scopes.argument("caller.id"), scopes.service("billing"), or a function of the arguments'
            )
    elif scope is scopes.user:
        raise ConfigurationError(
            f"{name}: scope=scopes.user is a rule for requests, and an operation has none: pass an id, or a "
            "function of the arguments that returns it"
        )
    elif scope is not None and not callable(scope) and scopes.resolve(cast("ScopeAnswer", scope)) is None:
        raise ConfigurationError(
            f"{name}: scope={scope!r} is not an owner: pass an id, or a function of the arguments that "
            "returns it"
        )


def _check_raises(raises: object, released: tuple[type[Exception], ...], name: str) -> None:
    declared = cast("tuple[object, ...]", raises) if isinstance(raises, tuple) else (None,)
    if not all(isinstance(one, type) and issubclass(one, Exception) for one in declared):
        raise ConfigurationError(
            f"{name}: raises={raises!r} must be a tuple of exception classes, such as (CardDeclined,)"
        )
    for one in cast("tuple[type[Exception], ...]", declared):
        if issubclass(one, released):
            raise ConfigurationError(
                f"{name}: raises= has {one.__name__}, which says that nothing was done: it is NotDone, or in "
                "retry_on. It leaves the key free, and is not stored. Leave it out of one of both"
            )


def _codec(function: Callable[..., object], returns: object, name: str, *, stores: bool) -> Codec:
    try:
        return codec(_returns(function, returns), name=name)
    except ConfigurationError:
        if stores:
            raise
        return codec(None, name=name)  # nothing of it is written


def _returns(function: Callable[..., object], returns: object) -> object:
    if returns is not ANNOTATED:
        return returns
    found = arguments.returned(function)
    if found is arguments.UNRESOLVED:
        annotation = arguments.signature_of(function).return_annotation
        raise ConfigurationError(
            f"{arguments.name_of(function)}: its return annotation {annotation!r} is not a type, or has "
            "names that are not known when it is decorated: import them also at run time, or pass returns="
        )
    return found


def check_guard(guard: object) -> None:
    if not isinstance(guard, Guard):
        raise ConfigurationError(f"guard={guard!r} is not a Guard: build one with Guard(store, scope=...)")


def compile_options(guard: Guard, options: Mapping[str, object], name: str) -> Rules:
    known = OperationOptions.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise ConfigurationError(
            f"{name}: {unknown[0]} is not an option of operations: there are {', '.join(sorted(known))}"
        )
    return guard.compile(cast("Options", options))


class _Base(Generic[P, T]):
    """What operations of plain functions and of coroutine functions share."""

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self, declared: Declared, function: Callable[..., Any], bound: tuple[object, ...] = ()
    ) -> None:
        self._declared = declared
        self._function = function
        self._bound = bound
        update_wrapper(cast("Callable[..., Any]", self), function)

    @property
    def guard(self) -> Guard:
        return self._declared.guard

    @property
    def action(self) -> str:
        return self._declared.action

    @property
    def rules(self) -> Rules:
        return self._declared.rules

    def _bind(self, instance: object) -> Self:
        """As a function in a class becomes a method."""
        return self if instance is None else type(self)(self._declared, self._function, (instance,))

    def __reduce__(self) -> str | tuple[object, ...]:
        """As a function or a method, by its name: a guard cannot be sent to another process."""
        if self._bound:
            return getattr, (self._bound[0], self.__name__)
        return self._declared.name

    def __repr__(self) -> str:
        return f"<operation {self._declared.name}: {self._declared.action}>"


class Operation(_Base[P, T]):
    """A plain function that can be called with a key."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function as it was written, without a key: nothing is looked up or stored."""
        result: T = self._function(*self._bound, *args, **kwargs)
        return result

    def once(
        self,
        *args: Any,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        **kwargs: Any,
    ) -> Done[T]:
        """Call the function, unless it was called with this key before: then give what came of it.

        Raises what the function raises, or a `Refused`.  `scope` says whose key it is; `wait` for how long to
        wait for a first call that is still running.
        """
        return self._call(args, kwargs, key, scope, wait).run_once()

    def try_once(
        self,
        *args: Any,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        **kwargs: Any,
    ) -> Done[T] | Refused:
        """As `once`, with refusals as values: the same objects, returned and not raised."""
        return self._call(args, kwargs, key, scope, wait).try_once()

    def keyed(
        self, key: str, *, scope: ScopeAnswer = None, wait: Duration | None = None
    ) -> Callable[P, Done[T]]:
        """As `once`, with arguments that type checkers check: `charge.keyed(key)("o-1", amount)`.

        In the signature of `once` they cannot: PEP 612 allows no `key` between `*P.args` and `**P.kwargs`.
        """

        def call(*args: P.args, **kwargs: P.kwargs) -> Done[T]:
            return self._call(args, kwargs, key, scope, wait).run_once()

        return call

    def _call(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, Any],
        key: object,
        scope: ScopeAnswer,
        wait: Duration | None,
    ) -> SyncCall[T]:
        declared, args = self._declared, (*self._bound, *args)
        bound, operation = declared.bind(args, kwargs)
        return SyncCall(
            declared.guard,
            declared.waiting(wait),
            declared.stored,
            operation,
            key,
            declared.owner(scope, args, kwargs, bound),
            lambda: self._function(*args, **kwargs),
        )

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    @overload
    def __get__(
        self: "Operation[Concatenate[Any, Q], T]", instance: object, owner: type | None = None, /
    ) -> "Operation[Q, T]": ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any:
        return self._bind(instance)


class AsyncOperation(_Base[P, T]):
    """A coroutine function that can be called with a key."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """Call the function as it was written, without a key: nothing is looked up or stored."""
        result: Coroutine[Any, Any, T] = self._function(*self._bound, *args, **kwargs)
        return result

    async def once(
        self,
        *args: Any,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        **kwargs: Any,
    ) -> Done[T]:
        """As `Operation.once`.  Cancelling it does not cancel the function: what comes of it is stored."""
        return await self._call(args, kwargs, key, scope, wait).run_once()

    async def try_once(
        self,
        *args: Any,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        **kwargs: Any,
    ) -> Done[T] | Refused:
        """As `once`, with refusals as values: the same objects, returned and not raised."""
        return await self._call(args, kwargs, key, scope, wait).try_once()

    def keyed(
        self, key: str, *, scope: ScopeAnswer = None, wait: Duration | None = None
    ) -> Callable[P, Coroutine[Any, Any, Done[T]]]:
        """As `once`, with arguments that type checkers check: see `Operation.keyed`."""

        async def call(*args: P.args, **kwargs: P.kwargs) -> Done[T]:
            return await self._call(args, kwargs, key, scope, wait).run_once()

        return call

    def _call(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, Any],
        key: object,
        scope: ScopeAnswer,
        wait: Duration | None,
    ) -> AsyncCall[T]:
        declared, args = self._declared, (*self._bound, *args)
        bound, operation = declared.bind(args, kwargs)
        return AsyncCall(
            declared.guard,
            declared.waiting(wait),
            declared.stored,
            operation,
            key,
            declared.owner(scope, args, kwargs, bound),
            lambda: self._function(*args, **kwargs),
        )

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    @overload
    def __get__(
        self: "AsyncOperation[Concatenate[Any, Q], T]", instance: object, owner: type | None = None, /
    ) -> "AsyncOperation[Q, T]": ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any:
        return self._bind(instance)


class operation:
    """Makes a function an operation of this guard.

    `action` names it to operators and in metrics, by default as the function.  `target` is what a call is
    about: a parameter, a part of one (`"order.id"`), or a function of the arguments.  `scope` says whose keys
    they are: an id, or a function of the arguments.  `ignore` names parameters that are not compared.
    `raises` are exceptions that settle the operation as a value does: they are stored, and raised again.
    `returns` is what the function returns, where its annotation does not say it.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        action: str | None = None,
        target: Target | None = None,
        scope: OperationScope = None,
        ignore: Sequence[str] = (),
        raises: tuple[type[Exception], ...] = (),
        returns: object = ANNOTATED,
        **options: Unpack[OperationOptions],
    ) -> None:
        check_guard(guard)
        self._guard = guard
        self._action = action
        self._target = target
        self._scope = scope
        self._ignore = ignore
        self._raises = raises
        self._returns = returns
        self._options = options

    @overload
    def __call__(  # type: ignore[overload-overlap]  # what returns `Any` is not taken for a coroutine function
        self, function: Callable[P, Never], /
    ) -> Operation[P, Any]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # the narrower of both comes first
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> AsyncOperation[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Operation[P, T]: ...
    def __call__(self, function: Any, /) -> Any:
        name = arguments.name_of(function)
        if not callable(function) or isinstance(function, staticmethod | classmethod):
            raise ConfigurationError(
                f"@operation was given {function!r}: expected a function or a method. Make a static or class "
                "method a function of its module, or use once(guard, ...).call(...)"
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"{name} is a generator, whose values come one by one: an operation returns one value"
            )
        if taken := TAKEN & arguments.signature_of(function).parameters.keys():
            raise ConfigurationError(
                f"{name} has a parameter {sorted(taken)[0]!r}, which is an argument of once(): rename it, or "
                "use once(guard, ...).call(function, ...)"
            )
        declared = Declared(
            self._guard,
            function,
            # A method by its class, too: cancelling an order is not cancelling an invoice.
            self._action if self._action is not None else name.rpartition("<locals>.")[2],
            self._target,
            self._scope,
            self._ignore,
            self._raises,
            self._returns,
            self._options,
        )
        made = AsyncOperation[Any, Any] if is_async(function) else Operation[Any, Any]
        return made(declared, function)


def is_async(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object that is called
    )
