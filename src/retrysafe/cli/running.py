"""From the words on the command line to the number that the process ends with.

Whatever goes wrong in a way that can be foreseen becomes a sentence on stderr and a number; a traceback is a
bug of ours.  Typer would print and end by itself, so it is asked not to (`standalone_mode=False`).
"""

import sys

import typer

from retrysafe.cli import app, printing
from retrysafe.cli.exits import Exit, Failure, PipeClosed
from retrysafe.errors import ConfigurationError, SchemaMismatch, StoreError, UnreadableRecord

# Typer either depends on click or brings a copy along, depending on its version.  This is its `UsageError`.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def run() -> int:
    """Do what the command line says, and give the exit code."""
    printing.prepare_streams()
    try:
        _refuse_undecodable(sys.argv[1:])
        ended = typer.main.get_command(app.build())(standalone_mode=False, prog_name="retrysafe")
        # Whatever is still buffered goes out here, where a closed pipe is noticed quietly.
        printing.flush()
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
    printing.complain(failure.message, failure.advice)
    return failure.exit


def _interrupted() -> int:
    printing.say("\nInterrupted.")
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
