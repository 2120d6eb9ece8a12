"""Tables of records and of the audit trail.

On a terminal, columns are dropped and cut until the table fits.  Elsewhere there is one line per row, for
`grep` and `awk`: always the same columns, nothing cut, those with long values last.
"""

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
    clean,
    key_text,
    route_text,
    scope_text,
    short_duration,
    short_id,
    size_text,
    standing_word,
    timestamp,
    visible_key,
)
from retrysafe.cli.words import status_text, words
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

_ALIGNED = 40
"""Characters up to which a cell widens its column in plain text.  A longer one makes only its own line long:
one long path must not push the other rows off the page."""


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], stream: IO[str] | None = None
) -> RenderableType:
    """A table for this stream; stdout, unless another one is given."""
    where: IO[str] = sys.stdout if stream is None else stream
    if not output.on_terminal(where):
        return _plain(columns, rows)
    natural = [
        max([len(column.title), *(row[index].cell_len for row in rows)])
        for index, column in enumerate(columns)
    ]
    widths = _fitted(columns, natural, output.console(where).width)
    drawn = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
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


def _plain(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> str:
    cells = [[Text(column.title) for column in columns], *rows]
    widths = [
        max(row[index].cell_len for row in cells if row[index].cell_len <= _ALIGNED)
        for index in range(len(columns))
    ]
    return "\n".join(
        (" " * _GAP).join(
            _padded(cell, wide, right=column.right)
            for cell, wide, column in zip(row, widths, columns, strict=True)
        )
        for row in cells
    )


def _padded(cell: Text, width: int, *, right: bool) -> str:
    space = " " * (width - cell.cell_len)
    return space + cell.plain if right else cell.plain + space


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


_CALLED = {
    words("request").call: "REQUEST",
    words("operation").call: "OPERATION",
    words("callback").call: "CALLBACK",
}
"""The title of what was called, where all records are of one kind."""

_PIPED = ("RECORD", "STATE", "AGE", "KEY", "STATUS", "EXPIRES", "SCOPE", "REQUEST")
"""In plain text, where a line of ordinary values stays within 120 characters; `--json` has the rest."""


def records_table(
    shown: Sequence[Sighting],
    *,
    show_keys: bool,
    completed: str = "completed",
    stream: IO[str] | None = None,
) -> RenderableType:
    where: IO[str] = sys.stdout if stream is None else stream
    # In plain text no field but the last contains a space, so that awk can tell them apart.
    separator = " " if output.on_terminal(where) else ","
    rows = [_record_cells(one, separator, completed, show_keys=show_keys) for one in shown]
    called = _CALLED.get(words(*(one.record.door for one in shown)).call, "CALL")
    columns = [column._replace(title=called) if column.title == "REQUEST" else column for column in _COLUMNS]
    if not output.on_terminal(where):
        titles = [column.title for column in _COLUMNS]
        order = [titles.index(title) for title in _PIPED]
        return table(
            [columns[index] for index in order],
            [[row[index] for index in order] for row in rows],
            where,
        )
    if show_keys:  # who asks for keys wants them in full
        full = Column("KEY", narrowest=20, fold=True)
        columns = [full if column.title == "KEY" else column for column in columns]
    return table(columns, rows, where)


def _record_cells(sighting: Sighting, separator: str, completed: str, *, show_keys: bool) -> list[Text]:
    record, now = sighting.record, sighting.now
    key = visible_key(record.key, show_keys=show_keys)
    body = "omitted" if record.omitted else size_text(sighting.size) if record.response else "-"
    return [
        Text(short_id(record.id), "bold"),
        # As `--state` takes it.
        Text(standing_word(sighting.standing, completed).replace("_", "-"), STYLES[sighting.standing]),
        Text(short_duration(now - record.created_at)),
        Text(route_text(record.action, record.target)),
        Text(scope_text(record.scope, separator) or "-"),
        Text("digest" if key is None else clean(key), "dim"),
        Text(status_text(record) or "-"),
        Text(body),
        Text(str(record.attempt)),
        Text("-" if sighting.standing == "waiting" else short_duration(_gone_at(sighting) - now), "dim"),
    ]


def _gone_at(sighting: Sighting) -> float:
    """When it expires: an abandoned record is held for longer than a response."""
    record = sighting.record
    return max(record.expires_at, record.held_until) if record.state == "in_progress" else record.expires_at


_ENTRY_COLUMNS = tuple(
    Column(title) for title in ("AT", "BY", "ACT", "OUTCOME", "RECORD", "KEY", "SCOPE", "CALL", "REASON")
)


def render_audit(entries: Sequence[Entry], *, show_keys: bool) -> RenderableType:
    if not output.on_terminal(sys.stdout):
        return table(_ENTRY_COLUMNS, [_entry_row(entry, show_keys=show_keys) for entry in entries])
    blocks = [_block(entry, show_keys=show_keys) for entry in entries]
    return Group(*(Padding(block, (0, 0, 0 if block is blocks[-1] else 1, 0)) for block in blocks))


def _entry_row(entry: Entry, *, show_keys: bool) -> list[Text]:
    return [
        Text(timestamp(entry.at)),
        Text(clean(entry.by)),
        Text(entry.act),
        Text(clean(entry.outcome)),
        Text(short_id(entry.id) or "-"),
        Text(_entry_key(entry, show_keys=show_keys)),
        Text(scope_text(entry.scope, ",") or "-"),
        Text(route_text(entry.action, entry.target) or "-"),
        Text(clean(entry.reason)),
    ]


def _entry_key(entry: Entry, *, show_keys: bool) -> str:
    if entry.id is None:
        return "-"
    key = visible_key(entry.key, show_keys=show_keys)
    return "digest" if key is None else clean(key)


def _block(entry: Entry, *, show_keys: bool) -> RenderableType:
    lines = [
        Text.assemble(
            (timestamp(entry.at), "dim"),
            "  ",
            (clean(entry.by), "bold"),
            f"  {entry.act}: {clean(entry.outcome)}",
        )
    ]
    if entry.id:
        lines.append(
            Text.assemble(
                (short_id(entry.id), "bold"),
                f"  {route_text(entry.action, entry.target)}  {scope_text(entry.scope)}  ",
                (f"key {key_text(entry.key, show_keys=show_keys)}", "dim"),
            )
        )
    lines.append(Text(clean(entry.reason), "italic"))
    return Group(lines[0], Padding(Group(*lines[1:]), (0, 0, 0, 2)))
