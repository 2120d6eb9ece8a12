"""The story in three acts: without keys, with keys, and with keys while the server is killed.

The customers, what they pay and the mishaps they meet are the same in all three.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from retrysafe.demo import client, report
from retrysafe.demo.client import Client, Crowd, Experience, Payment, Refused, Stopped
from retrysafe.demo.crash import Accident
from retrysafe.demo.ledger import balance
from retrysafe.demo.network import network
from retrysafe.demo.report import WIDTH, Act, Display, command_line, make_console, print_paragraph
from retrysafe.demo.server import PROGRAM, Server, ServerFailed
from retrysafe.demo.signals import PAUSE, stop_if_asked
from retrysafe.errors import StoreError

AT_ONCE = 16
"""Customers who pay at the same time: enough to get in each other's way, few enough for two busy cores."""

LEASE, SHORT_LEASE = 30.0, 1.5
"""Seconds until a dead server's payments count as unknown: the default, and one that a demo can wait for."""

PATIENCE = 20.0
"""Seconds for one act.  It takes three; whoever has no answer by then never gets one, which is a failure."""

Tick = Callable[[int], None]


class Evening(NamedTuple):
    """What the customers of one act met, before anybody looks at the books."""

    sent: int
    unanswered: int
    receipts: dict[str, list[str]]
    refused: tuple[str, ...]
    seconds: float


def tell(crowd: Crowd, folder: Path, display: Display, program: tuple[str, ...] = PROGRAM) -> list[Act]:
    """Play all three acts, each with new books.  `program` is the server that Python runs."""
    return [
        _undisturbed(crowd, _new(folder, "without"), display, program, keys=False),
        _undisturbed(crowd, _new(folder, "with"), display, program, keys=True),
        _killed(crowd, _new(folder, "killed"), display, program),
    ]


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _undisturbed(
    crowd: Crowd, folder: Path, display: Display, program: tuple[str, ...], *, keys: bool
) -> Act:
    title = "with keys" if keys else "without keys"
    with display.act(title, len(crowd.payments)):
        with Server(folder, lease=LEASE, program=program) as server:
            evening = _play(crowd, server, display.paid, keys=keys)
        act = _count(title, crowd, server, evening, keys=keys)
    display.played(act)
    return act


def _killed(crowd: Crowd, folder: Path, display: Display, program: tuple[str, ...]) -> Act:
    title = "with keys, server killed"
    hold = (f"--hold=before:{crowd.before.order}", f"--hold=after:{crowd.after.order}")
    with display.act(title, len(crowd.payments)):
        server = Server(folder, *hold, lease=SHORT_LEASE, program=program)
        with closing(Accident(server, crowd, display.say)) as accident:

            def tick(paid: int) -> None:
                display.paid(paid)
                accident.go_on(paid)

            with server:
                evening = _play(crowd, server, tick, keys=True)
            act = _count(title, crowd, server, evening, keys=True)
            act = act._replace(killed=True, settled=tuple(accident.settled), left=accident.left())
    display.played(act)
    return act


def _play(crowd: Crowd, server: Server, tick: Tick, *, keys: bool) -> Evening:
    """Let everybody pay."""
    began = time.monotonic()
    stop = threading.Event()
    with network(server.port, crowd.mishaps.fate) as port, ThreadPoolExecutor(AT_ONCE) as pool:
        client = Client(port, keys=keys, stop=stop)
        clicks = {
            pool.submit(client.pay, payment, click): payment
            for payment in crowd.payments
            for click in range(1, payment.clicks + 1)
        }
        try:
            _watch(clicks, began + PATIENCE, tick)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    experiences: list[Experience] = []
    receipts: dict[str, list[str]] = {}
    refused: list[str] = []
    for click, payment in clicks.items():
        try:
            experience = click.result()
        except Refused as refusal:
            refused.append(str(refusal))
        except (Stopped, CancelledError):
            refused.append(f"{payment.order}: no answer within {PATIENCE:.0f} seconds")
        else:
            experiences.append(experience)
            receipts.setdefault(payment.order, []).append(experience.receipt)
    return Evening(
        sum(experience.sent for experience in experiences),
        sum(experience.unanswered for experience in experiences),
        receipts,
        tuple(refused),
        time.monotonic() - began,
    )


def _watch(clicks: Mapping[Future[Experience], Payment], deadline: float, tick: Tick) -> None:
    """Call `tick` with the number of payments that are through, until all are or the time is over."""
    pending = set(clicks)
    while pending and time.monotonic() < deadline:
        stop_if_asked()
        _, pending = wait(pending, timeout=PAUSE, return_when=FIRST_COMPLETED)
        unpaid = {clicks[click].order for click in pending}
        tick(len({payment.order for payment in clicks.values()} - unpaid))


def _count(title: str, crowd: Crowd, server: Server, evening: Evening, *, keys: bool) -> Act:
    """Look at the books.  The server has ended: whatever was still running in it has come to its end too."""
    return Act(
        title,
        keys,
        len(crowd.payments),
        evening.sent,
        evening.unanswered,
        server.counts(),
        balance(crowd.payments, evening.receipts, server.ledger.charges()),
        evening.refused,
        evening.seconds,
    )


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
    customers = client.gather(seed)
    console.print(f"\n  [bold]retrysafe demo[/] [dim]--seed {seed}[/]\n")
    print_paragraph(console, _OPENING.format(size=client.SIZE))
    console.print()
    try:
        with TemporaryDirectory(prefix="retrysafe-demo-") as folder:
            display = Display(console, live=live and console.is_interactive)
            acts = tell(customers, Path(folder), display, program)
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
