"""The table that anyone understands, what follows from it, and the verdict."""

import io
import os
import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from retrysafe.demo.crash import Settled
from retrysafe.demo.ledger import Balance


class Act(NamedTuple):
    """How one act went."""

    title: str
    keys: bool
    intended: int
    sent: int
    unanswered: int
    counts: Counter[str]
    """What the server saw: "arrived", and how often the guard came to which verdict."""
    balance: Balance
    refused: tuple[str, ...]
    """What customers were told who got no receipt."""
    seconds: float
    killed: bool = False
    settled: tuple[Settled, ...] = ()
    """What an operator had to settle."""
    left: int = 0
    """What is still in doubt."""


def table(acts: Sequence[Act]) -> Table:
    """The acts side by side."""
    found = Table(box=box.SIMPLE_HEAD, expand=True, header_style="bold")
    found.add_column("")
    for act in acts:
        found.add_column(act.title.replace(", ", ",\n"), justify="right", vertical="bottom", no_wrap=True)

    def row(name: str, cell: Callable[[Act], str | Text], *, last: bool = False) -> None:
        found.add_row(name, *(cell(act) for act in acts), end_section=last)

    def guarded(name: str, number: Callable[[Act], int], *, last: bool = False) -> None:
        """Something that nobody can say about requests without a key."""
        row(name, lambda act: str(number(act)) if act.keys else "-", last=last)

    row("Payments intended", lambda act: str(act.intended))
    row("Requests sent", lambda act: str(act.sent))
    row("  that got no answer", lambda act: str(act.unanswered))
    row("Duplicates the server received", lambda act: str(act.counts["arrived"] - act.intended))
    guarded("  answered as before (replay)", lambda act: act.counts["replayed"])
    guarded("  still running (409 conflict)", lambda act: act.counts["in-flight"], last=True)
    guarded("Unknown outcomes", lambda act: len(act.settled) + act.left)
    guarded("  told so meanwhile (409)", lambda act: act.counts["outcome-unknown"])
    guarded("  was taken: resolved as done", lambda act: len([one for one in act.settled if one.charge]))
    guarded(
        "  was not: released, and retried",
        lambda act: len([one for one in act.settled if not one.charge]),
        last=True,
    )
    row("Money that should be taken", lambda act: euros(act.balance.should))
    row("Money that was taken", lambda act: euros(act.balance.taken))
    row("Difference", lambda act: _verdict(act.balance.difference, _signed(act.balance.difference)))
    row(
        "Customers charged or told wrong",
        lambda act: _verdict(len(act.balance.wrong), str(len(act.balance.wrong))),
    )
    return found


def _verdict(amount: int, text: str) -> Text:
    return Text(text, "bold red" if amount else "bold green")


def _signed(cents: int) -> str:
    return f"+{euros(cents)}" if cents > 0 else euros(cents)


def conclusion(acts: Sequence[Act]) -> str:
    """What a reader should remember.  Only for a run without troubles."""
    without, _, killed = acts
    return (
        f"Without keys, {len(without.balance.wrong)} of {without.intended} customers were charged wrongly, "
        f"and {euros(without.balance.difference)} was taken that nobody owed. With keys, the same customers "
        "on the same bad network paid what they meant to pay: a retry gets the first answer, not a second "
        f"charge. When the server was killed, {len(killed.settled)} payments were in doubt. Nobody guessed: "
        "each was held until an operator had looked, and then settled."
    )


def troubles(acts: Sequence[Act]) -> list[str]:
    """Why this run does not show what it should; nothing if it does."""
    return [f"{act.title}: {trouble}" for act in acts for trouble in _troubles(act)]


def _troubles(act: Act) -> list[str]:
    if not act.keys:
        enough = act.balance.difference > 0
        return [] if enough else ["no money was taken twice, so the comparison shows nothing"]
    found = [f"{order} {what}" for order, what in act.balance.wrong.items()]
    found += [f"a customer got no receipt: {refusal}" for refusal in act.refused]
    if act.balance.difference:
        found.append(f"{euros(act.balance.taken)} was taken and should have been {euros(act.balance.should)}")
    if act.left:
        found.append(f"{act.left} payments are still in doubt")
    if act.killed:
        kinds = {one.charge is not None for one in act.settled}
        if len(kinds) < 2:
            found.append("no operator had to settle both a payment that had been taken and one that had not")
    return found


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


class Display:
    def __init__(self, console: Console, *, live: bool) -> None:
        self._console = console
        self._live = live
        self._acts = 0

    @contextmanager
    def act(self, title: str, payments: int) -> Generator[None]:
        self._acts += 1
        self._console.print(f"  [bold]{self._acts}  {title}[/]")
        columns = (
            TextColumn("    "),
            BarColumn(bar_width=40, complete_style="cyan", finished_style="cyan"),
            MofNCompleteColumn(),
            TextColumn("payments"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True, disable=not self._live) as progress:
            self._progress = progress
            self._task = progress.add_task(title, total=payments)
            yield

    def paid(self, payments: int) -> None:
        """So many are through."""
        self._progress.update(self._task, completed=payments)

    def say(self, text: str) -> None:
        """Something happened that is worth a line."""
        self._console.print(f"     {text}", style="dim")

    def played(self, act: "Act") -> None:
        """One line for an act that is over."""
        difference = act.balance.difference
        if difference > 0:
            mark, outcome, style = "✗", f"{euros(difference)} too much was taken", "bold red"
        elif difference < 0:
            mark, outcome, style = "✗", f"{euros(-difference)} was not taken", "bold red"
        elif act.balance.wrong or act.refused:
            mark, outcome, style = "✗", "somebody was charged wrongly", "bold red"
        else:
            mark, outcome, style = "✓", "right to the cent", "bold green"
        self._console.print(f"     {act.sent} requests in {act.seconds:.1f} s  [{style}]{mark} {outcome}[/]")
