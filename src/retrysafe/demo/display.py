"""What is seen while the demo runs: on a terminal with a moving bar, which is gone in the end.

What stays is the same with a terminal and without.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from retrysafe.demo.console import euros

if TYPE_CHECKING:
    from retrysafe.demo.story import Act


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
