"""What the demo prints: the progress of a run, a table of all three, and whether they show what they should.

What stays on the screen is the same with a terminal and without; only the progress bar needs one.
"""

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

from rich import box, progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from retrysafe.demo.client import CUSTOMERS
from retrysafe.demo.crash import Settled
from retrysafe.demo.ledger import Balance

WIDTH = 80
"""Sentences and tables do not grow wider with the terminal: long lines are hard to read."""

MAX_PROBLEMS = 10
"""A server that ignores keys charges dozens of customers twice: the first ones say enough."""

_INTRODUCTION = (
    f"{CUSTOMERS} customers pay in a small shop. The network between them and its payments API loses "
    "requests and responses, or is too slow; customers double-click; and clients retry, as good clients do. "
    "The same customers and the same faults, three times."
)


class RunResult(NamedTuple):
    title: str
    keys: bool
    intended: int
    sent: int
    unanswered: int
    """Requests without a response."""
    counts: Counter[str]
    """What the server counted: "arrived", and each verdict of the guard."""
    balance: Balance
    refused: tuple[str, ...]
    """Why customers got no receipt."""
    seconds: float
    killed: bool = False
    settled: tuple[Settled, ...] = ()
    """Unknown outcomes that an operator settled."""
    unsettled: int = 0
    """Unknown outcomes that are left."""


class Progress:
    """Prints a run while it happens."""

    def __init__(self, console: Console, *, live: bool) -> None:
        self._console = console
        self._live = live
        self._runs = 0

    @contextmanager
    def run(self, title: str, payments: int) -> Generator[None]:
        self._runs += 1
        self._console.print(f"  [bold]{self._runs}  {title}[/]")
        columns = (
            progress.TextColumn("    "),
            progress.BarColumn(bar_width=40, complete_style="cyan", finished_style="cyan"),
            progress.MofNCompleteColumn(),
            progress.TextColumn("payments"),
            progress.TimeElapsedColumn(),
        )
        bar = progress.Progress(*columns, console=self._console, transient=True, disable=not self._live)
        with bar:
            self._bar = bar
            self._task = bar.add_task(title, total=payments)
            yield

    def paid(self, payments: int) -> None:
        self._bar.update(self._task, completed=payments)

    def log(self, text: str) -> None:
        self._console.print(f"     {text}", style="dim")

    def finished(self, result: RunResult) -> None:
        difference = result.balance.difference
        if difference > 0:
            mark, outcome, style = "✗", f"{euros(difference)} too much was taken", "bold red"
        elif difference < 0:
            mark, outcome, style = "✗", f"{euros(-difference)} was not taken", "bold red"
        elif result.balance.errors or result.refused:
            mark, outcome, style = "✗", "a charge or a receipt is wrong", "bold red"
        else:
            mark, outcome, style = "✓", "right to the cent", "bold green"
        self._console.print(
            f"     {result.sent} requests in {result.seconds:.1f} s  [{style}]{mark} {outcome}[/]"
        )


def make_console() -> Console:
    # A terminal that cannot show € shows a question mark, and not a traceback.
    stdout: object = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="replace")
    return Console(highlight=False)


def print_introduction(console: Console, seed: int) -> None:
    console.print(f"\n  [bold]retrysafe demo[/] [dim]--seed {seed}[/]\n")
    _print_paragraph(console, _INTRODUCTION)
    console.print()


def print_shop(console: Console, shop: str) -> None:
    """Where the keys are that stay behind."""
    _print_paragraph(
        console,
        f"Keys are in the store that was given, with the scope shop={shop}-… They stay there until they "
        "expire, as those of any service do.",
    )
    console.print()


def print_error(console: Console, error: str) -> None:
    console.print(Text(f"  {error}", "bold red"))


def print_results(console: Console, results: Sequence[RunResult], seed: int) -> int:
    """The table, and what follows from it; the exit code."""
    console.print(table(results), width=min(WIDTH - 1, console.width))
    found = problems(results)
    if found:
        console.print(Text("  This must not happen:", "bold red"))
        for problem in found[:MAX_PROBLEMS]:
            console.print(Text(f"  - {problem}"))
        if len(found) > MAX_PROBLEMS:
            console.print(f"  and {len(found) - MAX_PROBLEMS} more")
        console.print(f"\n  To repeat this run: {command_line()} demo --seed {seed}\n")
        return 1
    _print_paragraph(console, summary(results))
    retrysafe = command_line()
    console.print(f"\n  The same API, with curl commands to try:\n    [cyan]{retrysafe} demo --serve[/]")
    console.print(f"  The operator's commands:\n    [cyan]{retrysafe} --help[/]\n")
    return 0


def table(results: Sequence[RunResult]) -> Table:
    """The runs side by side."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, header_style="bold")
    table.add_column("")
    for result in results:
        table.add_column(result.title.replace(", ", ",\n"), justify="right", vertical="bottom", no_wrap=True)

    def row(name: str, cell: Callable[[RunResult], str | Text], *, last: bool = False) -> None:
        table.add_row(name, *(cell(result) for result in results), end_section=last)

    def row_with_keys(name: str, number: Callable[[RunResult], int], *, last: bool = False) -> None:
        """What does not exist for requests without a key."""
        row(name, lambda result: str(number(result)) if result.keys else "-", last=last)

    row("Payments intended", lambda result: str(result.intended))
    row("Requests sent", lambda result: str(result.sent))
    row("  without a response", lambda result: str(result.unanswered))
    row("Duplicates the server received", lambda result: str(result.counts["arrived"] - result.intended))
    row_with_keys("  replayed the first response", lambda result: result.counts["replayed"])
    row_with_keys("  refused: in flight (409)", lambda result: result.counts["in-flight"], last=True)
    row_with_keys("Unknown outcomes", lambda result: len(result.settled) + result.unsettled)
    row_with_keys("  refused until settled (409)", lambda result: result.counts["outcome-unknown"])
    row_with_keys(
        "  taken: resolved as completed", lambda result: len([one for one in result.settled if one.charge])
    )
    row_with_keys(
        "  not taken: released, retried",
        lambda result: len([one for one in result.settled if not one.charge]),
        last=True,
    )
    row("Money that should be taken", lambda result: euros(result.balance.expected))
    row("Money that was taken", lambda result: euros(result.balance.taken))
    row("Difference", lambda result: _colored(result.balance.difference, _signed(result.balance.difference)))
    row(
        "Wrong charges or receipts",
        lambda result: _colored(len(result.balance.errors), str(len(result.balance.errors))),
    )
    return table


def _colored(amount: int, text: str) -> Text:
    return Text(text, "bold red" if amount else "bold green")


def summary(results: Sequence[RunResult]) -> str:
    """For runs without problems only."""
    without, _, killed = results
    return (
        f"Without keys, {len(without.balance.errors)} of {without.intended} customers were charged wrongly, "
        f"and {euros(without.balance.difference)} too much was taken. With keys, the same customers on the "
        "same bad network paid what they meant to pay: a retry gets the first response, not a second charge. "
        f"When the server was killed, the outcome of {len(killed.settled)} payments was unknown: each was "
        "held until an operator had checked it, and then settled."
    )


def problems(results: Sequence[RunResult]) -> list[str]:
    """Why the runs do not show what they should; empty if they do."""
    return [f"{result.title}: {problem}" for result in results for problem in _problems(result)]


def _problems(result: RunResult) -> list[str]:
    balance = result.balance
    if not result.keys:
        doubled = balance.difference > 0
        return [] if doubled else ["no money was taken twice, so the comparison shows nothing"]
    found = [f"{order} {error}" for order, error in balance.errors.items()]
    found += [f"a customer got no receipt: {refusal}" for refusal in result.refused]
    if balance.difference:
        found.append(f"{euros(balance.taken)} was taken and should have been {euros(balance.expected)}")
    if result.unsettled:
        found.append(f"the outcome of {result.unsettled} payments is still unknown")
    if result.killed:
        kinds = {one.charge is not None for one in result.settled}
        if len(kinds) < 2:
            found.append("no operator had to settle both a payment that had been taken and one that had not")
    return found


def euros(cents: int) -> str:
    sign = "-" if cents < 0 else ""
    return f"{sign}€{abs(cents) // 100:,}.{abs(cents) % 100:02}"


def _signed(cents: int) -> str:
    return f"+{euros(cents)}" if cents > 0 else euros(cents)


def _print_paragraph(console: Console, text: str) -> None:
    """Sentences, wrapped and indented."""
    width = min(WIDTH, console.width) - 2
    console.print(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="  "))


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
