"""The demo as it is seen: an opening, the story, the table, and the exit code."""

import secrets
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

from retrysafe.demo import crowd, report, story
from retrysafe.demo.console import WIDTH, command_line, make_console, print_paragraph
from retrysafe.demo.display import Display
from retrysafe.demo.process import PROGRAM, ServerFailed
from retrysafe.errors import StoreError

_OPENING = (
    "{size} customers pay in a small shop. The network between them and its payments API loses requests and "
    "answers, or is too slow; customers double-click; and clients retry, as good clients do. The same "
    "customers and the same mishaps, three times."
)


def perform(
    seed: int | None, *, console: Console | None = None, live: bool = True, program: tuple[str, ...] = PROGRAM
) -> int:
    """Tell the story; the exit code.  `live`: with a moving bar, if there is a terminal."""
    console = console or make_console()
    seed = secrets.randbelow(10_000) if seed is None else seed
    customers = crowd.gather(seed)
    console.print(f"\n  [bold]retrysafe demo[/] [dim]--seed {seed}[/]\n")
    print_paragraph(console, _OPENING.format(size=crowd.SIZE))
    console.print()
    try:
        with TemporaryDirectory(prefix="retrysafe-demo-") as folder:
            display = Display(console, live=live and console.is_interactive)
            acts = story.tell(customers, Path(folder), display, program)
    except (ServerFailed, StoreError) as failure:
        console.print(Text(f"  {failure}", "bold red"))
        return 1
    console.print(report.table(acts), width=min(WIDTH - 1, console.width))
    troubles = report.troubles(acts)
    if troubles:
        _complain(console, troubles, seed)
        return 1
    print_paragraph(console, report.conclusion(acts))
    _point_on(console)
    return 0


def _complain(console: Console, troubles: list[str], seed: int) -> None:
    shown = troubles[:10]
    console.print(Text("  This must not happen:", "bold red"))
    for trouble in shown:
        console.print(Text(f"  - {trouble}"))
    if len(troubles) > len(shown):
        console.print(f"  and {len(troubles) - len(shown)} more")
    console.print(f"\n  The same customers and mishaps again: {command_line()} demo --seed {seed}\n")


def _point_on(console: Console) -> None:
    retrysafe = command_line()
    console.print(f"\n  The same API, with curl lines to try:\n    [cyan]{retrysafe} demo --serve[/]")
    console.print(f"  What an operator can do:\n    [cyan]{retrysafe} --help[/]\n")
