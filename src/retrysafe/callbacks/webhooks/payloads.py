"""Ids in payloads and headers, and the parts of a payload that may not change."""

import re
from collections.abc import Sequence

from retrysafe._core.fingerprint.canonical import DEEPEST, Value, parse, write
from retrysafe._core.fingerprint.fields import choose
from retrysafe.callbacks.webhooks.webhook import Headers, PayloadInvalid
from retrysafe.errors import ConfigurationError

# As for keys: servers join a header that was sent twice with a comma (RFC 9110, section 5.3), and two ids
# must not pass for one.
_HEADER_ID = re.compile(r"[!#-+\--~]+")
_INTEGER = re.compile(r"-?[0-9]+")
# How `canonical` writes an integer that is no double.
_EXACT = re.compile(r"#(-?[0-9]+)e([0-9]{1,3})")


def document(body: bytes) -> dict[str, Value]:
    """A JSON object with a single meaning: of two members with one name, parsers keep different ones."""
    try:
        value = parse(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise PayloadInvalid(
            "the body is not a JSON object with a single meaning: expected UTF-8, no name twice, no NaN, and "
            f"at most {DEEPEST} levels"
        )
    return value


def names_of(path: str) -> list[str]:
    """A path as `fingerprint` takes it: `data.id`, or `/data/id` as a JSON Pointer (RFC 6901)."""
    if path.startswith("/"):
        return [name.replace("~1", "/").replace("~0", "~") for name in path[1:].split("/")]
    return path.split(".")


def id_in(value: Value, path: str) -> str:
    """The id at a path of members: text, or an integer."""
    for name in names_of(path):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        return checked(value, f"the body's {path}")
    if isinstance(value, tuple):
        (number,) = value
        if _INTEGER.fullmatch(number):
            return number
        if exact := _EXACT.fullmatch(number):
            return exact[1] + "0" * int(exact[2])
    raise PayloadInvalid(f"the body has no {path} that is text or an integer")


def id_in_header(headers: Headers, name: str) -> str:
    value = headers.get(name, "").strip(" \t")
    if not value:
        raise PayloadInvalid(f"the header {name} is missing or empty")
    if not _HEADER_ID.fullmatch(value):
        raise PayloadInvalid(
            f"the header {name} holds something else than one id: expected printable ASCII without spaces, "
            "commas and quotation marks"
        )
    return value


def checked(text: str, what: str) -> str:
    """Text that can be an id: a column of any database can hold it, and no trimming changes it."""
    if not text:
        raise PayloadInvalid(f"{what} is empty")
    # Lone surrogates, which have no UTF-8, and NUL, which PostgreSQL refuses, cannot be printed.
    if not text.isprintable() or text != text.strip():
        raise PayloadInvalid(f"{what} has characters that cannot be printed, or white space around it")
    return text


def whole(body: bytes) -> bytes:
    """A body for comparison: its meaning if it is JSON, since a sender may write it anew; else its bytes."""
    try:
        return meaning(parse(body))
    except ValueError:
        return b"body " + body


def meaning(value: Value) -> bytes:
    return b"json " + write(value).encode("utf-8", "surrogatepass")


def chosen(body: bytes, fields: tuple[str, ...] | None) -> bytes:
    """These fields of a body for comparison, or all of it."""
    return whole(body) if fields is None else choose(document(body), fields)


def fields_of(compare: Sequence[str] | None) -> tuple[str, ...] | None:
    """What a user passes as `compare=`."""
    if compare is None:
        return None
    # A string is a sequence of strings, too, and would compare fields named by its letters.
    fields = () if isinstance(compare, str) else tuple(compare)
    if not fields or not all(isinstance(name, str) and name for name in fields):
        raise ConfigurationError(
            f"compare is {compare!r}: expected a list of fields of the body, as in compare=['type', 'data'], "
            "or None for all of it"
        )
    return fields
