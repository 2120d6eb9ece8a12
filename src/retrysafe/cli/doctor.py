"""`retrysafe doctor`: is this store fit for use?"""

import typer

from retrysafe.cli import output
from retrysafe.cli.exits import Exit
from retrysafe.cli.format import clean, plural
from retrysafe.cli.options import JsonOption, StoreOption
from retrysafe.cli.store import open_admin
from retrysafe.errors import StoreError
from retrysafe.stores.admin import Finding


def doctor(store: StoreOption = None, json: JsonOption = False) -> None:
    """Check the store for problems, and print what to do about each."""
    try:
        with open_admin(store) as admin:
            findings = list(admin.diagnose())
    except StoreError as error:
        findings = [
            Finding(
                "store",
                "problem",
                str(error),
                "Check the address, and that it can be reached from here.",
            )
        ]
    problems = sum(finding.level == "problem" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    if json:
        output.write_json(
            {
                "ok": not problems,
                "problems": problems,
                "warnings": warnings,
                "findings": [finding._asdict() for finding in findings],
            }
        )
    else:
        _draw(findings, problems, warnings)
    if problems:
        raise typer.Exit(Exit.FOUND)


_MARKS = {"ok": ("✓", "green"), "warning": ("!", "bold yellow"), "problem": ("✗", "bold red")}


def _draw(findings: list[Finding], problems: int, warnings: int) -> None:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.level]
        found = Text(clean(finding.found))
        cell = Group(found, Text(clean(finding.advice), "dim")) if finding.advice else found
        grid.add_row(Text(mark, style), Text(clean(finding.check), "bold"), cell)
    summary = Text(
        _summary(problems, warnings), "bold red" if problems else "yellow" if warnings else "green"
    )
    output.draw(grid, "", summary)


def _summary(problems: int, warnings: int) -> str:
    if not problems and not warnings:
        return "No problems."
    counted = [
        plural(number, noun) for number, noun in ((problems, "problem"), (warnings, "warning")) if number
    ]
    return " and ".join(counted) + "."
