"""The functions of tools, as libraries read them: by their signature, which the input schema is made of."""

import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Annotated, Any, TypeVar, cast

from pydantic import GetPydanticSchema, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, core_schema

from retrysafe.errors import ConfigurationError
from retrysafe.operations.arguments import name_of
from retrysafe.operations.decorate import is_async

F = TypeVar("F", bound=Callable[..., Any])


def check_function(function: Callable[..., object]) -> bool:
    """Refuse what is not the function of a tool; whether it is a coroutine function."""
    if not inspect.isroutine(function) or not hasattr(function, "__name__"):
        raise ConfigurationError(
            f"@idempotent was put on {function!r}: expected a function. It stands below the decorator of the "
            "server, next to the function"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{name_of(function)} is a generator, whose values come one by one: return a list of them"
        )
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
            raise ConfigurationError(
                f"{name_of(function)} has {parameter}: a tool has a parameter for each of its arguments"
            )
    return is_async(function)


def as_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a server calls it: a method without its first parameter."""
    first = next(iter(inspect.signature(function).parameters), None)
    return MethodType(function, object()) if first in ("self", "cls") else function


def as_compared(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as its arguments are compared: all by name, with the defaults that fields have."""

    def compared(**_arguments: object) -> None: ...

    signature = inspect.signature(function)
    made: Any = compared
    made.__signature__ = signature.replace(
        parameters=[
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=_default(one))
            for one in signature.parameters.values()
        ]
    )
    made.__qualname__ = name_of(function)
    made.__wrapped__ = function  # whose names the annotations are written with
    return cast("Callable[..., Any]", made)


def _default(parameter: inspect.Parameter) -> object:
    default: object = parameter.default
    if isinstance(default, FieldInfo):
        default = default.default
    return inspect.Parameter.empty if default is PydanticUndefined else default


def show(
    wrapper: Callable[..., Any], function: F, *more: inspect.Parameter, instead_of: str | None = None
) -> F:
    """The wrapper with the function's signature, and with parameters that only the wrapper has, one of them
    instead of one of the function's.

    Annotations that are strings, as under `from __future__ import annotations`, are resolved with the names
    of the function's module: a library that finds them on the wrapper would look in another one.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
        annotations = inspect.get_annotations(function, eval_str=True)
    except Exception:  # noqa: BLE001 - of a name that is not known: the library says so in its own words
        signature = inspect.signature(function)
        annotations = dict(getattr(function, "__annotations__", {}))
    kept = [one for one in signature.parameters.values() if one.name != instead_of]
    annotations.pop(instead_of or "", None)
    made: Any = wrapper
    made.__signature__ = signature.replace(parameters=[*kept, *more])
    made.__annotations__ = {**annotations, **{one.name: one.annotation for one in more}}
    return cast("F", made)


def returning(function: F, annotation: object) -> F:
    """The function with another annotation of what it returns."""
    made: Any = function
    made.__signature__ = inspect.signature(function).replace(return_annotation=annotation)
    made.__annotations__ = {**made.__annotations__, "return": annotation}
    return function


def key_parameter(
    name: str, schema: Mapping[str, Any], function: Callable[..., object], *, required: bool
) -> inspect.Parameter:
    """The parameter for the key.  It takes any value: what is not a key is refused with what to do."""
    if name in inspect.signature(function).parameters:
        raise ConfigurationError(
            f"{name_of(function)} has a parameter {name!r}, which @idempotent(key={name!r}) adds: the "
            "function has no use for it. Remove it, or choose another name for the key"
        )
    # Annotated as `str`, because `mcp` reads strings as JSON where another type is expected.
    kind = Annotated[str, GetPydanticSchema(_any_value), WithJsonSchema(dict(schema))]
    default = inspect.Parameter.empty if required else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _any_value(_source: object, _handler: object) -> core_schema.CoreSchema:
    return core_schema.any_schema()
