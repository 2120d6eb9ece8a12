"""A list of findings to tick off: of a store, or of an application."""

from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from retrysafe.cli.format import clean, plural

_MARKS = {
    "ok": ("✓", "green"),
    "note": ("·", "dim"),
    "warning": ("!", "bold yellow"),
    "problem": ("✗", "bold red"),
}


class Line(NamedTuple):
    check: str
    level: str
    found: str
    advice: str


def render_findings(findings: Iterable[Line]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.level]
        found = Text(clean(finding.found))
        cell = Group(found, Text(clean(finding.advice), "dim")) if finding.advice else found
        grid.add_row(Text(mark, style), Text(clean(finding.check), "bold"), cell)
    return grid


def counted(problems: int, warnings: int) -> str:
    """`1 problem and 2 warnings.`"""
    found = [
        plural(number, noun) for number, noun in ((problems, "problem"), (warnings, "warning")) if number
    ]
    return " and ".join(found) + "."
