"""`retrysafe stats`: how many records there are, how calls ended, how many were duplicates."""

from typing import Annotated

import typer

from retrysafe.cli import output
from retrysafe.cli.counting import document
from retrysafe.cli.options import JsonOption, ProfileOption, StoreOption, completed_word, number
from retrysafe.cli.store import open_admin


def stats(
    store: StoreOption = None,
    groups: Annotated[
        int,
        typer.Option(
            "--groups", parser=number(0), metavar="N", help="How many routes, scopes and sources to list."
        ),
    ] = 10,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Count outcomes, duplicates, calls without a key, and records in progress, abandoned or expired."""
    completed = completed_word(profile)
    with open_admin(store) as admin:
        found = admin.statistics(groups)
    if json:
        output.write_json(document(found, completed))
        return
    from retrysafe.cli.render_stats import render_stats

    output.draw(*render_stats(found, completed))
