"""JSON texts that mean the same, written the same: RFC 8785, with nothing rounded.

`parse` takes a text apart and `write` puts it together again with its members sorted, no white
space and one spelling for each string and number.  Texts that mean the same are then the same, and
only those.

RFC 8785 reads every number as a double, and so takes 9007199254740993 for 9007199254740992.  A
Python handler can tell them apart, and to take two payments for one is worse than to take one for
two.  A number is therefore written as the RFC says if that has the value that was sent, and
otherwise in full, behind a `#`, with which no JSON value begins.  1, 1.0 and 1e0 are one number,
and so are 0 and -0.

What has no single meaning is refused with `ValueError`: what is not UTF-8 or opens with a byte
order mark, a name that occurs twice, `NaN` and `Infinity`, and nesting deeper than `DEEPEST`.
"""

import re
from json import JSONDecoder, JSONEncoder
from math import isfinite
from typing import NoReturn, TypeAlias

DEEPEST = 100
"""Deeper than any API nests, and far from where Python gives up.  That depends on the caller's
stack, and a retry must not be read differently because it came through one middleware more."""

Number = tuple[str]
"""A number in its one spelling.  A bare tuple, because large bodies hold thousands of them."""

Value: TypeAlias = "str | Number | dict[str, Value] | list[Value] | bool | None"


def parse(data: bytes) -> Value:
    try:
        # RFC 8259, section 8.1: UTF-8 and nothing else.  `json.loads` would also guess at UTF-16.
        value: Value = _decoder.decode(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if deeper(value, DEEPEST):
        raise ValueError("nested too deeply")
    return value


def write(value: Value) -> str:
    match value:
        case str():
            return _quote(value)
        case tuple():
            return value[0]
        case dict():
            names = sorted(value, key=None if all(map(str.isascii, value)) else _utf16)
            return "{" + ",".join([f"{_quote(name)}:{write(value[name])}" for name in names]) + "}"
        case list():
            return "[" + ",".join([write(item) for item in value]) + "]"
        case None:
            return "null"
        case True:
            return "true"
        case False:
            return "false"


def _utf16(name: str) -> bytes:
    """RFC 8785, section 3.2.3: members in the order of their UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _members(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    # RFC 7493, section 2.3.  Some parsers keep the first of two, some the last.
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def deeper(value: Value, limit: int) -> bool:
    """Level by level, so that measuring needs no stack itself."""
    level = [value]
    for _ in range(limit):
        level = [child for parent in level for child in _nested(parent)]
        if not level:
            return False
    return True


def _nested(value: Value) -> list[Value]:
    """The arrays and objects right inside of it."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in inside if isinstance(item, (list, dict))]


_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")

_Decimal = tuple[str, str, int]
"""Sign, digits without zeros at either end, and the power of ten by which they are multiplied."""


def _integer(text: str) -> Number:
    # A double holds any fifteen digits: nearly all integers end here.
    return (text,) if len(text) <= 15 and text != "-0" else _number(text)


def _number(text: str) -> Number:
    double = float(text)
    # Between these two Python writes a double as ECMAScript does, but for the `.0` of a whole one.
    if len(text) <= 15 and 1e-4 <= abs(double) < 1e16:
        return (repr(double).removesuffix(".0"),)
    sign, digits, exponent = exact = _decimal(text)
    # `repr` finds the fewest digits that stand for a double, and so does ECMAScript.
    if isfinite(double) and _decimal(repr(double)) == exact:
        return (sign + _ecmascript(digits, exponent),)
    return (f"#{sign}{digits}e{exponent}",)


def _decimal(text: str) -> _Decimal:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError("not a number of JSON")
    sign, whole, fraction, power = found.groups(default="")
    digits = (whole + fraction).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return "", "0", 0
    return sign, kept, int(power or 0) - len(fraction) + len(digits) - len(kept)


def _ecmascript(digits: str, exponent: int) -> str:
    """RFC 8785, section 3.2.2.3: as `Number::toString` of ECMA-262 would write it."""
    point = len(digits) + exponent
    if len(digits) <= point <= 21:
        return digits + "0" * exponent
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"


_decoder = JSONDecoder(
    object_pairs_hook=_members, parse_float=_number, parse_int=_integer, parse_constant=_constant
)
# Escapes what RFC 8785, section 3.2.2.2 escapes, in the same spelling, and nothing else.
_quote = JSONEncoder(ensure_ascii=False).encode
