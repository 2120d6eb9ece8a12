"""The audit trail, drawn: a few lines for each entry on a terminal, one elsewhere."""

import sys
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from retrysafe.cli import printing
from retrysafe.cli.describing import short_id, spoken_key, spoken_route, spoken_scope
from retrysafe.cli.tables import Column, table
from retrysafe.cli.text import clean
from retrysafe.cli.times import stamp
from retrysafe.stores.admin import Entry

_COLUMNS = tuple(
    Column(title) for title in ("AT", "BY", "ACT", "OUTCOME", "RECORD", "REQUEST", "SCOPE", "KEY", "REASON")
)


def trail(entries: Sequence[Entry], *, show_keys: bool) -> RenderableType:
    if not printing.on_terminal(sys.stdout):
        return table(_COLUMNS, [_row(entry, show_keys=show_keys) for entry in entries])
    blocks = [_block(entry, show_keys=show_keys) for entry in entries]
    return Group(*(Padding(block, (0, 0, 0 if block is blocks[-1] else 1, 0)) for block in blocks))


def _row(entry: Entry, *, show_keys: bool) -> list[Text]:
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
