"""How one shape of value is written as JSON and read again, given how its parts are.

A `Plan` is a pair of closures.  They are made once, where a function is decorated, so that a call walks the
value and nothing else.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, Flag
from math import isfinite
from types import NoneType
from typing import Any, NamedTuple, NoReturn, cast

from retrysafe._core.fingerprint.canonical import DEEPEST
from retrysafe.operations.values.annotations import MISSING, Field
from retrysafe.operations.values.scalars import (
    PLAIN_BITS,
    SCALARS,
    Json,
    NotEncodable,
    Scalar,
    Unreadable,
    array,
    members,
    text,
)

Write = Callable[[Any], Json]
Read = Callable[[Json], object]

ARRAY: frozenset[type] = frozenset({list})
OBJECT: frozenset[type] = frozenset({dict})
NULL: frozenset[type] = frozenset({NoneType})
EVERY_KIND: frozenset[type] = frozenset({NoneType, bool, int, float, str, list, dict})

_NUMBERS: frozenset[type] = frozenset({int, float})


class Plan:
    """How values of one annotation are written and read."""

    __slots__ = ("kinds", "label", "read", "types", "write")

    def __init__(self, label: str, kinds: frozenset[type] | None, types: frozenset[type] | None) -> None:
        self.label = label
        self.kinds = kinds
        """What JSON it writes, as types; unknown only while an alias is being built that contains itself."""
        self.types = types
        """The exact types of its values; none where they are not known before."""
        # Until they are known, which is later for a class that contains itself.
        self.write: Write = lambda value: self.write(value)
        self.read: Read = lambda tree: self.read(tree)


def refuse(value: object, expected: str) -> NoReturn:
    raise NotEncodable(f"is of type {type(value).__name__}, expected exactly {expected}")


def _write_items(items: Iterable[object], write: Write) -> list[Json]:
    written: list[Json] = []
    try:
        for item in items:
            written.append(write(item))
    except NotEncodable as error:
        raise error.inside(f"[{len(written)}]") from error.__cause__
    return written


def scalar_plan(label: str, scalar: Scalar) -> Plan:
    cls, written = scalar.of, scalar.write
    plan = Plan(label, scalar.kinds, frozenset({cls}))

    def write(value: object) -> Json:
        if type(value) is not cls:
            refuse(value, label)
        return written(value)

    plan.write, plan.read = write, scalar.read
    return plan


def number_plan() -> Plan:
    """`float`, which takes an `int` as well (PEP 484 says that it may be one); JSON tells them apart."""
    integer, real = SCALARS[int], SCALARS[float]
    plan = Plan("float", integer.kinds | real.kinds, _NUMBERS)

    def write(value: object) -> Json:
        if type(value) is float:
            return real.write(value)
        if type(value) is int:
            return integer.write(value)
        refuse(value, "float")

    def read(tree: Json) -> object:
        return (integer if type(tree) in integer.kinds else real).read(tree)

    plan.write, plan.read = write, read
    return plan


def json_plan() -> Plan:
    """Whatever JSON has itself, for where an annotation says nothing."""
    plan = Plan("Any", EVERY_KIND, None)

    def write(value: object) -> Json:
        return _check_json(value, DEEPEST)

    plan.write, plan.read = write, lambda tree: tree
    return plan


def _check_json(given: object, levels: int) -> Json:
    """The value itself, if it is JSON already."""
    kind = type(given)
    value: Any = given
    if (
        kind is str
        or kind is bool
        or value is None
        or (kind is int and value.bit_length() <= PLAIN_BITS)
        or (kind is float and isfinite(value))
    ):
        return cast("Json", value)
    if kind is list or kind is dict:
        if levels == 0:
            raise NotEncodable(f"is nested deeper than {DEEPEST} levels")
        for key, item in value.items() if kind is dict else enumerate(value):
            if kind is dict and type(key) is not str:
                raise NotEncodable(f"has a key of {type(key).__name__}, and keys of JSON are str")
            try:
                _check_json(item, levels - 1)
            except NotEncodable as error:
                raise error.inside("[…]" if kind is dict else f"[{key}]") from None
        return cast("Json", value)
    raise NotEncodable(f"is of type {kind.__name__}, not a value of JSON, and no annotation says what it is")


def literal_plan(label: str, values: tuple[object, ...], inner: Plan) -> Plan:
    allowed = frozenset((type(value), value) for value in values)
    write, read = inner.write, inner.read
    plan = Plan(label, inner.kinds, inner.types)

    def write_literal(value: object) -> Json:
        tree = write(value)
        if (type(value), value) not in allowed:
            raise NotEncodable(f"is not one of {label}")
        return tree

    def read_literal(tree: Json) -> object:
        value = read(tree)
        if (type(value), value) not in allowed:
            raise Unreadable(f"not one of {label}")
        return value

    plan.write, plan.read = write_literal, read_literal
    return plan


def enum_plan(label: str, cls: type[Enum]) -> Plan:
    """By name, because values may be anything and change more often.  Combined flags have no name."""
    flags = cls if issubclass(cls, Flag) else None
    plan = Plan(label, frozenset({str}) if flags is None else frozenset({str, int}), frozenset({cls}))
    names = cls.__members__

    def write(value: Any) -> Json:  # noqa: ANN401
        if type(value) is not cls:
            refuse(value, label)
        name: object = value.name
        # The name of a combination is made of the names of its parts, or missing.
        return name if isinstance(name, str) and names.get(name) is value else value.value

    def read(tree: Json) -> object:
        if flags is not None and type(tree) is int:
            found = flags(tree)
            if type(found) is not cls:
                raise Unreadable(f"not a combination of {label}")
            return found
        return names[text(tree)]

    plan.write, plan.read = write, read
    return plan


def collection_plan(label: str, cls: type[Collection[object]], inner: Plan) -> Plan:
    """A list, a tuple of any length, a set or a frozen set."""
    write, read = inner.write, inner.read
    plan = Plan(label, ARRAY, frozenset({cls}))
    make = cast("Callable[[list[object]], Collection[object]]", cls)

    def write_collection(value: Any) -> Json:  # noqa: ANN401
        if type(value) is not cls:
            refuse(value, label)
        return _write_items(value, write)

    def read_collection(tree: Json) -> object:
        items = [read(item) for item in array(tree)]
        made = make(items)
        if len(made) != len(items):
            raise Unreadable("an element of a set occurs twice")
        return made

    plan.write, plan.read = write_collection, read_collection
    return plan


def tuple_plan(label: str, inner: list[Plan]) -> Plan:
    """A tuple with as many elements as its annotation has."""
    writes, reads = [one.write for one in inner], [one.read for one in inner]
    plan = Plan(label, ARRAY, frozenset({tuple}))

    def write(value: Any) -> Json:  # noqa: ANN401
        if type(value) is not tuple:
            refuse(value, label)
        items = cast("tuple[object, ...]", value)
        if len(items) != len(writes):
            raise NotEncodable(f"is a tuple of {len(items)} elements, expected {label}")
        step = iter(writes)
        return _write_items(items, lambda item: next(step)(item))

    def read_tuple(tree: Json) -> object:
        return tuple(read(item) for read, item in zip(reads, array(tree), strict=True))

    plan.write, plan.read = write, read_tuple
    return plan


def text_dict_plan(label: str, values: Plan) -> Plan:
    plan = Plan(label, OBJECT, frozenset({dict}))
    write_value, read_value = values.write, values.read

    def write(value: Any) -> Json:  # noqa: ANN401
        if type(value) is not dict:
            refuse(value, label)
        items = cast("dict[str, object]", value)
        for key in items:
            if type(key) is not str:
                raise NotEncodable(f"has a key of {type(key).__name__}, expected {label}")
        try:
            return {key: write_value(item) for key, item in items.items()}
        except NotEncodable as error:
            # Keys are data, and errors are logged.
            raise error.inside("[…]") from error.__cause__

    def read(tree: Json) -> object:
        return {key: read_value(item) for key, item in members(tree).items()}

    plan.write, plan.read = write, read
    return plan


def pair_dict_plan(label: str, keys: Plan, values: Plan) -> Plan:
    """A dictionary whose keys are not text: an array of pairs."""
    plan = Plan(label, ARRAY, frozenset({dict}))
    write_key, read_key, write_value, read_value = keys.write, keys.read, values.write, values.read

    def write_pair(pair: tuple[object, object]) -> Json:
        return [write_key(pair[0]), write_value(pair[1])]

    def write(value: Any) -> Json:  # noqa: ANN401
        if type(value) is not dict:
            refuse(value, label)
        return _write_items(cast("dict[object, object]", value).items(), write_pair)

    def read(tree: Json) -> object:
        pairs = [array(pair) for pair in array(tree)]
        found = {read_key(key): read_value(item) for key, item in pairs}
        if len(found) != len(pairs):
            raise Unreadable("a key occurs twice")
        return found

    plan.write, plan.read = write, read
    return plan


def fill_typed_dict(plan: Plan, inner: Mapping[str, Plan], required: frozenset[str]) -> None:
    writes = {name: one.write for name, one in inner.items()}
    reads = {name: one.read for name, one in inner.items()}
    label = plan.label

    def write(value: Any) -> Json:  # noqa: ANN401
        if type(value) is not dict:
            refuse(value, label)
        items = cast("dict[str, object]", value)
        if not required <= items.keys() <= writes.keys():
            raise NotEncodable(f"does not have the keys of {label}")
        tree: dict[str, Json] = {}
        name = ""
        try:
            for name, item in items.items():
                tree[name] = writes[name](item)
        except NotEncodable as error:
            raise error.inside(f"[{name!r}]") from error.__cause__
        return tree

    def read(tree: Json) -> object:
        items = members(tree)
        if not required <= items.keys():
            raise Unreadable(f"a key of {label} is missing")
        return {name: reads[name](item) for name, item in items.items()}

    plan.write, plan.read = write, read


def fill_record(
    plan: Plan, cls: type, found: list[tuple[Field, Plan]], make: Callable[[dict[str, object]], object]
) -> None:
    """By fields.  `__init__` is not called to make an instance again: it may do anything, and has done it."""
    writes = [(field.name, inner.write) for field, inner in found]
    reads = [(field.name, inner.read, _default(field)) for field, inner in found]
    # What is worked out when it is asked for need not be stored.
    known = _cached(cls) | {field.name for field, _ in found}
    label = plan.label
    has_dict = cls.__dictoffset__ != 0

    def write(value: Any) -> Json:  # noqa: ANN401
        if type(value) is not cls:
            refuse(value, label)
        if has_dict and not value.__dict__.keys() <= known:
            extra = ", ".join(sorted(value.__dict__.keys() - known))
            raise NotEncodable(f"has attributes that are not fields of {label}, and would be lost: {extra}")
        tree: dict[str, Json] = {}
        name = ""
        try:
            for name, write_field in writes:
                tree[name] = write_field(getattr(value, name))
        except NotEncodable as error:
            raise error.inside(f".{name}") from error.__cause__
        except AttributeError as error:
            raise NotEncodable("is not set", f".{name}") from error
        return tree

    def read(tree: Json) -> object:
        items = members(tree)
        parts: dict[str, object] = {}
        missing = 0
        for name, read_field, default in reads:
            if name in items:
                parts[name] = read_field(items[name])
            elif default is not None:
                parts[name] = default()
                missing += 1
            else:
                raise Unreadable(f"{label}.{name} is missing")
        if len(items) + missing != len(reads):
            raise Unreadable(f"it has more fields than {label}")
        return make(parts)

    plan.write, plan.read = write, read


def _cached(cls: type) -> frozenset[str]:
    return frozenset(
        name
        for base in cls.__mro__
        for name, attribute in vars(base).items()
        if isinstance(attribute, functools.cached_property)
    )


def _default(field: Field) -> Callable[[], object] | None:
    if field.factory is not None:
        return field.factory
    return None if field.default is MISSING else lambda: field.default


class _Member(NamedTuple):
    """A member of a union, with the tag that it is written with, if any."""

    tag: str | None
    plan: Plan


def union_plan(label: str, plans: list[Plan]) -> Plan:
    """One of several, without tags where JSON alone tells which.  `ValueError` if two have the same label."""
    if any(plan.types == _NUMBERS for plan in plans):
        # The plan of `float` takes integers already.
        plans = [plan for plan in plans if plan.types != frozenset({int})]
    if len(plans) == 1:
        return plans[0]
    kinds = [kind for plan in plans for kind in plan.kinds or ()]
    if len(kinds) == len(set(kinds)):
        union = [_Member(None, plan) for plan in plans]
    else:
        # `None` needs no tag: nothing else is written as null once all others have theirs.
        union = [_Member(None if plan.types == NULL else plan.label, plan) for plan in plans]
    tags = [member.tag for member in union if member.tag is not None]
    if len(set(tags)) < len(tags):
        raise ValueError(next(tag for tag in tags if tags.count(tag) > 1))

    unknown = [member for member in union if member.plan.types is None]
    by_type: dict[type, list[_Member]] = {}
    for member in union:
        for cls in member.plan.types or ():
            by_type.setdefault(cls, []).append(member)
    for candidates in by_type.values():
        candidates += unknown
    by_tag = {member.tag: member.plan.read for member in union if member.tag is not None}
    by_kind = {kind: plan.read for tag, plan in union if tag is None for kind in plan.kinds or ()}
    plan = Plan(
        label, (ARRAY | by_kind.keys()) if tags else frozenset(kinds), None if unknown else frozenset(by_type)
    )

    def write(value: object) -> Json:
        refused: NotEncodable | None = None
        for tag, member in by_type.get(type(value), unknown):
            try:
                tree = member.write(value)
            except NotEncodable as error:
                # Of several reasons, the one that is found deepest in the value is the most telling.
                if refused is None or len(error.where) >= len(refused.where):
                    refused = error
            else:
                return tree if tag is None else [tag, tree]
        if refused is None:
            refuse(value, f"one of {label}")
        raise refused

    def read(tree: Json) -> object:
        if (reader := by_kind.get(type(tree))) is not None:
            return reader(tree)
        tag, content = array(tree)
        if (reader := by_tag.get(text(tag))) is None:
            raise Unreadable(f"it is of a type that is not in {label}")
        return reader(content)

    plan.write, plan.read = write, read
    return plan
