"""What annotations and classes say: wrappers taken off, type variables replaced, fields listed.

Read when a function is decorated, never per call.  Libraries that a class may come from (pydantic, attrs,
SQLAlchemy) are recognised by what they leave on the class, so none of them is imported here.
"""

import dataclasses
import sys
import typing
from collections.abc import Callable, Mapping
from inspect import Signature, get_annotations
from types import GenericAlias, NoneType, SimpleNamespace
from typing import Annotated, Any, NamedTuple, NewType, TypeVar, cast, get_args, get_origin, get_type_hints

MISSING: object = dataclasses.MISSING

# They say how a name is declared, not what its values are.  By name, because `typing_extensions` has its own
# of those that `typing` lacks on older Pythons.
_QUALIFIERS = frozenset({"ClassVar", "Final", "NotRequired", "ReadOnly", "Required"})

UNANNOTATED: tuple[object, ...] = (Any, object, Signature.empty)
"""What allows every value, and so says nothing about it."""


class Field(NamedTuple):
    """One field of a dataclass, an attrs class or a named tuple."""

    name: str
    annotation: object = Any
    """As it was declared, which may be a string: `hints` has it resolved."""
    default: object = MISSING
    factory: Callable[[], object] | None = None
    compared: bool = True
    """Whether the class itself counts it when it compares two instances."""


def describe(annotation: object) -> str:
    """An annotation as its author wrote it, without the names of modules."""
    if annotation is None or annotation is NoneType:
        return "None"
    if annotation is Signature.empty:
        return "no annotation"
    if annotation is Ellipsis:
        return "..."
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe(arguments[0])
    if is_union(annotation):
        return " | ".join(map(describe, arguments))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None and arguments:
        return f"{describe(origin)}[{', '.join(map(_describe_argument, arguments))}]"
    if isinstance(annotation, str):
        return repr(annotation)
    name: object = getattr(annotation, "__name__", None)
    return name if isinstance(name, str) else str(annotation).removeprefix("typing.")


def _describe_argument(argument: object) -> str:
    # `Callable[[int], str]` holds a list.
    if isinstance(argument, list):
        return f"[{', '.join(map(describe, cast('list[object]', argument)))}]"
    return describe(argument)


def is_union(annotation: object) -> bool:
    return get_origin(annotation) in (typing.Union, type(int | str))


def qualifier(annotation: object) -> str | None:
    """`Required` for `Required[int]`, and so on."""
    name: object = getattr(get_origin(annotation), "_name", None)
    return name if isinstance(name, str) and name in _QUALIFIERS else None


def is_alias(annotation: object) -> bool:
    """Whether it was made by a `type` statement, or is such an alias with its parameters filled in."""
    made = get_origin(annotation) or annotation
    return not isinstance(made, type) and hasattr(made, "__value__") and hasattr(made, "__type_params__")


def alias_value(annotation: object) -> object:
    made = cast("Any", get_origin(annotation) or annotation)
    return close(made.__value__, dict(zip(made.__type_params__, get_args(annotation), strict=False)))


def peel(annotation: object) -> object:
    """The annotation without `Annotated`, `NewType` and qualifiers, none of which change a value."""
    while True:
        if annotation is None:
            return NoneType
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif get_origin(annotation) is Annotated or qualifier(annotation):
            annotation = get_args(annotation)[0]
        elif annotation is typing.LiteralString:
            return str
        else:
            return annotation


def close(annotation: object, variables: Mapping[object, object]) -> object:
    """The annotation with type variables replaced by what they stand for."""
    if isinstance(annotation, TypeVar):
        return variables.get(annotation, annotation)
    if get_origin(annotation) is None:
        return annotation
    parameters: tuple[object, ...] = getattr(annotation, "__parameters__", ())
    if not any(parameter in variables for parameter in parameters):
        return annotation
    generic = cast("GenericAlias", annotation)
    return generic[tuple(variables.get(parameter, parameter) for parameter in parameters)]


def class_of(annotation: object) -> type | None:
    """The class of which values are instances: `Page` for `Page` and for `Page[int]`."""
    found = get_origin(annotation) or annotation
    return found if isinstance(found, type) else None


def hints(annotation: object) -> dict[str, object]:
    """The annotations inside a class, resolved; `NameError` where a name in them is not known.

    `Page[int]` and `class Orders(Page[int])` both have `int` where `Page` says `T`.
    """
    cls = class_of(annotation)
    assert cls is not None
    try:
        found: dict[str, object] = get_type_hints(cls, include_extras=True)
    except NameError:
        # A class inside a function that refers to itself: its name is in no namespace that can be searched.
        found = get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
    variables: dict[type, dict[object, object]] = {}
    _collect(cls, get_args(annotation), variables)
    owners = {name: owner for owner in reversed(cls.__mro__) for name in get_annotations(owner)}
    inherited = {variable: value for each in reversed(variables.values()) for variable, value in each.items()}
    return {
        # A typed dictionary has no base classes at run time, only the annotations of all of them.
        name: close(close(hint, variables.get(owners.get(name, cls), {})), inherited)
        for name, hint in found.items()
    }


def _collect(cls: type, arguments: tuple[object, ...], found: dict[type, dict[object, object]]) -> None:
    """What the type variables of a class and of its bases stand for, by class."""
    parameters: tuple[object, ...] = getattr(cls, "__parameters__", ())
    own = dict(zip(parameters, _strip(arguments), strict=False))
    found[cls] = own
    bases: tuple[object, ...] = vars(cls).get("__orig_bases__", cls.__bases__)
    for base in bases:
        generic = class_of(base)
        if generic is not None and generic not in (typing.Generic, typing.Protocol, object):
            _collect(generic, tuple(close(argument, own) for argument in get_args(base)), found)


def _strip(arguments: tuple[object, ...]) -> tuple[object, ...]:
    """Without any `Annotated`: `typing` cannot make a union of what has unhashable things in it."""
    holder = SimpleNamespace(__annotations__={str(number): one for number, one in enumerate(arguments)})
    return tuple(get_type_hints(holder).values())


def is_named_tuple(cls: type) -> bool:
    return tuple in cls.__mro__ and isinstance(getattr(cls, "_fields", None), tuple)


def is_typed_dict(cls: type) -> bool:
    return dict in cls.__mro__ and hasattr(cls, "__total__") and hasattr(cls, "__required_keys__")


def is_model(cls: type) -> bool:
    """Whether it is a model of pydantic 2; a class can only be one if pydantic is loaded."""
    base: object = getattr(sys.modules.get("pydantic.main"), "BaseModel", None)
    return isinstance(base, type) and issubclass(cls, base)


def is_mapped(cls: type) -> bool:
    """Whether SQLAlchemy maps it to a table: its instances belong to a session, also those of dataclasses."""
    return hasattr(cls, "__mapper__")


def is_record(cls: type) -> bool:
    return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "__attrs_attrs__")


def fields(cls: Any) -> tuple[Field, ...]:  # noqa: ANN401 (a class of one of several libraries)
    """The fields of a dataclass, an attrs class, a named tuple or a model, in their order."""
    if is_named_tuple(cls):
        defaults: Mapping[str, object] = cls._field_defaults
        return tuple(Field(name, default=defaults.get(name, MISSING)) for name in cls._fields)
    if is_model(cls):
        return tuple(_model_field(name, field) for name, field in cls.model_fields.items())
    # First, because a class of attrs may be put on top of a dataclass, but hardly the other way round.
    if "__attrs_attrs__" in vars(cls) or not hasattr(cls, "__dataclass_fields__"):
        return tuple(map(_attrs_field, cls.__attrs_attrs__))
    return tuple(
        Field(
            field.name,
            field.type,
            field.default,
            None if field.default_factory is MISSING else cast("Callable[[], object]", field.default_factory),
            field.compare,
        )
        for field in dataclasses.fields(cls)
    )


def _model_field(name: str, field: Any) -> Field:  # noqa: ANN401 (pydantic need not be installed)
    plain = not field.is_required() and field.default_factory is None
    return Field(name, field.annotation, field.default if plain else MISSING)


def _attrs_field(field: Any) -> Field:  # noqa: ANN401 (attrs need not be installed)
    annotation = Any if field.type is None else field.type
    default: object = field.default
    factory: Callable[[], object] | None = None
    if default is sys.modules["attr"].NOTHING:
        default = MISSING
    elif type(default).__name__ == "Factory":
        # A factory that wants the instance cannot be asked for a default alone.
        factory = None if field.default.takes_self else field.default.factory
        default = MISSING
    return Field(field.name, annotation, default, factory, bool(field.eq))
