"""Arguments as bytes, to notice a key that is used again for another call.

Equal arguments have equal bytes and different ones different bytes, as `==` has it, with these exceptions:

    bool, numbers, Decimal, Fraction   told apart: `True`, `1` and `Decimal(1)` are three arguments.  `1` and
                                       `1.0` are one, as in a request whose body is compared as JSON
    dataclass, attrs class, model      by the name of the class, and the names and values of their fields:
                                       `Card(7)` is not `Bank(7)`.  A class that is renamed turns a retry into
                                       another call, which is refused.  Fields that have their default are
                                       left out, so that one may be added
    enumeration                        by the names of its class and of the member; one that is a `str` or an
                                       `int` is that
    times in the repeated hour         told apart by `fold`

An instance of a subclass of a built-in class is compared as the built-in one, unless it compares in a way of
its own or has attributes that would not be counted.  What has no content to compare (a session, a file, a
function) is `NotComparable`.
"""

import io
import typing
from abc import ABCMeta
from collections import Counter, OrderedDict, abc, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

from retrysafe._core.fingerprint.canonical import DEEPEST
from retrysafe.operations.values.annotations import (
    MISSING,
    UNANNOTATED,
    alias_value,
    class_of,
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
)
from retrysafe.operations.values.scalars import MICROSECOND

__all__ = ["NotComparable", "fingerprint_value", "is_comparable"]


class NotComparable(TypeError):
    """An argument of which it cannot be said whether another one is equal.

    Raised inside out: each part that contains the culprit adds where it is.
    """

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason, where)
        self.reason = reason
        self.where = where

    def inside(self, part: str) -> "NotComparable":
        return type(self)(self.reason, part + self.where)

    def __str__(self) -> str:
        return f"its argument {self.where} {self.reason}"


def fingerprint_value(value: object, *, name: str) -> bytes:
    """The argument `name` in its one spelling.  It says where it ends, so several may be put in a row."""
    try:
        return _spell(value, DEEPEST)
    except NotComparable as error:
        raise error.inside(name) from None


_Spell = Callable[[Any, int], bytes]


def _frame(tag: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(content), content)


def _spell(value: object, levels: int) -> bytes:
    if levels < 0:
        raise NotComparable(f"is nested deeper than {DEEPEST} levels")
    return (_SPELLINGS.get(type(value)) or _unusual(value))(value, levels)


def _unusual(value: object) -> _Spell:
    """How an instance of a class that is not in the table is written."""
    cls = type(value)
    name = cls.__name__
    if is_mapped(cls):
        raise NotComparable(f"is of type {name}, which belongs to a database session")
    base = next((base for base in cls.__mro__ if base in _SPELLINGS), None)
    if isinstance(value, Enum):
        # To Python, a member that is a text or a number as well is equal to it.
        return _enum if base is None else _SPELLINGS[base]
    if base is None and (is_record(cls) or is_model(cls)):
        return _record
    if base is None:
        raise NotComparable(f"is of type {name}, which has no content to compare")
    if _compares_itself(cls, base):
        raise NotComparable(f"is of type {name}, which compares in another way than {base.__name__} does")
    if getattr(value, "__dict__", None) or _has_slots(cls, base):
        raise NotComparable(f"is of type {name}, which has more to it than a {base.__name__}")
    return _SPELLINGS[base]


def _compares_itself(cls: Any, base: Any) -> bool:  # noqa: ANN401 (mypy takes `__eq__` of a class for its metaclass's)
    return cls.__eq__ is not base.__eq__


def _has_slots(cls: type, base: type) -> bool:
    own = cls.__mro__[: cls.__mro__.index(base)]
    return any(set(vars(one).get("__slots__", ())) - {"__dict__", "__weakref__"} for one in own)


def _none(_value: None, _levels: int) -> bytes:
    return b"0"


def _bool(value: bool, _levels: int) -> bytes:
    return b"T" if value else b"F"


def _int(value: int, _levels: int) -> bytes:
    # Hexadecimal, because Python limits how many decimal digits it writes.
    return _frame(b"n", b"%x" % value)


def _float(value: float, _levels: int) -> bytes:
    if isfinite(value):
        return _int(int(value), 0) if value.is_integer() else _frame(b"n", float.hex(value).encode())
    return _frame(b"n", float.__repr__(value).encode())


def _text(value: str, _levels: int) -> bytes:
    return _frame(b"s", str.encode(value, "utf-8", "surrogatepass"))


def _bytes(value: bytes | bytearray, _levels: int) -> bytes:
    return _frame(b"b", bytes(value))


def _decimal(value: Decimal, _levels: int) -> bytes:
    sign, digits, exponent = Decimal.as_tuple(value)
    significant = "".join(map(str, digits)).lstrip("0")
    if isinstance(exponent, str):
        return _frame(b"d", f"{exponent}{sign}{significant}".encode())
    kept = significant.rstrip("0")
    if not kept:
        return _frame(b"d", b"0")
    return _frame(b"d", f"{'-' * sign}{kept}e{exponent + len(significant) - len(kept)}".encode())


def _fraction(value: Fraction, _levels: int) -> bytes:
    return _frame(b"q", b"%x/%x" % (value.numerator, value.denominator))


def _microseconds(tag: bytes, value: timedelta) -> bytes:
    return _frame(tag, b"%d" % (value // MICROSECOND))


def _datetime(value: datetime, _levels: int) -> bytes:
    offset = value.utcoffset()
    if offset is None:
        return _frame(b"w", f"{value.replace(tzinfo=None, fold=0).isoformat()}/{value.fold}".encode())
    # The moment in UTC, reckoned from the first day: times near the ends of the calendar have none in UTC.
    return _microseconds(b"m", value.replace(tzinfo=None) - datetime.min - offset)  # noqa: DTZ901 (both naive)


def _date(value: date, _levels: int) -> bytes:
    return _frame(b"y", date.isoformat(value).encode())


def _time(value: time, _levels: int) -> bytes:
    offset, zone = value.utcoffset(), value.tzinfo
    wall = value.replace(tzinfo=None, fold=0)
    if offset is not None:
        midnight = timedelta(hours=wall.hour, minutes=wall.minute, seconds=wall.second)
        return _microseconds(b"h", midnight + timedelta(microseconds=wall.microsecond) - offset)
    if zone is None or isinstance(zone, ZoneInfo):
        key = zone.key if zone else ""
        return _frame(b"c", f"{wall.isoformat()}/{value.fold}/{key}".encode())
    raise NotComparable(f"is in a time zone of {type(zone).__name__}, which has no offset without a date")


def _timedelta(value: timedelta, _levels: int) -> bytes:
    return _microseconds(b"t", value)


def _uuid(value: UUID, _levels: int) -> bytes:
    return _frame(b"u", value.bytes)


def _path(value: PurePath, _levels: int) -> bytes:
    flavour = b"\\" if isinstance(value, PureWindowsPath) else b"/"
    return _frame(b"p", flavour + str(value).encode("utf-8", "surrogatepass"))


def _range(value: range, _levels: int) -> bytes:
    # Ranges with the same numbers are equal, however they were made.
    length = len(value)
    parts = (length, value.start if length else 0, value.step if length > 1 else 1)
    return _frame(b"r", b"%x/%x/%x" % parts)


def _items(items: Iterable[object], levels: int) -> Iterator[bytes]:
    for number, item in enumerate(items):
        try:
            yield _spell(item, levels - 1)
        except NotComparable as error:
            raise error.inside(f"[{number}]") from None


def _list(value: list[object], levels: int) -> bytes:
    return _frame(b"l", b"".join(_items(value, levels)))


def _tuple(value: tuple[object, ...], levels: int) -> bytes:
    return _frame(b"v", b"".join(_items(value, levels)))


def _deque(value: deque[object], levels: int) -> bytes:
    return _frame(b"e", b"".join(_items(value, levels)))


def _set(value: set[object] | frozenset[object], levels: int) -> bytes:
    return _frame(b"z", b"".join(sorted(_items(value, levels))))


def _mapping(value: dict[object, object], levels: int) -> bytes:
    # As a dictionary holds it: a class on top of it may show less, as one with several values for a key does.
    return _pairs(_raw_items(value), levels)


_raw_items = cast(
    "Callable[[dict[object, object]], Iterable[tuple[object, object]]]", cast("Any", dict).items
)


def _proxy(value: MappingProxyType[object, object], levels: int) -> bytes:
    return _pairs(value.items(), levels)


def _pairs(pairs: Iterable[tuple[object, object]], levels: int) -> bytes:
    spelled: list[bytes] = []
    for key, item in pairs:
        try:
            spelled.append(_spell(key, levels - 1) + _spell(item, levels - 1))
        except NotComparable as error:
            raise error.inside(f"[{key!r}]" if isinstance(key, str | int) else "[…]") from None
    return _frame(b"o", b"".join(sorted(spelled)))


def _enum(value: Enum, levels: int) -> bytes:
    if isinstance(value, Flag):
        # A combination of flags has no name of its own.
        return _frame(b"f", _class(value) + _spell(value.value, levels - 1))
    return _frame(b"x", _class(value) + value.name.encode("utf-8", "surrogatepass"))


def _class(value: object) -> bytes:
    return _text(type(value).__name__, 0)


class _Compared(NamedTuple):
    """A field that counts when two instances are compared, and how its default is written."""

    name: str
    annotation: object
    default: object
    spelled: bytes | None


@lru_cache(maxsize=512)
def _compared(cls: type) -> tuple[_Compared, ...]:
    return tuple(
        _Compared(field.name, field.annotation, field.default, _spelled_default(field.default))
        for field in fields(cls)
        if field.compared
    )


def _spelled_default(default: object) -> bytes | None:
    if default is MISSING:
        return None
    try:
        return _spell(default, DEEPEST)
    except NotComparable:
        # A mark such as `UNSET = object()`: it is equal to itself alone.
        return None


def _record(value: object, levels: int) -> bytes:
    cls = type(value)
    parts: dict[str, bytes] = {}
    name = ""
    try:
        for name, _, default, spelled_default in _compared(cast("type", cls)):
            part: object = getattr(value, name, default)
            if part is not default and (spelled := _spell(part, levels - 1)) != spelled_default:
                parts[name] = spelled
        if is_model(cls):
            # Fields that the model did not declare, where it allows them.
            extra: dict[str, object] = cast("Any", value).__pydantic_extra__ or {}
            for name, part in extra.items():
                parts[name] = _spell(part, levels - 1)
    except NotComparable as error:
        raise error.inside(f".{name}") from None
    return _frame(b"k", _class(value) + b"".join(_text(name, 0) + parts[name] for name in sorted(parts)))


_SPELLINGS: dict[type, _Spell] = {
    NoneType: _none,
    bool: _bool,
    int: _int,
    float: _float,
    str: _text,
    bytes: _bytes,
    bytearray: _bytes,
    Decimal: _decimal,
    Fraction: _fraction,
    datetime: _datetime,
    date: _date,
    time: _time,
    timedelta: _timedelta,
    UUID: _uuid,
    PurePosixPath: _path,
    PureWindowsPath: _path,
    type(Path()): _path,
    range: _range,
    list: _list,
    tuple: _tuple,
    deque: _deque,
    set: _set,
    frozenset: _set,
    dict: _mapping,
    defaultdict: _mapping,
    OrderedDict: _mapping,
    Counter: _mapping,
    MappingProxyType: _proxy,
}

_WITHOUT_CONTENT: tuple[type, ...] = (
    cast("type", abc.Callable),
    abc.Iterator,
    abc.AsyncIterator,
    abc.Awaitable,
    io.IOBase,
    typing.IO,
)


def is_comparable(annotation: object) -> bool | None:
    """Whether an argument so annotated can be compared; none where only its value will tell."""
    return _judge(annotation, ())


_Seen = tuple[object, ...]


def _judge(annotation: object, seen: _Seen) -> bool | None:
    annotation = peel(annotation)
    if annotation in UNANNOTATED or isinstance(annotation, str | TypeVar | typing.ForwardRef):
        return None
    if get_origin(annotation) is Literal or annotation in seen:
        # Met again inside of itself, it adds nothing to what is found on the way.
        return True
    seen = (*seen, annotation)
    if is_union(annotation):
        judged = {_judge(member, seen) for member in get_args(annotation)}
        return judged.pop() if len(judged) == 1 else None
    if is_alias(annotation):
        return _judge(alias_value(annotation), seen)
    cls = class_of(annotation)
    return None if cls is None else _judge_class(annotation, cls, seen)


def _judge_class(annotation: object, cls: type, seen: _Seen) -> bool | None:
    if is_mapped(cls):
        return False
    if Enum in cls.__mro__ or cls in (Path, PurePath):
        return True
    base = next((base for base in cls.__mro__ if base in _SPELLINGS), None)
    if is_typed_dict(cls) or is_named_tuple(cls) or (base is None and (is_record(cls) or is_model(cls))):
        return _judge_fields(annotation, cls, seen)
    if base is not None or _is_a(cls, abc.Collection):
        if base is not None and _compares_itself(cls, base):
            return False
        judged = _together(get_args(annotation), seen)
        # Of an abstract collection, or a subclass, the value may be of a class that compares in its own way.
        return judged if judged is False or cls is base else None
    if _is_a(cls, *_WITHOUT_CONTENT):
        return False
    if isinstance(cls, ABCMeta) or getattr(cls, "_is_protocol", False):
        return None
    # A class of which a subclass can be compared stands for its subclasses.
    subclasses: list[type] = type.__subclasses__(cls)
    return None if any(_judge(sub, seen) is not False for sub in subclasses) else False


def _is_a(cls: type, *bases: type) -> bool:
    return issubclass(cls, bases)


def _judge_fields(annotation: object, cls: type, seen: _Seen) -> bool | None:
    try:
        found = hints(annotation)
    except NameError:
        # Named for type checkers only: the value will tell.
        return None
    if not is_typed_dict(cls):
        found = {field.name: found.get(field.name, field.annotation) for field in _compared(cls)}
    return _together(found.values(), seen)


def _together(annotations: Iterable[object], seen: _Seen) -> bool | None:
    judged = {_judge(annotation, seen) for annotation in annotations if annotation is not ...}
    return False if False in judged else None if None in judged else True
