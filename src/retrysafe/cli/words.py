"""How a record is spoken of: a request has a handler and a response, an operation a function and a value, a
callback has deliveries and an outcome."""

import json
from typing import Literal, NamedTuple, cast

from retrysafe._core.model import FAILED, RAISED, Record
from retrysafe.cli.redaction import redacted_text

Outcome = Literal["returned", "raised", "failed"]
"""Of an operation: a value, an exception that it declares, or any other."""


class Words(NamedTuple):
    call: str
    """What is made with a key, and made again."""
    code: str
    """What it runs."""
    result: str
    """What of it is stored."""


_REQUEST = Words("request", "handler", "response")
_OPERATION = Words("call", "function", "value")
_CALLBACK = Words("delivery", "handler", "outcome")
_KINDS = {"request": _REQUEST, "operation": _OPERATION, "callback": _CALLBACK}
_EITHER = Words("request or call", "code", "outcome")
"""Where records of several doors are spoken of."""


def words(*doors: str) -> Words:
    """For records of these doors."""
    kinds = {_KINDS[door] for door in doors} or {_REQUEST}
    return kinds.pop() if len(kinds) == 1 else _EITHER


def outcome_of(record: Record) -> Outcome | None:
    """How an operation ended; `None` of other doors, and while it runs."""
    if record.door != "operation" or record.response is None or record.state == "in_progress":
        return None
    if record.state == "failed" or record.response.status >= FAILED:
        return "failed"
    return "raised" if record.response.status == RAISED else "returned"


def status_text(record: Record) -> str:
    """The status of a response, or how an operation ended; empty where there is neither."""
    if record.door == "operation":
        return outcome_of(record) or ""
    return str(record.response.status) if record.response else ""


class Exceptional(NamedTuple):
    """An exception that an operation ended with, as far as it can be shown."""

    type: str
    message: str
    """With secrets hidden."""


def exception_of(record: Record) -> Exceptional | None:
    """What is stored of an exception; `None` where there was none, or where it cannot be read."""
    kind = outcome_of(record)
    if kind in (None, "returned") or record.omitted or record.response is None:
        return None
    try:
        stored: object = json.loads(record.response.body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(stored, dict):
        return None
    tree = cast("dict[str, object]", stored)
    name, message, arguments = tree.get("type"), tree.get("message"), tree.get("args")
    if not isinstance(name, str):
        return None
    if kind == "failed":
        return Exceptional(name, redacted_text(message)) if isinstance(message, str) else None
    if not isinstance(arguments, list):
        return None
    parts = [_part(part) for part in cast("list[object]", arguments)]
    return Exceptional(name, redacted_text(", ".join(parts)))


def _part(argument: object) -> str:
    """An argument of an exception; what JSON lacks is stored as an object with the type's name."""
    if isinstance(argument, dict) and len(tagged := cast("dict[str, object]", argument)) == 1:
        (argument,) = tagged.values()
    return argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False)
