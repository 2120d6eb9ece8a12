"""Records as short texts and as JSON documents: one place that says what of a record is shown.

Whatever a client sent is escaped before it is printed, so that it cannot steer the terminal.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypedDict

from retrysafe._core import keys
from retrysafe._core.model import Parts, Record
from retrysafe._core.times import iso as iso
from retrysafe._core.times import parse_duration
from retrysafe.cli.redaction import redacted_scope
from retrysafe.cli.words import Outcome, outcome_of, status_text, words
from retrysafe.stores.admin import Entry, Share, Sighting, Standing

_ESCAPES: Mapping[str, str] = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def clean(text: str) -> str:
    """The text in one line, with everything escaped that is not printable.

    Control characters could move the cursor, retitle the window or type into prompts; marks that turn the
    direction of writing could make a path look like another; lone surrogates cannot be printed at all.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def clean_lines(text: str) -> list[str]:
    """The same for text that has lines of its own."""
    lines = text.replace("\r\n", "\n").expandtabs(4).split("\n")
    return [clean(line) for line in lines]


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plural(number: int, noun: str, plural: str = "") -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size_text(size: int) -> str:
    """Powers of 1024, as every limit here is one."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:,.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:,.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def duration(text: str) -> float:
    """Seconds out of `90s`, `10m`, `1h30m`, `2d`, `1w`."""
    try:
        return parse_duration(text)
    except ValueError as refusal:
        import typer  # of the command line alone, and what renders records is not

        raise typer.BadParameter(str(refusal)) from None


def timestamp(at: float | None) -> str:
    """A time for people who compare it with a log."""
    moment = _moment(at)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "never"


def _moment(at: float | None) -> datetime | None:
    if at is None or not math.isfinite(at):
        return None
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # beyond the calendar: a damaged record, or a wrong clock


def short_duration(seconds: float) -> str:
    """A duration in the narrowest column: `42s`, `3m`, `5h`, `12d`."""
    seconds = max(seconds, 0.0)
    for unit, size, upto in (("s", 1, 90), ("m", 60, 90 * 60), ("h", 3600, 48 * 3600)):
        if seconds < upto:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def long_duration(seconds: float) -> str:
    """A duration in a sentence: `42 seconds`, `3 minutes`, `5 hours`, `12 days`."""
    text = short_duration(seconds)
    noun = {"s": "second", "m": "minute", "h": "hour", "d": "day"}[text[-1]]
    return f"{text[:-1]} {noun}{'' if text[:-1] == '1' else 's'}"


def relative(at: float, now: float) -> str:
    """`3 minutes ago`, `in 5 hours`, `just now`."""
    away = at - now
    if abs(away) < 1:
        return "just now"
    return f"in {long_duration(away)}" if away > 0 else f"{long_duration(-away)} ago"


STANDINGS: tuple[Standing, ...] = ("abandoned", "waiting", "in_progress", "completed", "failed")

STYLES: dict[Standing, str] = {
    "abandoned": "bold yellow",  # waits for an operator
    "waiting": "magenta",  # for a worker
    "in_progress": "cyan",
    "completed": "green",
    "failed": "red",
}

DIGITS = 8
"""Of an id, as logs show them: two records share them with a chance of one in four thousand million."""


class RecordDocument(TypedDict):
    """A record in JSON, as docs/cli.md has it: scripts rely on names and meanings."""

    id: str
    standing: str
    door: str
    action: str
    target: str
    scope: dict[str, str]
    key: str | None
    status: int | None
    outcome: Outcome | None
    size: int
    omitted: bool
    payload_size: int | None
    attempt: int
    mode: str
    checkpointed: bool
    fingerprint: str
    request_id: str
    correlation_id: str | None
    details: dict[str, str]
    deliveries: int
    age: float
    created_at: str | None
    updated_at: str | None
    completed_at: str | None
    lease_until: str | None
    held_until: str | None
    due_at: str | None
    expires_at: str | None
    retention_from: str
    seen_at: str | None
    delivery_times: list[str | None]


def record_document(sighting: Sighting, *, show_keys: bool, completed: str = "completed") -> RecordDocument:
    record = sighting.record
    return {
        "id": record.id.hex(),
        "standing": standing_word(sighting.standing, completed),
        "door": record.door,
        "action": record.action,
        "target": record.target,
        "scope": redacted_scope(dict(record.scope)),
        "key": visible_key(record.key, show_keys=show_keys),
        "status": _status(record),
        "outcome": outcome_of(record),
        "size": sighting.size,
        "omitted": record.omitted,
        "payload_size": sighting.payload,
        "attempt": record.attempt,
        "mode": record.mode,
        "checkpointed": record.checkpointed,
        "fingerprint": record.fingerprint.hex()[: 2 * DIGITS],
        "request_id": record.request_id,
        "correlation_id": record.correlation_id,
        "details": redacted_scope(dict(record.details)),
        "deliveries": record.deliveries,
        "age": round(sighting.now - record.created_at, 3),
        "created_at": iso(record.created_at),
        "updated_at": iso(record.updated_at),
        "completed_at": iso(record.completed_at),
        "lease_until": iso(record.lease_until),
        "held_until": iso(record.held_until),
        "due_at": iso(sighting.due_at),
        "expires_at": iso(record.expires_at),
        "retention_from": record.retention_from,
        "seen_at": iso(record.seen_at),
        "delivery_times": [iso(at) for at in record.delivery_times],
    }


def _status(record: Record) -> int | None:
    """Of a response: an operation has an outcome instead."""
    return None if record.door == "operation" or record.response is None else record.response.status


def removed_document(record: Record, *, show_keys: bool) -> dict[str, object]:
    """A record that was removed: enough to look for it in logs and other systems."""
    return {
        "id": record.id.hex(),
        "door": record.door,
        "action": record.action,
        "target": record.target,
        "scope": redacted_scope(dict(record.scope)),
        "key": visible_key(record.key, show_keys=show_keys),
        "request_id": record.request_id,
        "created_at": iso(record.created_at),
    }


def entry_document(entry: Entry, *, show_keys: bool) -> dict[str, object]:
    """A line of the audit trail in JSON."""
    return {
        "at": iso(entry.at),
        "by": entry.by,
        "reason": entry.reason,
        "act": entry.act,
        "outcome": entry.outcome,
        "id": entry.id.hex() if entry.id else None,
        "key": visible_key(entry.key, show_keys=show_keys),
        "scope": redacted_scope(dict(entry.scope)),
        "action": entry.action,
        "target": entry.target,
        "request_id": entry.request_id,
    }


def share_document(share: Share, completed: str = "completed") -> dict[str, object]:
    counts: dict[str, object] = {
        standing_word(standing, completed): share.records.get(standing, 0) for standing in STANDINGS
    }
    return {"records": {"total": sum(share.records.values()), **counts}, "bytes": share.size}


def visible_key(key: str | None, *, show_keys: bool) -> str | None:
    return key if key is None or show_keys else keys.mask(key)


def short_id(id: bytes | None) -> str:
    return id.hex()[:DIGITS] if id else ""


def standing_word(standing: Standing, completed: str = "completed") -> str:
    """A standing as the profile of a service calls it."""
    return completed if standing == "completed" else standing


def standing_text(standing: Standing, completed: str = "completed") -> str:
    return standing_word(standing, completed).replace("_", " ")


def key_text(key: str | None, *, show_keys: bool) -> str:
    shown = visible_key(key, show_keys=show_keys)
    return "only its digest" if shown is None else clean(shown)


def scope_text(parts: Parts, separator: str = " ") -> str:
    return clean(separator.join(f"{name}={value}" for name, value in redacted_scope(dict(parts)).items()))


def route_text(action: str, target: str) -> str:
    return clean(f"{action} {target}".strip())


Name = Literal[
    "created",
    "attempt",
    "checkpointed",
    "asked again",
    "completed",
    "failed",
    "abandoned",
    "lease ends",
    "due",
    "held until",
    "expires",
]


class Event(NamedTuple):
    name: Name
    at: float
    remark: str


def timeline(sighting: Sighting) -> list[Event]:
    """From the first call to the moment when the key is free again."""
    record, standing = sighting.record, sighting.standing
    events = [Event("created", record.created_at, f"first {words(record.door).call} {record.request_id}")]
    if record.checkpointed and record.completed_at is None:
        events.append(Event("checkpointed", record.updated_at, "part of the response was sent"))
    elif record.attempt > 1 and record.completed_at is None:
        events.append(Event("attempt", record.updated_at, f"attempt {record.attempt} began"))
    if record.completed_at is not None:
        status = status_text(record) or "without a response"
        name: Name = "failed" if record.state == "failed" else "completed"
        events.append(Event(name, record.completed_at, f"{status}, attempt {record.attempt}"))
    elif standing == "abandoned" and record.lease_until is not None:
        events.append(Event("abandoned", record.lease_until, "its lease ended without renewal"))
    elif standing == "waiting" and record.lease_until is not None:
        events.append(Event("lease ends", record.lease_until, "and it is not handled"))
    elif record.lease_until is not None:
        events.append(Event("lease ends", record.lease_until, "unless the worker renews it"))
    if record.seen_at is not None:
        times = plural(record.deliveries - 1, "time")
        events.append(Event("asked again", record.seen_at, f"{times} so far, and then for the last time"))
    if sighting.due_at is not None:
        events.append(Event("due", sighting.due_at, "from then on a worker may handle its payload"))
        events.append(Event("expires", record.expires_at, "but not while it waits for a worker"))
    elif record.state == "in_progress" and record.held_until > record.expires_at:
        events.append(Event("held until", record.held_until, "until then retries get outcome-unknown"))
    else:
        events.append(Event("expires", record.expires_at, "then the key is free"))
    return events
