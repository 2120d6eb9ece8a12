"""Records as a table."""

from collections.abc import Sequence
from typing import IO

from rich.table import Table
from rich.text import Text

from retrysafe.cli.describing import (
    STYLES,
    short_id,
    shown_key,
    spoken_route,
    spoken_scope,
    spoken_standing,
)
from retrysafe.cli.tables import Column, table
from retrysafe.cli.text import clean, sized
from retrysafe.cli.times import brief
from retrysafe.stores.admin import Sighting

_COLUMNS = (
    Column("RECORD"),
    Column("STATE"),
    Column("AGE", right=True, rank=1),
    Column("REQUEST", narrowest=16),
    Column("SCOPE", narrowest=18, rank=2),
    Column("KEY", narrowest=8, rank=3),
    Column("STATUS", right=True, rank=4),
    Column("BODY", right=True, rank=6),
    Column("ATTEMPT", right=True, rank=7),
    Column("EXPIRES", right=True, rank=5),
)


def listing(shown: Sequence[Sighting], *, show_keys: bool, stream: IO[str] | None = None) -> Table:
    columns = [
        # Whoever asks for keys asks for all of them.
        Column("KEY", narrowest=20, fold=True) if show_keys and column.title == "KEY" else column
        for column in _COLUMNS
    ]
    return table(columns, [_row(one, show_keys=show_keys) for one in shown], stream)


def _row(sighting: Sighting, *, show_keys: bool) -> list[Text]:
    record, now = sighting.record, sighting.now
    key = shown_key(record.key, show_keys=show_keys)
    status = str(record.response.status) if record.response else "-"
    body = "omitted" if record.omitted else sized(sighting.size) if record.response else "-"
    return [
        Text(short_id(record.id), "bold"),
        Text(spoken_standing(sighting.standing), STYLES[sighting.standing]),
        Text(brief(now - record.created_at)),
        Text(spoken_route(record.action, record.target)),
        Text(spoken_scope(record.scope)),
        Text("digest" if key is None else clean(key), "dim"),
        Text(status),
        Text(body),
        Text(str(record.attempt)),
        Text(brief(_gone_at(sighting) - now), "dim"),
    ]


def _gone_at(sighting: Sighting) -> float:
    """When it stops to count: an abandoned record is held for longer than an answer."""
    record = sighting.record
    return max(record.expires_at, record.held_until) if record.state == "in_progress" else record.expires_at
