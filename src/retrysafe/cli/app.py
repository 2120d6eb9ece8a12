"""All commands, gathered under one name.

Importing this loads no store and nothing that draws: every command does so when it runs, because completion
and help are asked for far more often.
"""

import sys
from typing import Annotated

import typer

from retrysafe.cli import audit, demo, doctor, ls, printing, purge, release, resolve, schema, show, stats

_EPILOG = (
    "Exit codes: 0 fine, 1 found a problem or not found, 2 wrong usage, 3 the store cannot be used, "
    "130 interrupted."
)


def build() -> typer.Typer:
    """The application, with help in boxes on a terminal and in plain text elsewhere."""
    app = typer.Typer(
        name="retrysafe",
        help="Look after idempotency records: find them, explain them, settle what was left unknown.",
        epilog=_EPILOG,
        rich_markup_mode="rich" if printing.on_terminal(sys.stdout) else None,
        # A traceback is a bug of ours, and a report of it should have it as it is, without locals: they hold
        # keys.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(invoke_without_command=True)(_retrysafe)
    # In a few words, so that the list of commands fits a terminal of 80 columns without being cut.
    for name, words, command in (
        ("ls", "List records, those that need somebody first.", ls.ls),
        ("show", "Show all about one record.", show.show),
        ("stats", "Count outcomes, duplicates, and what is unsettled.", stats.stats),
        ("release", "Forget an abandoned record: the next retry RUNS.", release.release),
        ("resolve", "Settle an abandoned record as you found out.", resolve.resolve),
        ("audit", "Show what operators did, by whom and why.", audit.audit),
        ("purge", "Remove expired records.", purge.purge),
        ("doctor", "Look for everything that could be wrong.", doctor.doctor),
        ("migrate", "Bring the tables to this release's version.", schema.migrate),
        ("sql", "Print the SQL of the tables.", schema.sql),
        ("demo", "Lose responses, kill a server, and count the money.", demo.demo),
    ):
        app.command(name, short_help=words)(command)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # slow to load

        printing.write(f"retrysafe {metadata.version('retrysafe')}\n")
        raise typer.Exit


def _retrysafe(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  (it acts as soon as it is read)
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        # On a terminal it has been drawn by then, and nothing is left to print.
        printing.write(context.get_help().rstrip() + "\n")
