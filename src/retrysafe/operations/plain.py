"""`once(guard, …)`: a call of a function that one cannot decorate, or decides about at the call."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec, TypeVar, Unpack

from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.operations import arguments
from retrysafe.operations.call import AsyncCall, SyncCall
from retrysafe.operations.decorate import ANNOTATED, Declared, check_guard, is_async
from retrysafe.operations.done import Done
from retrysafe.policy import OperationOptions
from retrysafe.refusals import Refused
from retrysafe.scopes import ScopeAnswer

P = ParamSpec("P")
T = TypeVar("T")


class Once:
    """A key that one call is made with."""

    def __init__(
        self,
        guard: Guard,
        key: str,
        action: str,
        target: str,
        scope: ScopeAnswer,
        wait: Duration | None,
        ignore: Sequence[str],
        raises: tuple[type[Exception], ...],
        returns: object,
        options: OperationOptions,
    ) -> None:
        check_guard(guard)
        self._guard = guard
        self._key = key
        self._action = action
        self._target = target
        self._scope = scope
        self._wait = wait
        self._ignore = ignore
        self._raises = raises
        self._returns = returns
        self._options = options

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Done[T]:
        """Call a plain function, unless that was done with this key before."""
        return self._sync(function, args, kwargs).run_once()

    def try_call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Done[T] | Refused:
        """As `call`, with refusals as values: the same objects, returned and not raised."""
        return self._sync(function, args, kwargs).try_once()

    async def call_async(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Done[T]:
        """As `call`, for a coroutine function."""
        call: AsyncCall[T] = self._made(AsyncCall, function, args, kwargs)
        return await call.run_once()

    async def try_call_async(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Done[T] | Refused:
        """As `try_call`, for a coroutine function."""
        call: AsyncCall[T] = self._made(AsyncCall, function, args, kwargs)
        return await call.try_once()

    def _sync(self, function: Callable[..., T], args: Any, kwargs: Any) -> SyncCall[T]:  # noqa: ANN401 - the function's own
        if is_async(function):
            raise ConfigurationError(
                f"{arguments.name_of(function)} is a coroutine function: use `await ….call_async(…)`"
            )
        call: SyncCall[T] = self._made(SyncCall, function, args, kwargs)
        return call

    def _made(self, kind: Callable[..., Any], function: Callable[..., Any], args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - a call of this kind
        target = self._target
        declared = Declared(
            self._guard,
            function,
            self._action,
            (lambda *_, **__: target) if target else None,
            None,
            self._ignore,
            self._raises,
            self._returns,
            dict(self._options),
        )
        bound, operation = declared.bind(args, kwargs)
        return kind(
            self._guard,
            declared.waiting(self._wait),
            declared.stored,
            operation,
            self._key,
            declared.owner(self._scope, args, kwargs, bound),
            lambda: function(*args, **kwargs),
        )


def once(
    guard: Guard,
    *,
    key: str,
    action: str,
    target: str = "",
    scope: ScopeAnswer = None,
    wait: Duration | None = None,
    ignore: Sequence[str] = (),
    raises: tuple[type[Exception], ...] = (),
    returns: object = ANNOTATED,
    **options: Unpack[OperationOptions],
) -> Once:
    """Make one call safe to repeat: `once(guard, key=key, action="charge").call(gateway.charge, amount)`.

    The arguments are those of `@operation`; `target` and `scope` are values here, and not how to find them.
    """
    return Once(guard, key, action, target, scope, wait, ignore, raises, returns, options)
