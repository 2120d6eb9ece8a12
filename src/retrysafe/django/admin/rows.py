"""Records as rows of Django's, with their standing by the store's clock.

The standing of a record is not in a column: a lease that has ended makes an abandoned record of one in
progress.  It is computed here as `effective_state` in the store's fragments.sql computes it; a test compares
them.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.db import connections
from django.db.models import Case, DateTimeField, F, Func, Q, QuerySet, TextField, Value, When
from django.db.models.expressions import Combinable, ExpressionWrapper
from django.db.models.functions import Coalesce, Length, Now

from retrysafe._core.model import Record as Known
from retrysafe.django.fields import MomentField
from retrysafe.django.models import Record
from retrysafe.django.settings import guard
from retrysafe.errors import UnreadableRecord
from retrysafe.stores.admin import Sighting, Standing
from retrysafe.stores.sql import codec
from retrysafe.stores.sql.django import DjangoStore

EXPIRED = "expired"

Rows = QuerySet[Any]


def store_time(alias: str, ago: float = 0.0) -> Combinable:
    """The store's present time, or so many seconds ago."""
    if connections[alias].vendor == "postgresql":
        now = Now()
        if not ago:
            return now
        return ExpressionWrapper(now - Value(timedelta(seconds=ago)), output_field=DateTimeField())
    if connections[alias].vendor == "mysql":
        utc: Combinable = _UtcNow(output_field=MomentField())
        if not ago:
            return utc
        return ExpressionWrapper(utc - Value(timedelta(seconds=ago)), output_field=MomentField())
    store = guard().store
    assert isinstance(store, DjangoStore), "otherwise these models are not shown"
    clock = store.joint.clock
    assert clock is not None, "only servers have a clock of their own"
    return Value(clock() - ago, output_field=MomentField())


class _UtcNow(Func):
    """The time of MySQL's server, as the store writes it; Django's `Now` is in the session's time zone."""

    template = "UTC_TIMESTAMP(6)"


def with_standing(rows: Rows) -> Rows:
    """The same rows, each with its standing, the sizes of what it stores, and the time of looking.

    What may be a megabyte is loaded when it is asked for, and not before.
    """
    now = store_time(rows.db)
    lapsed = Q(state="in_progress", lease_end__lte=now)
    expired = Q(version=1, expires_at__lte=now, due_at__isnull=True) & (
        Q(state__in=("completed", "failed")) | (lapsed & Q(held_until__lte=now))
    )
    return (
        rows.alias(lease_end=Coalesce("lease_until", "expires_at"))
        .annotate(
            standing=Case(
                When(expired, then=Value(EXPIRED)),
                When(lapsed & Q(due_at__isnull=True), then=Value("abandoned")),
                When(Q(due_at__isnull=False) & (Q(state="failed") | lapsed), then=Value("waiting")),
                default=F("state"),
                output_field=TextField(),
            ),
            size=Coalesce(Length("body"), 0),
            payload_size=Length("payload"),
            now=now,
        )
        .defer("body", "payload")
    )


def sighting_of(row: Record, *, body: bool = False) -> Sighting | None:
    """What the command line would see; `None`: it cannot be read.

    Of an expired record, which the command line does not see, the standing is that of its column.
    """
    found = cast(Any, row)
    columns = [
        row.version,
        _bytes(row.id),
        _bytes(row.token),
        _bytes(row.fingerprint),
        row.state,
        row.mode,
        row.attempt,
        _seconds(row.lease_until),
        row.checkpointed,
        row.door,
        row.scope,
        row.key,
        row.action,
        row.target,
        row.request_id,
        row.correlation_id,
        _seconds(row.created_at),
        _seconds(row.updated_at),
        _seconds(row.completed_at),
        _seconds(row.expires_at),
        _seconds(row.held_until),
        row.details,
        row.retention_from,
        row.deliveries,
        _seconds(row.seen_at),
        row.delivery_times,
        row.status,
        row.headers,
        _content(row.body) if body else b"",
        row.omitted,
    ]
    try:
        record: Known = codec.decode(columns)
    except UnreadableRecord:
        return None
    standing = row.state if found.standing == EXPIRED else found.standing
    now, due_at = _seconds(found.now), _seconds(row.due_at)
    return Sighting(record, cast(Standing, standing), found.size, now, found.payload_size, due_at)  # type: ignore[arg-type]  # it was just read


def _bytes(digits: object) -> object:
    return bytes.fromhex(digits) if isinstance(digits, str) else digits


def _content(stored: Any) -> object:  # noqa: ANN401 - as the driver has it
    return stored.tobytes() if isinstance(stored, memoryview) else stored


def _seconds(moment: object) -> object:
    return moment.astimezone(UTC).timestamp() if isinstance(moment, datetime) else moment
