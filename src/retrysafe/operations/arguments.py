"""What a function is called with: the target that it names, and the fingerprint of all of it.

Every argument is compared by its value.  One that cannot be, such as a session or `self`, has to be named
when the function is decorated: in `target` by the part that identifies it, or in `ignore`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, cast, get_type_hints

from retrysafe._core.fingerprint import VERSION
from retrysafe._core.keys import framed
from retrysafe.errors import ConfigurationError
from retrysafe.operations.values import NotComparable, fingerprint_value, is_comparable

Target = str | Callable[..., object]

Arguments = Mapping[str, object]

UNRESOLVED: Final = object()
"""An annotation whose names are not known at run time."""

_LONGEST_TARGET = 1024
"""Bytes of UTF-8: far longer than an id, and indexed by every store.  PostgreSQL indexes at most 2704."""


class Parameters:
    """The parameters of one function, and which of them are compared.

    `needs_target`: a call whose target is empty is refused.
    """

    def __init__(
        self,
        function: Callable[..., object],
        target: Target | None,
        ignore: Sequence[str],
        *,
        needs_target: bool = True,
    ) -> None:
        self._name = name_of(function)
        self._needs_target = needs_target
        self._signature = signature_of(function)
        self._target = target
        self._path: tuple[str, ...] = ()
        if isinstance(target, str):
            self._path = tuple(target.split("."))
            self._check_path(target)
        elif target is not None and not callable(target):
            raise ConfigurationError(
                f"{self._name}: target={target!r} is neither the name of a parameter, such as "
                '"order_id" or "order.id", nor a function of the arguments'
            )
        self._ignored = frozenset(ignore)
        self._check_ignored(ignore)
        self._left_out = self._ignored
        self._check_annotations(function)
        self._defaults = MappingProxyType(
            {
                parameter.name: spelled
                for parameter in self._signature.parameters.values()
                if parameter.name not in self._left_out
                and (spelled := _spelled_default(parameter)) is not None
            }
        )

    def _check_path(self, target: str) -> None:
        known = self._signature.parameters
        if not all(part.isidentifier() for part in self._path):
            raise ConfigurationError(
                f"{self._name}: target={target!r} is not the name of a parameter, such as "
                '"order_id", or of a part of one, such as "order.id"'
            )
        if self._path[0] not in known:
            raise ConfigurationError(
                f"{self._name} has no parameter {self._path[0]!r}, which target={target!r} names: it has "
                f"{', '.join(known) or 'none'}"
            )

    def _check_ignored(self, ignore: object) -> None:
        if isinstance(ignore, str):
            raise ConfigurationError(
                f"{self._name}: ignore={ignore!r} must be a tuple of parameters, such as ({ignore!r},)"
            )
        known = self._signature.parameters
        if unknown := sorted(self._ignored - known.keys()):
            raise ConfigurationError(
                f"{self._name} has no parameter {unknown[0]!r}, which ignore names: it has "
                f"{', '.join(known) or 'none'}"
            )

    def _check_annotations(self, function: Callable[..., object]) -> None:
        for parameter in self._signature.parameters.values():
            name = parameter.name
            if name in self._left_out:
                continue
            annotation = resolve(function, parameter.annotation)
            if annotation is not UNRESOLVED and is_comparable(annotation) is False:
                if len(self._path) > 1 and self._path[0] == name:
                    self._left_out |= {name}  # the target has the part of it that counts
                    continue
                raise ConfigurationError(
                    f"{self._name}: its parameter {name} is a {_shown(parameter.annotation)}, whose values "
                    f'cannot be compared: name what identifies it, as in target="{name}.id", or leave it out '
                    f"with ignore=({name!r},)"
                )

    def __contains__(self, name: str) -> bool:
        return name in self._signature.parameters

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._signature.parameters)

    def complete(self, bound: Arguments) -> Arguments:
        """The arguments with the defaults of those that were not passed."""
        defaults = {
            name: parameter.default
            for name, parameter in self._signature.parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        return {**defaults, **bound}

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Arguments:
        """The arguments by name; raises as the function itself would."""
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._name}: {error}") from None

    def target(self, args: tuple[object, ...], kwargs: Mapping[str, object], bound: Arguments) -> str:
        """What the call is about."""
        if self._target is None:
            return ""
        found = self._follow(bound) if isinstance(self._target, str) else self._target(*args, **kwargs)
        if found is None or found == "":
            if not self._needs_target:
                return ""
            raise TypeError(f"{self._name}: its target is {found!r}: expected the id of what it is about")
        text = str(found)
        if (size := len(text.encode("utf-8", "surrogatepass"))) > _LONGEST_TARGET:
            raise TypeError(
                f"{self._name}: its target has {size} bytes: expected the id of what it is about, of at most "
                f"{_LONGEST_TARGET}"
            )
        return text

    def _follow(self, bound: Arguments) -> object:
        first, *rest = self._path
        found = bound[first] if first in bound else self._signature.parameters[first].default
        for part in rest:
            if found is None and not self._needs_target:
                return None
            is_mapping = isinstance(found, Mapping)
            if is_mapping and not self._needs_target:
                found = cast("Mapping[str, object]", found).get(part)
            else:
                found = cast("Mapping[str, object]", found)[part] if is_mapping else getattr(found, part)
        return found

    def fingerprint(self, action: str, target: str, bound: Arguments) -> bytes:
        """Of the action, the target and every argument; one that equals its default is not there.

        So a parameter that is added with a default does not turn retries across a release into other calls.
        """
        hashed = sha256(framed("operation", action, target))
        for name in sorted(bound):
            if name in self._left_out:
                continue
            value = self._value(name, bound[name])
            if value is not None and value != self._defaults.get(name):
                hashed.update(framed(name, str(len(value))) + value)
        return VERSION + hashed.digest()

    def _value(self, name: str, value: object) -> bytes | None:
        try:
            return fingerprint_value(value, name=name)
        except NotComparable as error:
            if len(self._path) > 1 and self._path[0] == name:
                return None  # the target has the part of it that counts
            raise TypeError(
                f'{self._name}: {error}. Name what identifies it, as in target="{name}.id", or leave it out '
                f"with ignore=({name!r},)"
            ) from None


def _spelled_default(parameter: inspect.Parameter) -> bytes | None:
    if parameter.default is inspect.Parameter.empty:
        return None
    try:
        return fingerprint_value(parameter.default, name=parameter.name)
    except NotComparable:
        return None  # a mark such as `UNSET = object()`, which is not passed


def resolve(function: Callable[..., object], annotation: object) -> object:
    """An annotation as the function means it; `UNRESOLVED` where its names are not known at run time."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={"it": annotation})
    names: dict[str, Any] = getattr(_underlying(function), "__globals__", {})
    try:
        return get_type_hints(holder, names, include_extras=True)["it"]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return UNRESOLVED


def _underlying(function: Callable[..., object]) -> object:
    """The function whose names an annotation is written with."""
    found: object = inspect.unwrap(function)
    while isinstance(found, functools.partial):
        found = cast("functools.partial[object]", found).func
    found = getattr(found, "__func__", found)
    return found if hasattr(found, "__globals__") else getattr(type(found), "__call__", found)  # noqa: B004


def returned(function: Callable[..., object]) -> object:
    """The annotation of what a function returns; `UNRESOLVED` where its names are not known."""
    return resolve(function, signature_of(function).return_annotation)


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        raise ConfigurationError(
            f"{name_of(function)} does not say what its parameters are, as some functions that are written "
            "in C: call it in a function of your own"
        ) from None


def name_of(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _shown(annotation: object) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
