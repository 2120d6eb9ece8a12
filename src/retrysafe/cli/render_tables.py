"""Tables: on a terminal, columns are dropped and cut until it fits; elsewhere everything is written out."""

import sys
from collections.abc import Sequence
from typing import IO, NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from retrysafe.cli import output
from retrysafe.cli.format import (
    STYLES,
    brief,
    clean,
    short_id,
    shown_key,
    sized,
    spoken_key,
    spoken_route,
    spoken_scope,
    spoken_standing,
    stamp,
)
from retrysafe.stores.admin import Entry, Sighting


class Column(NamedTuple):
    title: str
    right: bool = False
    narrowest: int = 0
    """Down to how many characters its cells may be cut; 0: they may not."""
    fold: bool = False
    """Whether cells go on in the next line instead of being cut."""
    rank: int = 0
    """Which columns go first when the terminal is too narrow: the highest.  Rank 0 stays."""


_GAP = 2


def table(columns: Sequence[Column], rows: Sequence[Sequence[Text]], stream: IO[str] | None = None) -> Table:
    """A table that fits where it is going; stdout, unless said otherwise."""
    where: IO[str] = sys.stdout if stream is None else stream
    on_terminal = output.on_terminal(where)
    width = output.console(where).width
    natural = [
        max([len(column.title), *(row[index].cell_len for row in rows)])
        for index, column in enumerate(columns)
    ]
    widths = _fitted(columns, natural, width) if on_terminal else dict(enumerate(natural))
    drawn = Table(
        box=box.SIMPLE_HEAD if on_terminal else None,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP, 0, 0) if not on_terminal else (0, 1, 0, 0),
        header_style="bold" if on_terminal else "",
        border_style="dim",
    )
    for index, wide in widths.items():
        column = columns[index]
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            width=wide,
            no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
        )
    for row in rows:
        drawn.add_row(*(row[index] for index in widths))
    return drawn


def _fitted(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """Which columns are shown, and how wide."""
    shown = list(range(len(columns)))
    while True:
        room = width - _GAP * (len(shown) - 1)
        least = {index: _least(columns[index], natural[index]) for index in shown}
        droppable = [index for index in shown if columns[index].rank]
        if sum(least.values()) <= room or not droppable:
            break
        shown.remove(max(droppable, key=lambda index: columns[index].rank))
    # What is left goes to those that were cut, to each in turn, until none wants more.
    spare = room - sum(least.values())
    widths = least
    while spare > 0 and (wanting := [index for index in shown if widths[index] < natural[index]]):
        for index in wanting[:spare]:
            widths[index] += 1
        spare -= len(wanting[:spare])
    return widths


def _least(column: Column, natural: int) -> int:
    return min(natural, column.narrowest) if column.narrowest else natural


_RECORD_COLUMNS = (
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
        for column in _RECORD_COLUMNS
    ]
    return table(columns, [_record_row(one, show_keys=show_keys) for one in shown], stream)


def _record_row(sighting: Sighting, *, show_keys: bool) -> list[Text]:
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


_ENTRY_COLUMNS = tuple(
    Column(title) for title in ("AT", "BY", "ACT", "OUTCOME", "RECORD", "REQUEST", "SCOPE", "KEY", "REASON")
)


def trail(entries: Sequence[Entry], *, show_keys: bool) -> RenderableType:
    if not output.on_terminal(sys.stdout):
        return table(_ENTRY_COLUMNS, [_entry_row(entry, show_keys=show_keys) for entry in entries])
    blocks = [_block(entry, show_keys=show_keys) for entry in entries]
    return Group(*(Padding(block, (0, 0, 0 if block is blocks[-1] else 1, 0)) for block in blocks))


def _entry_row(entry: Entry, *, show_keys: bool) -> list[Text]:
    return [
        Text(stamp(entry.at)),
        Text(clean(entry.by)),
        Text(entry.act),
        Text(clean(entry.outcome)),
        Text(short_id(entry.id) or "-"),
        Text(spoken_route(entry.action, entry.target) or "-"),
        Text(spoken_scope(entry.scope) or "-"),
        Text(spoken_key(entry.key, show_keys=show_keys) if entry.id else "-"),
        Text(clean(entry.reason)),
    ]


def _block(entry: Entry, *, show_keys: bool) -> RenderableType:
    lines = [
        Text.assemble(
            (stamp(entry.at), "dim"),
            "  ",
            (clean(entry.by), "bold"),
            f"  {entry.act}: {clean(entry.outcome)}",
        )
    ]
    if entry.id:
        lines.append(
            Text.assemble(
                (short_id(entry.id), "bold"),
                f"  {spoken_route(entry.action, entry.target)}  {spoken_scope(entry.scope)}  ",
                (f"key {spoken_key(entry.key, show_keys=show_keys)}", "dim"),
            )
        )
    lines.append(Text(clean(entry.reason), "italic"))
    return Group(lines[0], Padding(Group(*lines[1:]), (0, 0, 0, 2)))
