"""Writes data to stdout and everything else to stderr.

On a terminal there is colour and a width to fit; elsewhere plain aligned text.  What is drawn consists of
`Text` and never of markup, so `[bold]` in a path stays as it is.  Rich is loaded when something is drawn:
JSON and help do not wait for it.
"""

import codecs
import io
import json
import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from retrysafe.cli import projects
from retrysafe.cli.exits import Failure, PipeClosed
from retrysafe.cli.format import clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_UNBOUNDED = 100_000
"""Columns, so that nothing is cut or wrapped."""

# What to write where the encoding lacks a character: one for one, so that columns stay aligned.
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


_UNPRINTABLE = re.compile(r"[^\n -~]")
"""Candidates: whether a character beyond ASCII is printable, `str.isprintable` knows."""


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    substitutes = (_PLAIN.get(char) or _LINES.get(char) or _escaped(char) for char in found)
    return "".join(substitutes), error.end


def _escaped(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode("ascii")


def prepare_streams() -> None:
    """Replace streams that the shell closed, and make every character writable in any encoding."""
    # A shell can start us with some of them closed, and the next file opened would take such a number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open until exit)
    codecs.register_error("retrysafe.plain", _substitute)
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
    """A console with the colours and the width of the stream; it writes to `file`, if given."""
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
    """Print to stdout, one below the other.  A plain string is never folded: it is a command to copy."""
    write(_drawn(sys.stdout, renderables))


def draw_stderr(*renderables: "RenderableType") -> None:
    """The same to stderr."""
    notice(_drawn(sys.stderr, renderables).removesuffix("\n"))


def _drawn(stream: IO[str], renderables: "Sequence[RenderableType]") -> str:
    # Not onto the stream itself: `write` handles its errors.
    page = io.StringIO()
    drawing = console(stream, page)
    for renderable in renderables:
        drawing.print(renderable, soft_wrap=isinstance(renderable, str))
    # Rich pads the last column, too.
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))


def write_json(document: object) -> None:
    """Print one JSON document to stdout, in UTF-8 (RFC 8259, section 8.1).

    What could steer a terminal is escaped, as is every character that is not ASCII where stdout has another
    encoding: JSON would not survive a substitute.
    """
    is_utf8 = codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name == "utf-8"
    text = json.dumps(document, indent=2, ensure_ascii=not is_utf8)
    # Outside of strings there are only spaces and line ends.
    write(_UNPRINTABLE.sub(_json_escape, text) + "\n")


def _json_escape(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def write(text: str) -> None:
    with _handle_stdout_errors():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    """Exact bytes, for a file or another program."""
    with _handle_stdout_errors():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def flush() -> None:
    with _handle_stdout_errors():
        sys.stdout.flush()


@contextmanager
def _handle_stdout_errors() -> Generator[None]:
    """End the command when stdout cannot be written."""
    try:
        yield
    except OSError as error:
        # The interpreter flushes once more at exit, and would report the same error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise PipeClosed from None
        raise Failure(f"the output cannot be written: {error.strerror}") from None


def notice(text: str) -> None:
    """Print a remark to stderr; a closed stderr is not an error."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def report(message: str, advice: str) -> None:
    """Print an error: what is wrong, and in a second line what to do."""
    message, advice = (clean(" ".join(projects.as_called(text).split())) for text in (message, advice))
    if not on_terminal(sys.stderr):
        notice(f"retrysafe: {message}" + (f"\n  {advice}" if advice else ""))
        return
    from rich.text import Text

    draw_stderr(
        Text.assemble(("retrysafe: ", "bold red"), message), *([Text(advice, "dim")] if advice else [])
    )
