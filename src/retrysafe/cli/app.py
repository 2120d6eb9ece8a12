"""All commands, gathered under one name.

Importing this loads no store and nothing that draws: every command does so when it runs, because completion
and help are asked for far more often.
"""

import sys
from typing import Annotated

import typer

from retrysafe.cli import audit, demo, doctor, ls, output, purge, release, resolve, schema, show, stats
from retrysafe.cli.exits import Exit, Failure, PipeClosed
from retrysafe.errors import ConfigurationError, SchemaMismatch, StoreError, UnreadableRecord

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
        rich_markup_mode="rich" if output.on_terminal(sys.stdout) else None,
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

        output.write(f"retrysafe {metadata.version('retrysafe')}\n")
        raise typer.Exit


def _retrysafe(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  (it acts as soon as it is read)
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        # On a terminal it has been drawn by then, and nothing is left to print.
        output.write(context.get_help().rstrip() + "\n")


# Typer either depends on click or brings a copy along, depending on its version.  This is its `UsageError`.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def run() -> int:
    """Do what the command line says, and give the exit code."""
    output.prepare_streams()
    try:
        _refuse_undecodable(sys.argv[1:])
        ended = typer.main.get_command(build())(standalone_mode=False, prog_name="retrysafe")
        # Whatever is still buffered goes out here, where a closed pipe is noticed quietly.
        output.flush()
    except Failure as failure:
        return _tell(failure)
    except ConfigurationError as error:
        return _tell(Failure(str(error), exit=Exit.USAGE))
    except StoreError as error:
        return _tell(Failure(str(error), _advice(error), Exit.STORE))
    except UsageError as error:
        return _tell(_misused(error))
    except KeyboardInterrupt:
        return _interrupted()
    except PipeClosed:
        return Exit.PIPE_CLOSED
    if ended == Exit.INTERRUPTED:  # Typer's own word for a KeyboardInterrupt
        return _interrupted()
    return ended if isinstance(ended, int) else Exit.FINE


def _tell(failure: Failure) -> int:
    output.complain(failure.message, failure.advice)
    return failure.exit


def _interrupted() -> int:
    output.say("\nInterrupted.")
    return Exit.INTERRUPTED


def _misused(error: Exception) -> Failure:
    """Wrong usage in our own words: what Typer found, and where to read on."""
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", None) or "retrysafe"
    message = str(getattr(error, "format_message", error.__str__)())
    return Failure(message, f"{command} --help lists what it takes.", Exit.USAGE)


def _advice(error: StoreError) -> str:
    match error:
        case SchemaMismatch():
            return "retrysafe migrate brings older tables up to date; retrysafe doctor looks at the rest."
        case UnreadableRecord():
            return "The record is left as it is. retrysafe doctor looks at the store as a whole."
        case _:
            return "Check the address, then let retrysafe doctor look at the store."


def _refuse_undecodable(arguments: list[str]) -> None:
    """Bytes that are no text would travel on as lone surrogates, and no store or terminal takes those."""
    for position, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise Failure(
                f"argument {position} holds bytes that are not {sys.getfilesystemencoding()} text",
                "Write it in the encoding of this terminal, or refer to the record by its id.",
                Exit.USAGE,
            ) from None
