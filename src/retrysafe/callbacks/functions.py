"""What a function has to be like to handle events, and what is found out about it when it is decorated."""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from inspect import iscoroutinefunction
from typing import Any, cast

from retrysafe._http.marked import refuse_second
from retrysafe.errors import ConfigurationError
from retrysafe.operations.arguments import UNRESOLVED, name_of, resolve

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_function(receipts: object, function: object) -> None:
    """Refuse to decorate what is not a function of an event."""
    if inspect.isclass(function) or not inspect.isroutine(function):
        raise ConfigurationError(f"{receipts!r} decorated {function!r}: expected a function of the event")
    refuse_second(function)
    refuse_generator(receipts, function)


def refuse_generator(receipts: object, function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{receipts!r} decorated {name_of(function)}, which is a generator: its parts would run when the "
            "event is taken for handled. Handle it in a function without `yield`, and return a response"
        )


def is_method(function: Callable[..., Any]) -> bool:
    """Whether it stands in the body of a class, and is called with an instance."""
    first = next(iter(inspect.signature(function).parameters), None)
    outside = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return first == "self" and bool(outside) and not outside.endswith("<locals>")


def event_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a handler takes, beginning with its event."""
    found = list(inspect.signature(function).parameters.values())
    if is_method(function):
        del found[0]
    if not found or found[0].kind in (*VARIADIC, inspect.Parameter.KEYWORD_ONLY):
        raise ConfigurationError(f"{name_of(function)} has no parameter for the event: it is the first one")
    return found


def event_type(function: Callable[..., Any]) -> object:
    """What the first parameter of a handler is annotated with."""
    event, *_ = event_parameters(function)
    found = resolve(function, event.annotation)
    if found is UNRESOLVED:
        raise ConfigurationError(
            f"{name_of(function)}: the annotation {event.annotation!r} of its event has names "
            "that are not known when it is decorated: import them also at run time"
        )
    return found


def is_awaited(function: Callable[..., Any]) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def refuse_unfinished(function: Callable[..., Any], returned: object) -> None:
    """Refuse what a function leaves to be run: the event would be taken for handled, and is not."""
    if isinstance(returned, Awaitable):
        kind: str = type(cast("object", returned)).__name__
        if isinstance(returned, Coroutine):
            returned.close()  # it will never be awaited
        raise ConfigurationError(
            f"{name_of(function)} returned a {kind}, which has to be awaited, and is not a "
            "coroutine function: make it one with `async def`, and its decorators, too"
        )
    if isinstance(returned, Generator | AsyncGenerator):
        raise ConfigurationError(
            f"{name_of(function)} is a generator, of which nothing has run: handle the event in a function "
            "without `yield`"
        )
