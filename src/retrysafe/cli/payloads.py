"""The stored payload of a delivery: one line of JSON with its headers, then the body as it came."""

import json
from typing import NamedTuple, cast

from retrysafe._core.model import Parts
from retrysafe.cli.format import relative
from retrysafe.stores.admin import Sighting


class StoredPayload(NamedTuple):
    headers: Parts
    body: bytes


def unpack(stored: bytes) -> StoredPayload:
    """What is not of this form is shown as a body, because an operator wants to see it all the same."""
    line, separator, body = stored.partition(b"\n")
    try:
        pairs: object = json.loads(line)
    except (ValueError, RecursionError):
        return StoredPayload((), stored)
    if not separator or not isinstance(pairs, list):
        return StoredPayload((), stored)
    headers: list[tuple[str, str]] = []
    for pair in cast("list[object]", pairs):
        match pair:
            case [str(name), str(value)]:
                headers.append((name, value))
            case _:
                return StoredPayload((), stored)
    return StoredPayload(tuple(headers), body)


def waits(sighting: Sighting) -> str:
    """Whether a worker handles the payload, and since or from when on."""
    due_at, now = sighting.due_at, sighting.now
    if due_at is None:
        return "handled" if sighting.standing == "completed" else "no worker handles it"
    if sighting.standing != "waiting":
        return "a worker handles it, should this attempt die"
    if due_at > now:
        return f"waits for a worker, again {relative(due_at, now)}"
    return f"waits for a worker, since {relative(due_at, now)}"
