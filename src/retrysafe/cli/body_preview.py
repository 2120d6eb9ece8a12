"""A stored body as it may be shown: a preview that hides secrets, or all of it on request."""

import json
from itertools import takewhile
from typing import Literal, NamedTuple

from retrysafe.cli.format import clean_lines
from retrysafe.cli.redaction import redacted, redacted_text

Kind = Literal["json", "text", "binary", "empty"]

_ROW = 16
_HEX_ROWS = 8
"""128 bytes are enough to recognise a format."""

_MARGIN = 16 * 1024
"""How far beyond a preview to look for secrets: more characters than any server takes in a header."""

_MOSTLY = 0.9
"""A share of printable characters above which text with some control characters in it is still text."""


class Preview(NamedTuple):
    """Lines that are safe on a terminal."""

    kind: Kind
    lines: tuple[str, ...]
    cut: bool
    """There is more than is shown."""


def preview(body: bytes, limit: int, *, is_json: bool = False) -> Preview:
    """The beginning of a body, secrets hidden: at most about `limit` characters.

    `is_json`: a number or a text alone is JSON, too, as values of operations are.
    """
    kind, value = recognise(body, is_json=is_json)
    if kind == "empty":
        return Preview(kind, (), False)
    if kind == "binary":
        shown = body[: _ROW * _HEX_ROWS]
        return Preview(kind, tuple(hex_rows(shown)), len(shown) < len(body))
    if kind == "json":
        try:
            text = json.dumps(redacted(value), indent=2, ensure_ascii=False)
        except RecursionError:  # it could be parsed, but is too deep to be printed
            kind = "text"
        else:
            return Preview(kind, tuple(clean_lines(text[:limit])), len(text) > limit)
    beginning, cut = _beginning(body.decode(), limit)
    return Preview(kind, tuple(clean_lines(beginning)), cut)


def _beginning(text: str, limit: int) -> tuple[str, bool]:
    """The first `limit` characters, secrets hidden; and whether there is more."""
    # Before it is cut: half a secret no longer looks like one.
    if len(text) <= limit + 2 * _MARGIN:
        seen = redacted_text(text)
        return seen[:limit], len(seen) > limit
    # A long one is cut first, and may then end in half a secret, which moves up as others are hidden.  With
    # more of the text it is a whole one: what both have in common does not depend on the cut.
    short, longer = (redacted_text(text[: limit + margin])[:limit] for margin in (_MARGIN, 2 * _MARGIN))
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(short, longer, strict=False))
    return "".join(char for char, _ in alike), True


def whole(body: bytes) -> list[str]:
    """Everything, nothing hidden, in lines that are safe on a terminal."""
    kind, _ = recognise(body)
    return hex_rows(body) if kind == "binary" else clean_lines(body.decode())


def recognise(body: bytes, *, is_json: bool = False) -> tuple[Kind, object]:
    """What the bytes are, whatever their content type says; and the value, if they are JSON."""
    if not body:
        return "empty", None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "binary", None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        if is_json or type(value) in (dict, list):
            return "json", value
    printable = sum(char.isprintable() or char in "\t\r\n" for char in text)
    return ("text" if printable >= _MOSTLY * len(text) else "binary"), None


def hex_rows(data: bytes) -> list[str]:
    """Offset, bytes and characters, as `hexdump -C` prints them."""
    rows: list[str] = []
    for start in range(0, len(data), _ROW):
        row = data[start : start + _ROW]
        digits = " ".join(f"{byte:02x}" for byte in row)
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        rows.append(f"{start:06x}  {digits:<{_ROW * 3 - 1}}  {shown}")
    return rows
