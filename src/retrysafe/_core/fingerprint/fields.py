"""Chosen fields of a JSON document, named by paths.

    customer.id     member `id` of member `customer`; a number also counts the items of an array
    /customer/id    the same as a JSON Pointer (RFC 6901), for names with a dot in them: `/a.b`, and
                    with a slash or tilde: `/a~1b`, `/a~0b`

A field that is missing is not the same as one that is null.  Where a path runs into something that
has no members (a string where an object was expected), that thing is compared in its place, so
that two documents which the paths do not fit are not taken for one.
"""

import re

from retrysafe._core.fingerprint.canonical import Value, write
from retrysafe._core.keys import framed

# RFC 6901, section 4: no leading zeros.  Nine digits, so that `int` is quick whatever the path.
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def choose(document: Value, paths: tuple[str, ...]) -> bytes:
    """Each path and what is there.  With the paths, since other paths ask another question."""
    return framed(*(text for path in paths for text in (path, _pick(document, _names(path)))))


def _names(path: str) -> list[str]:
    if path.startswith("/"):
        return [name.replace("~1", "/").replace("~0", "~") for name in path[1:].split("/")]
    return path.split(".")


def _pick(value: Value, names: list[str]) -> str:
    """The field in canonical form; else, behind a `?`, how far the path led and what is there."""
    for depth, name in enumerate(names):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return f"?{depth}" if isinstance(value, dict) else f"?{depth}{write(value)}"
    return write(value)
