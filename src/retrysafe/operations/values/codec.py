"""Return values as JSON, decoded by the annotation of the function that returned them.

`codec` reads an annotation once, where a function is decorated, and makes a `Codec` of it: two functions, to
bytes and back.  What comes back is equal to what went in and of the same type, or `encode` has refused it:

    int, str, None, …            as JSON has them; what JSON lacks as a text (`scalars.py`)
    list, tuple, set, …          an array
    dict                         an object, or an array of pairs where keys are not text
    dataclass, NamedTuple, …     an object by the names of its fields; made again without calling `__init__`
    enumeration                  the name of the member
    A | B                        what its member writes; `["A", …]` where JSON alone does not tell them apart
    Any, or no annotation        JSON values only

A field that was added since, with a default, gets its default; one that was removed makes the stored value
unreadable, because part of it would be lost.  Types are taken from the annotation alone: stored bytes name no
class to look for, are never unpickled and import nothing.
"""

import re
import typing
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from inspect import isabstract
from json import JSONDecoder, JSONEncoder
from pathlib import Path, PurePath
from typing import Any, Literal, NoReturn, cast, get_args, get_origin

from retrysafe._core.fingerprint.canonical import DEEPEST, Value, deeper
from retrysafe.errors import ConfigurationError, UnreadableRecord
from retrysafe.operations.values.annotations import (
    UNANNOTATED,
    Field,
    alias_value,
    class_of,
    describe,
    fields,
    hints,
    is_alias,
    is_mapped,
    is_model,
    is_named_tuple,
    is_record,
    is_typed_dict,
    is_union,
    peel,
    qualifier,
)
from retrysafe.operations.values.models import model_plan, why_not
from retrysafe.operations.values.plans import (
    OBJECT,
    Plan,
    collection_plan,
    enum_plan,
    fill_record,
    fill_typed_dict,
    json_plan,
    literal_plan,
    number_plan,
    pair_dict_plan,
    scalar_plan,
    text_dict_plan,
    tuple_plan,
    union_plan,
)
from retrysafe.operations.values.scalars import SCALARS, Json, NotEncodable, why

__all__ = ["Codec", "NotEncodable", "codec", "dump", "parse"]

_SUPPORTED = (
    "Supported are None, bool, int, float, str, bytes, Decimal, Fraction, datetime, date, time, timedelta, "
    "UUID, Path, Enum, Literal, list, tuple, set, frozenset, dict, Sequence, Mapping, Set, NamedTuple, "
    "TypedDict, dataclasses, attrs classes, pydantic models, unions of these, and Any for JSON values"
)


class Codec:
    """Values of one annotation, to bytes and back."""

    __slots__ = ("_annotation", "_name", "_read", "_recursive", "_write")

    def __init__(self, name: str, annotation: object, plan: Plan, *, recursive: bool) -> None:
        self._name = name
        self._annotation = describe(annotation)
        self._write = plan.write
        self._read = plan.read
        self._recursive = recursive

    def encode(self, value: object) -> bytes:
        """Compact JSON; `NotEncodable` for what is not as annotated or would come back different."""
        try:
            tree = self._write(value)
            if self._recursive and deeper(cast("Value", tree), DEEPEST):
                raise NotEncodable(f"is nested deeper than {DEEPEST} levels")
            return dump(tree)
        except NotEncodable as error:
            reason = error.reason
            if self._annotation == "Any":
                reason += f": annotate what {self._name} returns, or say it with returns="
            else:
                reason += (
                    f"; {self._name} is annotated to return {self._annotation}: return exactly that, or say "
                    "with returns= what is returned"
                )
            raise NotEncodable(reason, error.where) from error.__cause__
        except RecursionError:
            # A value that contains itself gets here, too.
            raise NotEncodable(f"returned by {self._name} is nested too deeply to be stored") from None
        except Exception as error:
            # What a property of the value raises, or another thread that changes it: the function has done
            # its work, and its caller has to be told about this and nothing else.
            raise NotEncodable(f"returned by {self._name} cannot be read: {type(error).__name__}") from error

    def decode(self, data: bytes) -> object:
        """What was encoded; `UnreadableRecord` for bytes that are damaged or of another annotation."""
        try:
            return self._read(parse(data))
        except Exception as error:  # noqa: BLE001 (also what a model's own validators raise; none is swallowed)
            # The cause is not chained: its text may repeat parts of the value, which do not belong in a log.
            raise UnreadableRecord(
                f"the stored value of {self._name} cannot be read as {self._annotation} ({why(error)}): it "
                "is damaged, or was stored when the annotation was another one"
            ) from None


def codec(annotation: object, *, name: str) -> Codec:
    """The codec for what the function `name` returns; `ConfigurationError` if its type cannot be kept."""
    builder = _Builder(annotation, name)
    plan = builder.plan(annotation)
    return Codec(name, annotation, plan, recursive=builder.recursive)


_json = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def dump(tree: Json) -> bytes:
    written = _json(tree)
    try:
        return written.encode()
    except UnicodeEncodeError:
        # Lone surrogates are not UTF-8 and are escaped; but two escapes that make a pair are read as one
        # character.
        if _PAIR.search(written):
            raise NotEncodable("has a text in which one character is stored as two surrogates") from None
        return written.encode("utf-8", "backslashreplace")


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode = JSONDecoder(parse_constant=_constant).decode


def parse(data: bytes) -> Json:
    tree: Json = _decode(data.decode())
    return tree


_COLLECTIONS: dict[type, tuple[type[Collection[object]], ...]] = {
    list: (list,),
    tuple: (tuple,),
    set: (set,),
    frozenset: (frozenset,),
    # Abstract ones stand for the classes that people return for them.
    abc.Sequence: (list, tuple),
    abc.MutableSequence: (list,),
    abc.Set: (set, frozenset),
    abc.MutableSet: (set,),
    abc.Collection: (list, tuple, set, frozenset),
}

_DEEPEST_CLASSES = 30
"""Classes that contain each other, one inside the other: more than people write by hand.  A generic class may
contain itself with arguments that grow, and has no end."""

_MAPPINGS = frozenset({dict, abc.Mapping, abc.MutableMapping})


class _Builder:
    """Makes the plan of one annotation, and says where in it something is not supported."""

    def __init__(self, annotation: object, name: str) -> None:
        self._annotation = annotation
        self._name = name
        self._path: list[str] = []
        self._plans: dict[object, Plan] = {}
        self._unfinished: set[object] = set()
        self.recursive = False

    def plan(self, annotation: object) -> Plan:
        annotation = peel(annotation)
        if annotation in UNANNOTATED:
            return json_plan()
        if is_union(annotation):
            return self._union(annotation, [self.plan(member) for member in get_args(annotation)])
        if get_origin(annotation) is Literal:
            values = get_args(annotation)
            types = dict.fromkeys(map(type, values))
            inner = self._union(annotation, [self.plan(cls) for cls in types])
            return literal_plan(describe(annotation), values, inner)
        if is_alias(annotation):
            return self._once(annotation, None, None, self._alias)
        cls = class_of(annotation)
        if cls is None:
            return self._refuse(annotation, "its values are not known when the function is decorated")
        return self._simple(annotation, cls) or self._class(annotation, cls)

    def _simple(self, annotation: object, cls: type) -> Plan | None:
        """Of a class that Python has itself."""
        if cls is float:
            return number_plan()
        # `Path` and `PurePath` are made as the classes of this system.
        concrete = type(cls()) if cls in (Path, PurePath) else cls
        if (scalar := SCALARS.get(concrete)) is not None:
            return scalar_plan(describe(annotation), scalar)
        if (collections := _COLLECTIONS.get(cls)) is not None:
            return self._union(annotation, [self._collection(annotation, one) for one in collections])
        if cls in _MAPPINGS:
            return self._dict(annotation)
        return None

    def _class(self, annotation: object, cls: type) -> Plan:
        own = frozenset({cls})
        if is_mapped(cls):
            return self._refuse(annotation, "it belongs to a database session; return its id, or a dataclass")
        if BaseException in cls.__mro__:
            return self._refuse(annotation, "an exception is raised, not returned; declare it in raises=")
        if Enum in cls.__mro__:
            return enum_plan(describe(annotation), cast("type[Enum]", cls))
        if is_typed_dict(cls):
            return self._once(annotation, OBJECT, OBJECT, self._typed_dict)
        if is_model(cls):
            if (reason := why_not(cls)) is not None:
                return self._refuse(annotation, reason)
            return model_plan(describe(annotation), cls)
        if is_named_tuple(cls):
            return self._once(annotation, OBJECT, own, self._named_tuple)
        if is_record(cls):
            return self._once(annotation, OBJECT, own, self._record)
        return self._refuse(annotation, "it is not known what the values of this class consist of")

    def _refuse(self, annotation: object, why: str) -> NoReturn:
        found = ": ".join([*([" -> ".join(self._path)] if self._path else []), describe(annotation)])
        raise ConfigurationError(
            f"{self._name} is annotated to return {describe(self._annotation)}, and {found} cannot be stored "
            f"with its type: {why}. "
            f"{_SUPPORTED}. Return an id or a dataclass made of these, or pass returns= with such a type."
        )

    def _once(
        self,
        annotation: object,
        kinds: frozenset[type] | None,
        types: frozenset[type] | None,
        build: Callable[[object, Plan], None],
    ) -> Plan:
        """A plan that may contain itself: met again on the way, it is the same one."""
        key = annotation if _is_hashable(annotation) else repr(annotation)
        if (known := self._plans.get(key)) is not None:
            self.recursive = self.recursive or key in self._unfinished
            return known
        if len(self._unfinished) >= _DEEPEST_CLASSES:
            self._refuse(annotation, "its type arguments grow without end")
        plan = self._plans[key] = Plan(describe(annotation), kinds, types)
        self._unfinished.add(key)
        build(annotation, plan)
        self._unfinished.discard(key)
        return plan

    def _alias(self, annotation: object, plan: Plan) -> None:
        meant = self.plan(alias_value(annotation))
        plan.kinds, plan.types = meant.kinds, meant.types
        plan.write, plan.read = meant.write, meant.read

    def _union(self, annotation: object, plans: list[Plan]) -> Plan:
        if any(plan.kinds is None for plan in plans):
            self._refuse(annotation, "it refers to itself with nothing around it")
        try:
            return union_plan(describe(annotation), plans)
        except ValueError as label:
            return self._refuse(annotation, f"two of its members are called {label}")

    def _collection(self, annotation: object, cls: type[Collection[object]]) -> Plan:
        arguments = get_args(annotation)
        if any(getattr(argument, "__unpacked__", False) for argument in arguments):
            self._refuse(annotation, "how many elements it has is not known")
        # `Tuple` is any tuple, `tuple[()]` the empty one, and neither has arguments.
        if get_origin(annotation) is tuple and arguments[1:] != (...,) and annotation is not typing.Tuple:  # noqa: UP006
            return tuple_plan(describe(annotation), [self.plan(argument) for argument in arguments])
        # `Sequence[int]` is written as one of two, and these need names of their own.
        label = describe(annotation if class_of(annotation) is cls else cls)
        return collection_plan(label, cls, self.plan(arguments[0] if arguments else Any))

    def _dict(self, annotation: object) -> Plan:
        key, value = get_args(annotation) or (str, Any)
        values = self.plan(value)
        if peel(key) in (str, *UNANNOTATED):
            return text_dict_plan(describe(annotation), values)
        return pair_dict_plan(describe(annotation), self.plan(key), values)

    def _inner(self, cls: type, name: str, annotation: object) -> Plan:
        self._path.append(f"{cls.__name__}.{name}")
        plan = self.plan(annotation)
        self._path.pop()
        return plan

    def _unresolved(self, annotation: object, error: NameError) -> NoReturn:
        self._refuse(annotation, f"its annotations name {error.name!r}, which its module does not define")

    def _typed_dict(self, annotation: object, plan: Plan) -> None:
        cls = cast("type", class_of(annotation))
        try:
            found = hints(annotation)
        except NameError as error:
            self._unresolved(annotation, error)
        inner = {name: self._inner(cls, name, hint) for name, hint in found.items()}
        fill_typed_dict(plan, inner, _required(cls, found))

    def _fields(self, annotation: object, cls: type) -> list[tuple[Field, Plan]]:
        try:
            found = hints(annotation)
        except NameError as error:
            self._unresolved(annotation, error)
        return [
            (field, self._inner(cls, field.name, found.get(field.name, field.annotation)))
            for field in fields(cls)
        ]

    def _named_tuple(self, annotation: object, plan: Plan) -> None:
        cls = cast("type[tuple[object, ...]]", class_of(annotation))
        new = cast("Callable[[type, Iterable[object]], object]", cast("Any", tuple).__new__)
        fill_record(plan, cls, self._fields(annotation, cls), lambda parts: new(cls, parts.values()))

    def _record(self, annotation: object, plan: Plan) -> None:
        cls = cast("type", class_of(annotation))
        if isabstract(cls):
            self._refuse(annotation, "it is abstract; name the classes that are returned, as A | B")
        found = self._fields(annotation, cls)
        if unknown := _slots(cls) - {field.name for field, _ in found}:
            self._refuse(annotation, f"it has slots that are not fields: {', '.join(sorted(unknown))}")
        new = cast("Callable[[type], object]", object.__new__)
        try:
            new(cls)
        except TypeError:
            self._refuse(annotation, "it is built on a class that holds something of its own")
        assign = object.__setattr__  # of a frozen class, too

        def make(parts: Mapping[str, object]) -> object:
            instance = new(cls)
            for name, part in parts.items():
                assign(instance, name, part)
            return instance

        fill_record(plan, cls, found, make)


def _required(cls: type, found: Mapping[str, object]) -> frozenset[str]:
    """The keys that a typed dictionary must have.

    `__required_keys__` knows nothing of qualifiers in annotations that are strings, so they are looked up.
    """
    said: frozenset[str] = cast("Any", cls).__required_keys__
    required: set[str] = set()
    for name, hint in found.items():
        is_required = name in said
        while (word := qualifier(hint)) or get_origin(hint) is typing.Annotated:
            is_required = word == "Required" or (is_required and word != "NotRequired")
            hint = get_args(hint)[0]
        if is_required:
            required.add(name)
    return frozenset(required)


def _is_hashable(annotation: object) -> bool:
    """Not all are: what `Annotated` adds may be anything."""
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def _slots(cls: type) -> frozenset[str]:
    """What instances hold outside of `__dict__`."""
    slots: set[str] = set()
    for base in cls.__mro__:
        own: str | Iterable[str] = vars(base).get("__slots__", ())
        slots.update((own,) if isinstance(own, str) else own)
    return frozenset(slots - {"__dict__", "__weakref__"})
