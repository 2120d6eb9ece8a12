"""What is known of an event that was delivered, as its receiver reads it."""

from datetime import UTC, datetime
from typing import NamedTuple

from retrysafe._core.model import Record, State


class Receipt(NamedTuple):
    """Of one event.  Times are those of the store's clock, in UTC."""

    source: str
    id: str | None
    """`None` where only its digest is stored."""
    subject: str
    """The run or resource that it is about."""
    state: State
    status: str
    """Of the payload, once it has been handled; "processing" until then, "failed" after a failed attempt."""
    result_uri: str
    details: dict[str, str]
    correlation_id: str | None
    received_at: datetime
    completed_at: datetime | None
    expires_at: datetime
    deliveries: int
    delivered_at: tuple[datetime, ...]
    """When it was delivered again: the last 20 times."""
    attempt: int
    """How often it was begun to be handled, or stored for that."""

    @classmethod
    def of(cls, record: Record) -> "Receipt":
        details = dict(record.details)
        return cls(
            source=dict(record.scope).get("source", record.action),
            id=record.key,
            subject=record.target,
            state=record.state,
            status=details.pop("status", "processing" if record.state == "in_progress" else ""),
            result_uri=details.pop("result_uri", ""),
            details=details,
            correlation_id=record.correlation_id,
            received_at=_time(record.created_at),
            completed_at=None if record.completed_at is None else _time(record.completed_at),
            expires_at=_time(record.expires_at),
            deliveries=record.deliveries,
            delivered_at=tuple(_time(at) for at in record.delivery_times),
            attempt=record.attempt,
        )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
