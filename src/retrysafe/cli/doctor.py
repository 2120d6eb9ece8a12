"""`retrysafe doctor`: is this store fit for use?"""

import typer

from retrysafe.cli import output
from retrysafe.cli.exits import Exit
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


def _draw(findings: list[Finding], problems: int, warnings: int) -> None:
    from rich.text import Text

    from retrysafe.cli.render_findings import Line, counted, render_findings

    said = counted(problems, warnings) if problems or warnings else "No problems."
    summary = Text(said, "bold red" if problems else "yellow" if warnings else "green")
    output.draw(render_findings(Line(*finding) for finding in findings), "", summary)
