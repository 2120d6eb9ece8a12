"""One bug for each target, to see that the target finds it: a check that cannot fail proves nothing.

Each is of a kind that was really made somewhere: a length left out, a check forgotten, an error that is not
thought of.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final
from unittest.mock import patch

import http_sf

from tools.fuzz.targets import Check, load

Plant = Callable[[], Any]
"""Gives a patch, to be started or used as a context."""


def _unframed(*fields: object) -> bytes:
    """All fields one after the other, without their lengths."""
    texts = [field.decode("latin-1") if isinstance(field, bytes) else str(field) for field in fields]
    return "".join(texts).encode("utf-8", "surrogatepass")


class _Unframed:
    """In place of a cached function."""

    __wrapped__ = staticmethod(_unframed)
    __call__ = staticmethod(_unframed)


def _hasty(data: bytes, **how: Any) -> object:
    """A parser that looks behind the end of a string that was not closed."""
    if data.lstrip().startswith(b'"') and data.count(b'"') == 1 and b"\\" in data:
        raise IndexError("index out of range")
    return http_sf.parse(data, **how)


def _forgetful(body: bytes, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
    """White space at the end of a part is left out."""
    cut = [body[begin:end].rstrip(b" ") for begin, end in pieces]
    return [b"%d:%b" % (len(piece), piece) for piece in cut]


def _as_they_come(names: Iterable[str], key: object = None) -> list[str]:
    return list(names)


def _run_together(door: str, scope: Iterable[tuple[str, str]]) -> bytes:
    return _unframed(door, *(text for part in scope for text in part))


def _unchecked(types: object) -> None:
    pass


def _not_empty(parts: Iterable[tuple[str, str]]) -> bool:
    return all(value for _, value in parts)


PLANTED: Final[dict[str, tuple[str, Plant]]] = {
    "key": (
        "a key may hold a comma",
        lambda: patch(
            "retrysafe._core.keys._SIMPLE", re.compile(rb'[ \t]*(?:([!#-~]+)|"([ !#-\[\]-~]*)")[ \t]*')
        ),
    ),
    "structured": (
        "the end of a string is not looked for",
        lambda: patch("tools.fuzz.targets.structured.parse", _hasty),
    ),
    "fingerprint": (
        "fields are put together without their lengths",
        # Both, because one of them remembers what the other gave.
        lambda: patch.multiple("retrysafe._core.fingerprint", _head=_Unframed(), _raw_head=_Unframed()),
    ),
    "canonical": (
        "members are not sorted",
        lambda: patch("retrysafe._core.fingerprint.canonical.sorted", _as_they_come, create=True),
    ),
    "multipart": (
        "spaces at the end of a part are left out",
        lambda: patch("retrysafe._core.fingerprint.multipart._framed", _forgetful),
    ),
    "identity": (
        "scope and key are put together without their lengths",
        lambda: patch("retrysafe._core.keys._owner", _run_together),
    ),
    "codec": (
        "the types of columns are not looked at",
        lambda: patch("retrysafe.stores.sql.codec._check_types", _unchecked),
    ),
    "headers": (
        "a value may hold a line feed",
        lambda: patch(
            "retrysafe._core.headers._IN_VALUES", bytes([9, 10, *range(0x20, 0x7F), *range(0x80, 0x100)])
        ),
    ),
    "scope": (
        "white space is not seen to be nobody",
        lambda: patch("retrysafe.scopes._is_known", _not_empty),
    ),
    "problem": ("the wait has no end", lambda: patch("retrysafe._core.problems._LONGEST", inf)),
    "duration": (
        "a number may have two points",
        lambda: patch("retrysafe._core.times._PART", re.compile(r"([0-9]+[0-9.]*)([smhdw])")),
    ),
}


def harmless(check: Check, seeds: Sequence[bytes]) -> list[bytes]:
    """The seeds that do not find the bug by themselves: it is the fuzzer that shall find it."""
    found: list[bytes] = []
    for data in seeds:
        try:
            check(data)
        except Exception:  # noqa: BLE001 - whatever it is, this seed finds the bug
            continue
        found.append(data)
    return found


def planted(target: str) -> Check:
    """The target, with the bug in what it tests from now on."""
    check = load(target)
    PLANTED[target][1]().start()
    return check
