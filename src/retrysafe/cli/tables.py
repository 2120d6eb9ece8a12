"""Tables: on a terminal, columns are dropped and cut until it fits; elsewhere everything is written out."""

import sys
from collections.abc import Sequence
from typing import IO, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from retrysafe.cli import printing


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
    on_terminal = printing.on_terminal(where)
    width = printing.console(where).width
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
