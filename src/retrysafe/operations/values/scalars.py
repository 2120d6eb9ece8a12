"""Values without parts: how each is written as JSON so that it comes back equal and of the same type.

Where JSON has the type, it is used; elsewhere a text that operators can read.  Nothing that is read here is
trusted: whatever does not make sense is an exception of some kind, and never runs code.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import NoneType
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class NotEncodable(ValueError):
    """A value that would not come back from the store as it went in.

    Raised inside out: each part that contains the culprit adds where it is.
    """

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason, where)
        self.reason = reason
        self.where = where

    def inside(self, part: str) -> "NotEncodable":
        return type(self)(self.reason, part + self.where)

    def __str__(self) -> str:
        return f"the value{self.where} {self.reason}"


class Unreadable(ValueError):
    """Stored JSON that is not as expected; its text does not repeat any of it, and so may be logged."""


def why(error: Exception) -> str:
    """What may be said of an error while stored bytes were read: Python's own texts often repeat them."""
    return str(error) if isinstance(error, Unreadable) else type(error).__name__


class Scalar(NamedTuple):
    """One type, and how its exact instances are written and read."""

    of: type
    tag: str
    kinds: frozenset[type]
    """The types that `json.loads` may give for it, by which members of a union are told apart."""
    write: Callable[[Any], Json]
    read: Callable[[Json], object]


def _unexpected(tree: Json, expected: str) -> Unreadable:
    return Unreadable(f"expected {expected}, found {type(tree).__name__}")


def text(tree: Json) -> str:
    if type(tree) is not str:
        raise _unexpected(tree, "str")
    return tree


def array(tree: Json) -> list[Json]:
    if type(tree) is not list:
        raise _unexpected(tree, "list")
    return tree


def members(tree: Json) -> dict[str, Json]:
    if type(tree) is not dict:
        raise _unexpected(tree, "dict")
    return tree


PLAIN_BITS = 2000
"""Python reads and writes at least 640 digits whatever limit is configured (`sys.set_int_max_str_digits`).
Larger integers are written in hexadecimal, which has no limit."""


def _same(value: Json) -> Json:
    return value


def _read_none(tree: Json) -> None:
    if tree is not None:
        raise _unexpected(tree, "null")


def _read_bool(tree: Json) -> bool:
    if type(tree) is not bool:
        raise _unexpected(tree, "bool")
    return tree


def _write_int(value: int) -> Json:
    return value if value.bit_length() <= PLAIN_BITS else {"hex": f"{value:x}"}


def _read_int(tree: Json) -> int:
    if type(tree) is int:
        return tree
    (digits,) = members(tree).values()
    return int(text(digits), 16)


def _write_float(value: float) -> Json:
    return value if isfinite(value) else [repr(value)]


def _read_float(tree: Json) -> float:
    if type(tree) is float:
        return tree
    (name,) = array(tree)
    return float(text(name))


def _write_bytes(value: bytes) -> Json:
    return b64encode(value).decode("ascii")


def _read_bytes(tree: Json) -> bytes:
    return b64decode(text(tree), validate=True)


def _read_decimal(tree: Json) -> Decimal:
    return Decimal(text(tree))


def _write_fraction(value: Fraction) -> Json:
    return [_write_int(value.numerator), _write_int(value.denominator)]


def _read_fraction(tree: Json) -> Fraction:
    numerator, denominator = map(_read_int, array(tree))
    return Fraction(numerator, denominator)


# RFC 9557: a time zone in brackets behind the time, and tags of one's own that begin with an underscore.
_ZONE = r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*"
_ZONED = re.compile(rf"([^\[]*)(?:\[({_ZONE})\])?(\[_fold=1\])?")
_ZONE_KEY = re.compile(_ZONE)


def _write_zoned(value: datetime | time) -> str:
    zone = value.tzinfo
    suffix = "[_fold=1]" if value.fold else ""
    if zone is None or type(zone) is timezone:
        return value.isoformat() + suffix
    if type(zone) is ZoneInfo and _ZONE_KEY.fullmatch(zone.key or ""):
        return f"{value.isoformat()}[{zone.key}]{suffix}"
    # Of any other class, only the offset can be stored.  Where that says less than the class did (Python
    # holds the hour that is repeated in autumn unequal to all times of other zones), it is refused.
    text = value.isoformat() + suffix
    read = _read_datetime if isinstance(value, datetime) else _read_time
    if value.utcoffset() is None or read(text) != value:
        raise NotEncodable(f"is in a time zone of {type(zone).__name__}; use zoneinfo, or convert it to UTC")
    return text


def _zoned(tree: Json) -> tuple[str, ZoneInfo | None, int]:
    found = _ZONED.fullmatch(text(tree))
    if found is None:
        raise Unreadable("not a time")
    return found[1], ZoneInfo(found[2]) if found[2] else None, 1 if found[3] else 0


def _read_datetime(tree: Json) -> datetime:
    iso, zone, fold = _zoned(tree)
    value = datetime.fromisoformat(iso).replace(fold=fold)
    return value.replace(tzinfo=zone) if zone else value


def _read_date(tree: Json) -> date:
    return date.fromisoformat(text(tree))


def _read_time(tree: Json) -> time:
    iso, zone, fold = _zoned(tree)
    value = time.fromisoformat(iso).replace(fold=fold)
    return value.replace(tzinfo=zone) if zone else value


MICROSECOND = timedelta(microseconds=1)


def _write_timedelta(value: timedelta) -> Json:
    return value // MICROSECOND


def _read_timedelta(tree: Json) -> timedelta:
    return timedelta(microseconds=_read_int(tree))


def _read_uuid(tree: Json) -> UUID:
    return UUID(text(tree))


def _path(kind: type[PurePath]) -> Scalar:
    def read(tree: Json) -> PurePath:
        return kind(text(tree))

    return Scalar(kind, kind.__name__, _TEXT, str, read)


_TEXT = frozenset({str})
_ARRAY: frozenset[type] = frozenset({list})
_OBJECT: frozenset[type] = frozenset({dict})

_SCALARS = (
    Scalar(NoneType, "None", frozenset({NoneType}), _same, _read_none),
    Scalar(bool, "bool", frozenset({bool}), _same, _read_bool),
    Scalar(int, "int", _OBJECT | {int}, _write_int, _read_int),
    Scalar(float, "float", _ARRAY | {float}, _write_float, _read_float),
    Scalar(str, "str", _TEXT, _same, text),
    Scalar(bytes, "bytes", _TEXT, _write_bytes, _read_bytes),
    # The text of a decimal has all of its digits, whatever the precision of the context is.
    Scalar(Decimal, "Decimal", _TEXT, str, _read_decimal),
    Scalar(Fraction, "Fraction", _ARRAY, _write_fraction, _read_fraction),
    Scalar(datetime, "datetime", _TEXT, _write_zoned, _read_datetime),
    Scalar(date, "date", _TEXT, date.isoformat, _read_date),
    Scalar(time, "time", _TEXT, _write_zoned, _read_time),
    Scalar(timedelta, "timedelta", frozenset({int}), _write_timedelta, _read_timedelta),
    Scalar(UUID, "UUID", _TEXT, str, _read_uuid),
    _path(PurePosixPath),
    _path(PureWindowsPath),
    _path(type(Path())),  # of this system: another one would not take all of its paths
)

SCALARS: dict[type, Scalar] = {scalar.of: scalar for scalar in _SCALARS}
"""By exact type: an instance of a subclass would come back as another type."""
