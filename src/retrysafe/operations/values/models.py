"""Models of pydantic, written and read by pydantic itself; it is imported by those who have such models."""

from collections.abc import Iterable
from inspect import signature
from json import dumps
from typing import Annotated, Any, cast, get_args, get_origin

from retrysafe.operations.values.annotations import is_model
from retrysafe.operations.values.plans import EVERY_KIND, NULL, Plan, refuse
from retrysafe.operations.values.scalars import Json, NotEncodable


def model_plan(label: str, cls: Any) -> Plan:  # noqa: ANN401 (pydantic need not be installed)
    """What pydantic writes may be less than it was given (secrets, excluded fields, instances of a subclass
    in a field), so it is read again at once and compared."""
    is_root = "root" in cls.model_fields
    # Null is left to `None`, so that `Model | None` is written as the model is.
    plan = Plan(label, EVERY_KIND if is_root else EVERY_KIND - NULL, frozenset({cls}))
    # Fields always have names; aliases may differ between reading and writing.  Before 2.11, pydantic reads
    # by name only if the model says so.
    by_name = "by_name" in signature(cls.model_validate_json).parameters
    how: dict[str, bool] = {"by_alias": False, "by_name": True} if by_name else {}

    def write(value: Any) -> Json:  # noqa: ANN401
        if type(value) is not cls:
            refuse(value, label)
        try:
            tree: Json = value.model_dump(
                mode="json", round_trip=True, by_alias=not by_name, warnings="error"
            )
            again = read(tree)
        except Exception as error:
            raise NotEncodable(f"is not written and read by pydantic: {type(error).__name__}") from error
        if (tree is None and not is_root) or not _alike(value, again):
            raise NotEncodable(
                "comes back different: pydantic hides or excludes a field, or changes its type"
            )
        return tree

    def read(tree: Json) -> object:
        # As JSON, because a strict model takes a text for a date from JSON only.
        return cls.model_validate_json(dumps(tree), **how)

    plan.write, plan.read = write, read
    return plan


def why_not(cls: Any) -> str | None:  # noqa: ANN401
    """Why pydantic cannot write a model, as far as that is known before there is an instance."""
    if cls.model_config.get("arbitrary_types_allowed"):
        # Only then may a field be of a class that pydantic does not know.
        try:
            cls.model_json_schema(mode="serialization")
        except Exception as error:  # noqa: BLE001 (pydantic's, or that of a type of the model: it is reported)
            return f"pydantic cannot describe it as JSON ({type(error).__name__}: {error})"
    return _lost(cls, set())


def _lost(cls: Any, seen: set[object]) -> str | None:  # noqa: ANN401
    """Which field pydantic is sure to leave out, or to write as asterisks."""
    seen.add(cls)
    serializers = cls.__pydantic_decorators__
    if serializers.model_serializers:
        return None  # of its own: what they write is compared with the value
    written = {name for one in serializers.field_serializers.values() for name in one.info.fields}
    for name, field in cls.model_fields.items():
        if field.exclude is True and field.is_required():
            return f"pydantic excludes {cls.__name__}.{name}, and cannot make it again without"
        if not written & {name, "*"} and not _is_written(field.metadata):
            reason = _lost_inside(field.annotation, f"{cls.__name__}.{name}", seen)
            if reason is not None:
                return reason
    return None


def _lost_inside(annotation: object, where: str, seen: set[object]) -> str | None:
    from pydantic import SecretBytes, SecretStr

    if get_origin(annotation) is Annotated and _is_written(get_args(annotation)[1:]):
        return None
    if isinstance(annotation, type):
        cls = cast("type[object]", annotation)
        if issubclass(cls, SecretStr | SecretBytes):
            return f"pydantic hides {where}, a {cls.__name__}; return it as str or bytes, or not at all"
        if is_model(cls) and cls not in seen:
            return _lost(cls, seen)
    reasons = (_lost_inside(one, where, seen) for one in get_args(annotation))
    return next((reason for reason in reasons if reason is not None), None)


def _is_written(metadata: Iterable[object]) -> bool:
    """Whether there is a `PlainSerializer` or a `WrapSerializer`."""
    return any(type(one).__name__.endswith("Serializer") for one in metadata)


def _alike(first: object, second: object) -> bool:
    """Equal and of the same types inside: to Python 1, 1.0, True and a member of an `IntEnum` are equal."""
    kind = type(first)
    if kind is not type(second):
        return False
    one: Any = first
    other: Any = second
    if is_model(kind):
        extra = _alike(one.__pydantic_extra__, other.__pydantic_extra__)
        return extra and _alike(one.__dict__, other.__dict__) and bool(one == other)
    if kind is dict:
        return len(one) == len(other) and all(map(_alike, one.items(), other.items()))
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)
