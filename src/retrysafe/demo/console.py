"""How the demo writes: one console, sentences that are easy to read at any width."""

import io
import os
import shlex
import shutil
import sys
import textwrap
from pathlib import Path

from rich.console import Console

WIDTH = 80
"""Sentences and tables do not grow wider with the terminal: long lines are hard to read."""


def make_console() -> Console:
    # A terminal that knows no € shows a question mark, and not a traceback.
    stdout: object = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="replace")
    return Console(highlight=False)


def print_paragraph(console: Console, text: str) -> None:
    """Sentences, wrapped and indented."""
    width = min(WIDTH, console.width) - 2
    console.print(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="  "))


def euros(cents: int) -> str:
    sign = "-" if cents < 0 else ""
    return f"{sign}€{abs(cents) // 100:,}.{abs(cents) % 100:02}"


def command_line(*, elsewhere: bool = False) -> str:
    """How to call `retrysafe` from here; `elsewhere`: from another terminal, in another folder."""
    script = Path(sys.executable).with_name("retrysafe")
    found = shutil.which("retrysafe")
    # An environment that is active here is not so in another terminal.
    if (
        found
        and script.exists()
        and os.path.samefile(found, script)
        and not (elsewhere and "VIRTUAL_ENV" in os.environ)
    ):
        return "retrysafe"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m retrysafe"
    here = Path.cwd()
    short = script.is_relative_to(here) and not elsewhere
    return shlex.quote(str(script.relative_to(here) if short else script))
