"""Endpoints that a decorator protects, as everything outside of the call reads them.

A decorator compiles its rules and leaves them on the function it returns, where the coverage audit, the
OpenAPI document and the published specification find them.  One that is given no guard leaves what compiles
them, because it is the application that says whose guard it is.  What is meant to be unprotected carries its
reason in the same way.
"""

from collections.abc import Callable, Iterable
from inspect import getattr_static, unwrap
from types import FunctionType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from retrysafe.errors import ConfigurationError
from retrysafe.policy import Rules

_ATTRIBUTE = "__retrysafe__"
_RECEIVING = "__retrysafe_receiving__"
_EXEMPT = "__retrysafe_exempt__"

T = TypeVar("T")


class Marked(NamedTuple):
    """What holds for a protected endpoint."""

    rules: Rules
    guard: object
    """The `Guard` whose rules they are."""


class Unbound(NamedTuple):
    """What holds for an endpoint that is protected by the guard of whichever application serves it."""

    compile: Callable[[Any], Rules]
    """Its rules, of a `Guard`."""


def mark(function: object, mark: Marked | Unbound) -> None:
    """Leave on an endpoint what holds for it."""
    if _find(function, _RECEIVING, Receiving) is not None:
        raise ConfigurationError(_TWICE.format(_qualname(function)))
    setattr(function, _ATTRIBUTE, mark)
    guard = mark.guard if isinstance(mark, Marked) else Unbound
    _decorated.setdefault(_innermost(function), WeakSet()).add(guard)


_Decorated = WeakKeyDictionary[object, WeakSet[object]]

_decorated: _Decorated = WeakKeyDictionary()
"""Functions below an `@idempotent`, and the guards that it was given; `Unbound` for none."""

_receivers: _Decorated = WeakKeyDictionary()
"""The same of functions below a decorator of receipts."""

_TWICE = (
    "{} has a decorator that has it run once per key or event already, and was given another one: an "
    "endpoint takes one of them"
)


def bare(function: object, guard: object, endpoints: Iterable[object]) -> object | None:
    """The function of an endpoint that is not protected, though it was decorated: its decorator stands above.

    By the guard of its application: for another one it may be meant to be protected elsewhere, as it is where
    `endpoints` have its mark.
    """
    return _bare(function, guard, endpoints, _decorated, find_mark)


def bare_receiver(function: object, guard: object, endpoints: Iterable[object]) -> object | None:
    """The same of a function that was decorated to take deliveries, and would handle each of them."""
    return _bare(function, guard, endpoints, _receivers, _receives)


def _bare(
    function: object,
    guard: object,
    endpoints: Iterable[object],
    decorated: _Decorated,
    find: Callable[[object], object],
) -> object | None:
    if not callable(function) or find(function) is not None:
        return None
    inner = _innermost(function)
    guards = decorated.get(inner, ())
    if guard not in guards and Unbound not in guards:
        return None
    if any(find(other) is not None and _innermost(other) is inner for other in endpoints):
        return None
    return inner


RECEIVER_ABOVE = (
    "{} serves {} without its receipts, whose decorator stands above the decorator of the route, where the "
    "framework does not see it: each delivery would be handled. Put it below, next to the function"
)

ABOVE = (
    "{} serves {} without its @idempotent, which stands above the decorator of the route, where the "
    "framework does not see it: put @idempotent below, next to the function"
)


def _innermost(function: object) -> object:
    return unwrap(function) if callable(function) else function


def marked(function: object, guard: object = None) -> Marked | None:
    """What holds for an endpoint, in an application with this guard; `None` if no decorator protects it."""
    return bound(find_mark(function), guard)


def bound(mark: Marked | Unbound | None, guard: object) -> Marked | None:
    """What a mark means in an application with this guard."""
    if isinstance(mark, Unbound):
        return None if guard is None else Marked(mark.compile(guard), guard)
    return mark


def find_mark(function: object) -> Marked | Unbound | None:
    """What a decorator has left on an endpoint."""
    return _find(function, _ATTRIBUTE, Marked) or _find(function, _ATTRIBUTE, Unbound)


def mark_exempt(function: object, reason: str) -> None:
    """Leave on an endpoint why it is unprotected."""
    setattr(function, _EXEMPT, reason)


class Receiving(NamedTuple):
    """What an endpoint is that takes deliveries of events, whose ids are not in a header."""

    guard: object
    exchange: type[Any]
    """As what a request to it is held."""
    describe: Callable[[dict[str, Any], dict[str, Any]], None] | None = None
    """Adds to an OpenAPI document, and to this operation in it, what a framework does not know of it."""


def mark_receiving(function: object, receiving: Receiving, name: str) -> None:
    """Leave on an endpoint that it takes deliveries, for the receipts of this name."""
    setattr(function, _RECEIVING, receiving)
    _receivers.setdefault(_innermost(function), WeakSet()).add(receiving.guard)
    mark_exempt(function, f"the receipts {name!r} have each event handled once")


def refuse_second(function: object) -> None:
    """Refuse a function that is to take deliveries, and has a decorator of ours already."""
    if _receives(function) is not None or find_mark(function) is not None:
        raise ConfigurationError(_TWICE.format(_qualname(function)))


def find_receiving(function: object, guard: object) -> Receiving | None:
    """What a decorator has left on an endpoint that takes deliveries for this guard."""
    found = _receives(function)
    return found if found is not None and found.guard is guard else None


def is_receiving(function: object) -> bool:
    """Whether an endpoint takes deliveries, for whichever guard."""
    return _receives(function) is not None


def _receives(function: object) -> Receiving | None:
    return _find(function, _RECEIVING, Receiving)


def _qualname(function: object) -> str:
    return str(getattr(function, "__qualname__", function))


def exempt_reason(function: object) -> str | None:
    """Why an endpoint is meant to be unprotected; `None` if it does not say so."""
    return _find(function, _EXEMPT, str)


def _find(function: object, attribute: str, kind: type[T]) -> T | None:
    while function is not None:
        found = getattr(function, attribute, None)
        if isinstance(found, kind):
            return found
        function = _inside(function)
    return None


_AROUND = ("func", "__func__", "__wrapped__")
"""Of a partial, a bound method, and another decorator: where each has what it stands around."""


def _inside(function: object) -> object:
    """What a function stands around.  Only what is really there: a double that tests use has every attribute,
    and inside of each another one."""
    if type(function) is FunctionType:
        # Django asks this with each request, and `getattr_static` takes its time.
        own = vars(function)
        return next((own[name] for name in _AROUND if own.get(name) is not None), None)
    return next(
        (getattr(function, name) for name in _AROUND if getattr_static(function, name, None) is not None),
        None,
    )
