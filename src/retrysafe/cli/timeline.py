"""A record's life, event by event."""

from typing import Literal, NamedTuple

from retrysafe.stores.admin import Sighting

Name = Literal[
    "created",
    "attempt",
    "checkpointed",
    "completed",
    "failed",
    "abandoned",
    "lease ends",
    "held until",
    "expires",
]


class Event(NamedTuple):
    name: Name
    at: float
    remark: str


def timeline(sighting: Sighting) -> list[Event]:
    """From the first request to the moment when the key is free again, past and future."""
    record, standing = sighting.record, sighting.standing
    events = [Event("created", record.created_at, f"first request {record.request_id}")]
    if record.checkpointed and record.completed_at is None:
        events.append(Event("checkpointed", record.updated_at, "its answer began to leave"))
    elif record.attempt > 1 and record.completed_at is None:
        events.append(Event("attempt", record.updated_at, f"attempt {record.attempt} began"))
    if record.completed_at is not None:
        status = record.response.status if record.response else "without an answer"
        name: Name = "failed" if record.state == "failed" else "completed"
        events.append(Event(name, record.completed_at, f"{status}, attempt {record.attempt}"))
    elif standing == "abandoned" and record.lease_until is not None:
        events.append(Event("abandoned", record.lease_until, "its lease ended unrenewed"))
    elif record.lease_until is not None:
        events.append(Event("lease ends", record.lease_until, "unless its owner renews it"))
    if record.state == "in_progress" and record.held_until > record.expires_at:
        events.append(Event("held until", record.held_until, "unknown outcomes block keys"))
    else:
        events.append(Event("expires", record.expires_at, "then the key is free"))
    return events
