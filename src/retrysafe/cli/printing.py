"""Where everything that is said goes out: data to stdout, talk to stderr, both without harm.

On a terminal there is colour and a width to keep to; elsewhere plain aligned text, as wide as it needs to be.
What is printed consists of `Text` and never of markup, so `[bold]` in a path is just that.  Rich is loaded
when something is drawn: those who ask for JSON or for help do not wait for it.
"""

import codecs
import json
import sys
from typing import IO, TYPE_CHECKING

from retrysafe.cli.exits import PipeClosed
from retrysafe.cli.text import clean

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
    """See to it that every character can be written, whatever the encoding."""
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


def console(stream: IO[str]) -> "Console":
    """Draws as suits where the stream goes."""
    from rich.console import Console

    terminal = on_terminal(stream)
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        width=None if terminal else _UNBOUNDED,
        markup=False,
        highlight=False,
        emoji=False,
    )


def draw(*renderables: "RenderableType") -> None:
    """Print to stdout, one below the other."""
    drawing = console(sys.stdout)
    with drawing.capture() as captured:
        for renderable in renderables:
            drawing.print(renderable)
    # Cells are filled up to their column's width; at the end of a line that is only in the way.
    write(_trimmed(captured.get()))


def dump(document: object) -> None:
    """Print one JSON document to stdout; in ASCII, so that it is harmless on a terminal as well."""
    write(json.dumps(document, indent=2) + "\n")


def write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise PipeClosed from None
    flush()


def write_bytes(data: bytes) -> None:
    """Exact bytes, for a file or another program."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise PipeClosed from None


def flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise PipeClosed from None


def say(text: str) -> None:
    """A remark to whoever sits there; never part of the data."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        raise PipeClosed from None


def tell(*renderables: "RenderableType") -> None:
    """Draw to stderr."""
    drawing = console(sys.stderr)
    with drawing.capture() as captured:
        for renderable in renderables:
            drawing.print(renderable)
    say(_trimmed(captured.get()).removesuffix("\n"))


def _trimmed(drawn: str) -> str:
    return "\n".join(line.rstrip() for line in drawn.split("\n"))


def complain(message: str, advice: str) -> None:
    """What is wrong, and in a second line what to do."""
    message, advice = (clean(" ".join(text.split())) for text in (message, advice))
    if not on_terminal(sys.stderr):
        say(f"retrysafe: {message}" + (f"\n  {advice}" if advice else ""))
        return
    from rich.text import Text

    tell(Text.assemble(("retrysafe: ", "bold red"), message), *([Text(advice, "dim")] if advice else []))
