"""How the demo writes: one console, sentences that are easy to read at any width."""

import io
import sys
import textwrap

from rich.console import Console

WIDTH = 80
"""Sentences and tables do not grow wider with the terminal: long lines are hard to read."""


def make_console() -> Console:
    # A terminal that knows no € shows a question mark, and not a traceback.
    stdout: object = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="replace")
    return Console(highlight=False)


def paragraph(text: str) -> str:
    """Sentences, wrapped and indented."""
    return textwrap.fill(text, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")


def euros(cents: int) -> str:
    sign = "-" if cents < 0 else ""
    return f"{sign}€{abs(cents) // 100:,}.{abs(cents) % 100:02}"
