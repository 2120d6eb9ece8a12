"""The application: its commands, and how a run of one ends.

Importing this loads no store and nothing that draws: a command does so when it runs, because completion and
help are used far more often.  Every failure that can be foreseen becomes a sentence on stderr and an exit
code; a traceback is a bug of ours.  Typer would print and exit by itself, so `standalone_mode` is off.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from retrysafe.cli import (
    arm,
    audit,
    demo,
    doctor,
    export,
    ls,
    output,
    projects,
    purge,
    redrive,
    release,
    resolve,
    routes,
    schema,
    show,
    skill,
    stats,
    work,
)
from retrysafe.cli.exits import Exit, Failure, PipeClosed
from retrysafe.errors import ConfigurationError, SchemaMismatch, StoreError, StoreReset, UnreadableRecord

_EPILOG = (
    "Exit codes: 0 fine, 1 found a problem or not found, 2 wrong usage, 3 the store cannot be used, "
    "130 interrupted."
)


class _Command(TyperCommand):
    """Shows a flag as `--json`, where Typer on a terminal has `--json <bool>`."""

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]  # click's types are private
        return _plain_flags(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]  # the same
        return _plain_flags(super().get_params(ctx))


def _plain_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def build() -> typer.Typer:
    """The application, with help in boxes on a terminal and in plain text elsewhere."""
    app = typer.Typer(
        name="retrysafe",
        cls=_Group,
        help="Find idempotency records, explain them, and settle those whose outcome is unknown.",
        epilog=_EPILOG,
        rich_markup_mode="rich" if output.on_terminal(sys.stdout) else None,
        # A traceback is a bug of ours, and a report of it should have it as it is, without locals: they hold
        # keys.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(invoke_without_command=True)(_retrysafe)
    # Short, so that the list of commands fits a terminal of 80 columns without being cut.
    for name, summary, command in (
        ("ls", "List records, abandoned ones first.", ls.ls),
        ("show", "Show one record in full.", show.show),
        ("stats", "Count outcomes, duplicates and abandoned records.", stats.stats),
        ("release", "Delete a record: the next call RUNS.", release.release),
        ("resolve", "Settle an abandoned record as done or failed.", resolve.resolve),
        ("redrive", "Have a worker handle stored callbacks again.", redrive.redrive),
        ("work", "Handle stored payloads of callbacks.", work.work),
        ("audit", "Show what operators did, who and why.", audit.audit),
        ("purge", "Remove expired records.", purge.purge),
        ("export", "Write records as JSON lines.", export.export),
        ("doctor", "Check the store for problems.", doctor.doctor),
        ("routes", "List an application's routes, protected or not.", routes.routes),
        ("migrate", "Make a store ready: create or update its tables.", schema.migrate),
        ("arm", "Let a store on Redis be used that is new, or was reset.", arm.arm),
        ("sql", "Print the SQL of the tables.", schema.sql),
        ("skill", "Print for agents how to retry safely.", skill.skill),
        ("demo", "Lose responses, kill a server, count the money.", demo.demo),
    ):
        app.command(name, cls=_Command, short_help=summary)(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # slow to load

        output.write(f"retrysafe {metadata.version('retrysafe')}\n")
        raise typer.Exit


def _retrysafe(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  (its callback acts when it is parsed)
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        # On a terminal Typer has drawn it already, and returns nothing.
        output.write(context.get_help().rstrip() + "\n")


# Some versions of Typer depend on click, others contain a copy of it.  This is `UsageError` of either.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `sys.argv` names, or these arguments, and return the exit code."""
    output.prepare_streams()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _refuse_undecodable(arguments)
        command = typer.main.get_command(build())
        ended = command(arguments, standalone_mode=False, prog_name=projects.program())
        # Here, where a closed pipe is handled, and not at the interpreter's exit.
        output.flush()
    except Failure as failure:
        return _report(failure)
    except ConfigurationError as error:
        return _report(Failure(str(error), exit=Exit.USAGE))
    except StoreError as error:
        return _report(Failure(str(error), _advice(error), Exit.STORE))
    except UsageError as error:
        return _report(_usage_failure(error))
    except KeyboardInterrupt:
        return _interrupted()
    except PipeClosed:
        return Exit.PIPE_CLOSED
    if ended == Exit.INTERRUPTED:  # what Typer returns after a KeyboardInterrupt
        return _interrupted()
    return ended if isinstance(ended, int) else Exit.FINE


def _report(failure: Failure) -> int:
    output.report(failure.message, failure.advice)
    return failure.exit


def _interrupted() -> int:
    output.notice("\nInterrupted.")
    return Exit.INTERRUPTED


def _usage_failure(error: Exception) -> Failure:
    """What Typer found, and where the options are listed."""
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", None) or projects.program()
    message = str(getattr(error, "format_message", error.__str__)())
    return Failure(message, f"Run {command} --help for its arguments and options.", Exit.USAGE)


def _advice(error: StoreError) -> str:
    match error:
        case SchemaMismatch() if (project := projects.current()) is not None and project.migrates:
            return "Run python manage.py migrate, or retrysafe doctor for more."
        case SchemaMismatch():
            return "Run retrysafe migrate to bring older tables up to date, or retrysafe doctor for more."
        case StoreReset():
            return "Find out what became of the records, then run retrysafe arm."
        case UnreadableRecord():
            return "The record was left as it is. Run retrysafe doctor to check the whole store."
        case _:
            return "Check the address, then run retrysafe doctor."


def _refuse_undecodable(arguments: Sequence[str]) -> None:
    """Undecodable bytes arrive as lone surrogates, which no store and no terminal accepts."""
    for position, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise Failure(
                f"argument {position} contains bytes that are not valid {sys.getfilesystemencoding()}",
                "Use the encoding of this terminal, or name the record by its id.",
                Exit.USAGE,
            ) from None
