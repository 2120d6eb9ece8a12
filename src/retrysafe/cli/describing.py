"""Records as JSON documents and as short texts: one place that says what of a record is shown."""

from typing import TypedDict

from retrysafe._core import keys
from retrysafe._core.model import Parts, Record
from retrysafe.cli.redaction import redacted_scope
from retrysafe.cli.text import clean
from retrysafe.cli.times import iso
from retrysafe.stores.admin import Entry, Share, Sighting, Standing

STANDINGS: tuple[Standing, ...] = ("abandoned", "in_progress", "completed", "failed")

STYLES: dict[Standing, str] = {
    "abandoned": "bold yellow",  # waits for a person
    "in_progress": "cyan",
    "completed": "green",
    "failed": "red",
}

DIGITS = 8
"""Of an identity, as logs show them: one in four thousand millions is another's."""


class RecordDocument(TypedDict):
    """A record in JSON.  Names and meanings are part of what we promise; see docs/cli.md."""

    id: str
    standing: Standing
    door: str
    action: str
    target: str
    scope: dict[str, str]
    key: str | None
    status: int | None
    size: int
    omitted: bool
    attempt: int
    mode: str
    checkpointed: bool
    fingerprint: str
    request_id: str
    correlation_id: str | None
    age: float
    created_at: str | None
    updated_at: str | None
    completed_at: str | None
    lease_until: str | None
    held_until: str | None
    expires_at: str | None


def document(sighting: Sighting, *, show_keys: bool) -> RecordDocument:
    record = sighting.record
    return {
        "id": record.id.hex(),
        "standing": sighting.standing,
        "door": record.door,
        "action": record.action,
        "target": record.target,
        "scope": redacted_scope(dict(record.scope)),
        "key": shown_key(record.key, show_keys=show_keys),
        "status": record.response.status if record.response else None,
        "size": sighting.size,
        "omitted": record.omitted,
        "attempt": record.attempt,
        "mode": record.mode,
        "checkpointed": record.checkpointed,
        "fingerprint": record.fingerprint.hex()[: 2 * DIGITS],
        "request_id": record.request_id,
        "correlation_id": record.correlation_id,
        "age": round(sighting.now - record.created_at, 3),
        "created_at": iso(record.created_at),
        "updated_at": iso(record.updated_at),
        "completed_at": iso(record.completed_at),
        "lease_until": iso(record.lease_until),
        "held_until": iso(record.held_until),
        "expires_at": iso(record.expires_at),
    }


def removed_document(record: Record, *, show_keys: bool) -> dict[str, object]:
    """A record that is gone: what is needed to ask about it elsewhere."""
    return {
        "id": record.id.hex(),
        "door": record.door,
        "action": record.action,
        "target": record.target,
        "scope": redacted_scope(dict(record.scope)),
        "key": shown_key(record.key, show_keys=show_keys),
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
        "key": shown_key(entry.key, show_keys=show_keys),
        "scope": redacted_scope(dict(entry.scope)),
        "action": entry.action,
        "target": entry.target,
        "request_id": entry.request_id,
    }


def share_document(share: Share) -> dict[str, object]:
    counts: dict[str, object] = {standing: share.records.get(standing, 0) for standing in STANDINGS}
    return {"records": {"total": sum(share.records.values()), **counts}, "bytes": share.size}


def shown_key(key: str | None, *, show_keys: bool) -> str | None:
    return key if key is None or show_keys else keys.mask(key)


def short_id(id: bytes | None) -> str:
    return id.hex()[:DIGITS] if id else ""


def spoken_standing(standing: Standing) -> str:
    return standing.replace("_", " ")


def spoken_key(key: str | None, *, show_keys: bool) -> str:
    shown = shown_key(key, show_keys=show_keys)
    return "only its digest" if shown is None else clean(shown)


def spoken_scope(parts: Parts) -> str:
    return clean(" ".join(f"{name}={value}" for name, value in redacted_scope(dict(parts)).items()))


def spoken_route(action: str, target: str) -> str:
    return clean(f"{action} {target}".strip())
