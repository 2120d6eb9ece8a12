"""Where everything that is said goes out: data to stdout, talk to stderr, both without harm.

On a terminal there is colour and a width to keep to; elsewhere plain aligned text, as wide as it needs to be.
What is printed consists of `Text` and never of markup, so `[bold]` in a path is just that.  Rich is loaded
when something is drawn: those who ask for JSON or for help do not wait for it.
"""

import codecs
import io
import json
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from retrysafe.cli.exits import Failure, PipeClosed
from retrysafe.cli.format import clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_UNBOUNDED = 100_000
"""Columns where nothing is cut or wrapped."""

# What to write where the encoding has no such character.  One for one, or columns would no longer stand below
# each other.
_PLAIN = {
    "✓": "+",
    "✗": "x",
    "•": "*",
    "…": "~",
    "→": ">",
    "·": "-",
    "“": '"',
    "”": '"',
    "│": "|",
    "╷": "|",
    "╵": "|",
}
_LINES = dict.fromkeys("─━╸╺═╴╶", "-") | dict.fromkeys("╭╮╰╯┌┐└┘├┤", "+")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    stands = (_PLAIN.get(char) or _LINES.get(char) or _escaped(char) for char in found)
    return "".join(stands), error.end


def _escaped(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode("ascii")


def prepare_streams() -> None:
    """See to it that there are streams, and that every character can be written, whatever the encoding."""
    # A shell can start us with some of them closed; whatever is opened next must not pass for one of them.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (until the end)
    codecs.register_error("retrysafe.plain", _stand_in)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="retrysafe.plain")


def on_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed before we began
        return False


def console(stream: IO[str], file: IO[str] | None = None) -> "Console":
    """Draws as suits where the stream goes."""
    from rich.console import Console

    terminal = on_terminal(stream)
    return Console(
        file=file or stream,
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        width=None if terminal else _UNBOUNDED,
        markup=False,
        highlight=False,
        emoji=False,
    )


def draw(*renderables: "RenderableType") -> None:
    """Print to stdout, one below the other.  A plain string is never folded: commands are to be copied."""
    write(_drawn(sys.stdout, renderables))


def tell(*renderables: "RenderableType") -> None:
    """Draw to stderr."""
    say(_drawn(sys.stderr, renderables).removesuffix("\n"))


def _drawn(stream: IO[str], renderables: "Sequence[RenderableType]") -> str:
    # Not onto the stream itself: what goes wrong there is dealt with in one place.
    page = io.StringIO()
    drawing = console(stream, page)
    for renderable in renderables:
        drawing.print(renderable, soft_wrap=isinstance(renderable, str))
    # Cells are filled up to their column's width; at the end of a line that is only in the way.
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))


def dump(document: object) -> None:
    """Print one JSON document to stdout; in ASCII, so that it is harmless on a terminal as well."""
    write(json.dumps(document, indent=2) + "\n")


def write(text: str) -> None:
    with _delivering():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    """Exact bytes, for a file or another program."""
    with _delivering():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def flush() -> None:
    with _delivering():
        sys.stdout.flush()


@contextmanager
def _delivering() -> Generator[None]:
    """Turns trouble with stdout into the end of the command."""
    try:
        yield
    except OSError as error:
        # The interpreter flushes once more at its end, and would complain about the same trouble.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise PipeClosed from None
        raise Failure(f"the output cannot be written: {error.strerror}") from None


def say(text: str) -> None:
    """A remark to whoever sits there; never part of the data, and no reason to fail if nobody can hear it."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def complain(message: str, advice: str) -> None:
    """What is wrong, and in a second line what to do."""
    message, advice = (clean(" ".join(text.split())) for text in (message, advice))
    if not on_terminal(sys.stderr):
        say(f"retrysafe: {message}" + (f"\n  {advice}" if advice else ""))
        return
    from rich.text import Text

    tell(Text.assemble(("retrysafe: ", "bold red"), message), *([Text(advice, "dim")] if advice else []))
