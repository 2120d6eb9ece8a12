"""Canonical JSON: texts that mean the same are written the same, and only those.

The second half is shown by reading what was written: it has the meaning that another parser finds in the
original, so no two meanings are written alike.
"""

import json
import re
from decimal import Decimal, InvalidOperation

from retrysafe._core.fingerprint import canonical
from tools.fuzz.targets import Broken

# Outside of strings there is a `#` before a number that no double holds; a string is passed over as a whole.
_MARKED = re.compile(r'"(?:[^"\\]|\\.)*"|#')
_DEEPEST = 100
"""As it is documented; that the product goes by it is what is tested."""

_FAR = re.compile(rb"[eE][+-]?[0-9]{9}")


def check(data: bytes) -> None:
    try:
        value = canonical.parse(data)
    except ValueError:
        if _is_plain(data):
            raise Broken(f"{data!r} is JSON with one meaning, and was refused") from None
        return
    written = canonical.write(value)
    if _FAR.search(data):
        return  # another parser would run out of memory, or give up
    meaning = _meaning(data.decode())
    if _depth(meaning) > _DEEPEST:
        raise Broken(f"{data!r} is nested too deeply, and was accepted")
    unmarked = _MARKED.sub(lambda found: "" if found[0] == "#" else found[0], written)
    if _meaning(unmarked) != meaning:
        raise Broken(f"{data!r} was written as {written!r}, which means something else")
    # Written in another way, with its members turned round: the same text.
    other = json.dumps(_turned(json.loads(data, parse_float=_Kept, parse_int=_Kept)), indent=1)
    again = canonical.write(canonical.parse(_KEPT.sub(r"\1", other).encode()))
    if again != written:
        raise Broken(f"{data!r} was written as {written!r}, and with its members turned round as {again!r}")


class _Kept(str):
    """A number in its own spelling, marked by characters that no input of ours spells."""

    __slots__ = ()

    def __new__(cls, text: str) -> "_Kept":
        return super().__new__(cls, f"\U0010fffe{text}\U0010fffe")


_KEPT = re.compile(r'"\\udbff\\udffe(.*?)\\udbff\\udffe"')


def _turned(value: object) -> object:
    if isinstance(value, dict):
        return {name: _turned(value[name]) for name in reversed(list(value))}
    if isinstance(value, list):
        return [_turned(item) for item in value]
    return value


def _meaning(text: str) -> object:
    try:
        return json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except InvalidOperation as error:
        raise Broken(f"{text!r} has a number that cannot be read") from error


def _is_plain(data: bytes) -> bool:
    """Whether it is JSON without anything that has several meanings."""
    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=_Members, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return not text.startswith("\ufeff") and _depth(value) <= _DEEPEST


class _Members(dict[str, object]):
    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        if len(self) < len(pairs):
            raise ValueError("a name occurs twice")


def _refuse(name: str) -> None:
    raise ValueError(name)


def _depth(value: object) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(_depth, inside), default=0)
