"""What is seen while the demo runs: a bar on a terminal, lines without one.

What stays on the screen is the same in both cases.
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
    """`live`: draw a bar that moves and is gone in the end."""

    def __init__(self, console: Console, *, live: bool) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("  [bold]{task.description:<24}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("payments"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not live,
        )

    @contextmanager
    def act(self, title: str, payments: int) -> Generator[None]:
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        self._task = self._progress.add_task(title, total=payments)
        with self._progress:
            yield

    def paid(self, payments: int) -> None:
        """So many are through."""
        self._progress.update(self._task, completed=payments)

    def say(self, text: str) -> None:
        """Something happened that is worth a line."""
        self._console.print(f"    {text}", style="dim", highlight=False)

    def played(self, act: "Act") -> None:
        """One line for an act that is over."""
        too_much = act.balance.difference
        if too_much > 0:
            mark, outcome, style = "✗", f"{euros(too_much)} too much taken", "bold red"
        elif too_much < 0:
            mark, outcome, style = "✗", f"{euros(-too_much)} not taken", "bold red"
        elif act.balance.wrong or act.refused:
            mark, outcome, style = "✗", "charged wrongly", "bold red"
        else:
            mark, outcome, style = "✓", "right to the cent", "bold green"
        told = f"{act.sent} requests in {act.seconds:.1f} s"
        self._console.print(
            f"  [{style}]{mark}[/] [bold]{act.title:<24}[/] {told:<22} [{style}]{outcome}[/]", highlight=False
        )
